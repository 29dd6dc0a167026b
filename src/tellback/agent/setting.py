"""What an agent knows at a place of its routes: the guidelines, tools and routes that matter there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.agent.canned import CannedResponse, fill_canned_response
from tellback.agent.domains import DomainRegistry
from tellback.agent.relevance import TextRanker
from tellback.agent.route import Route
from tellback.agent.session import SessionState
from tellback.agent.state import State
from tellback.agent.understand import Limits
from tellback.agent.values import Capability, CompositionMode, Guideline, GuidelineMatch
from tellback.chat import ChatOptions
from tellback.conversations.turn_options import resolve_options
from tellback.errors import ConfigurationError, FlowError
from tellback.tools import Tool, as_tool
from tellback.types.names import slug

UNSET_MODEL = "-"
"""The model's name where none is set."""


class AgentBase:
    """The part of an agent that its turns ask."""

    place: str
    limits: Limits
    guidelines: list[Guideline]
    capabilities: list[Capability]
    canned_responses: tuple[CannedResponse, ...]
    composition_mode: CompositionMode
    domains: DomainRegistry
    tools: tuple[Tool, ...]
    skills: tuple[Any, ...]
    memory: Any

    def __init__(self) -> None:
        self.routes_by_id: dict[str, Route] = {}
        self.route_keys: dict[str, str] = {}
        self._ranker_cache: tuple[tuple[int, ...], TextRanker] | None = None
        self._last_validated: tuple[Any, ...] | None = None

    def _register_route(self, route: Route) -> None:
        self.routes_by_id[route.id] = route
        # What models call it: short, and of one route only.
        key = base = slug(route.title) or "route"
        number = 1
        while key in self.route_keys.values():
            number += 1
            key = f"{base}_{number}"
        self.route_keys[route.id] = route.key = key

    def check(self) -> None:
        """Raise `FlowError` if something is wrong with the routes, or if there is a place where nothing can be said."""
        snapshot = (
            self._route_revisions(),
            self.composition_mode,
            self.canned_responses,
            len(self.guidelines),
            len(self.capabilities),
            len(self.tools),
            self.domains.names,
        )
        if self._last_validated == snapshot:
            return
        for route in self.routes_by_id.values():
            route.check()
        if self.composition_mode is CompositionMode.CANNED_STRICT:
            self._validate_strict_mode()
        self._validate_tools()
        self._last_validated = snapshot

    def _validate_strict_mode(self) -> None:
        if any(
            each.condition is None and isinstance(fill_canned_response(each, {}, None), str)
            for each in self.canned_responses
        ):
            return
        raise FlowError(
            self.place,
            "it only says what is written (strict_canned), so it needs a canned response of its own without a condition"
            " and without values, for when no other can be said: Agent(canned_responses=[...]).",
        )

    def _validate_tools(self) -> None:
        tools = [*self.tools, *(tool for each in self.capabilities for tool in each.tools), *self.domains.tools()]
        for guideline in self._all_guidelines():
            tools += guideline.tools
        known: dict[str, Tool] = {}
        for tool in tools:
            if known.setdefault(tool.name, tool).fn != tool.fn:
                raise FlowError(self.place, f"two tools are called {tool.name!r}; give one another name.")
            if tool.requires_approval and self.memory is None:
                raise FlowError(
                    self.place,
                    f"{tool.name} needs approval, and the model may call it: its call waits in the log of a memory, so"
                    " pass memory=..., or run it in a state (tool_state=...).",
                )

    def _all_guidelines(self) -> list[Guideline]:
        guidelines = [*self.guidelines]
        for route in self.routes_by_id.values():
            guidelines += route.guidelines
            for state in route.states:
                guidelines += state.guidelines
        return guidelines

    def rank_routes(self, message: str) -> Sequence[Route]:
        """The routes by how much they have to do with what was said; in their order, if they can all be in play."""
        routes = tuple(self.routes_by_id.values())
        if len(routes) <= self.limits.in_play:
            return routes
        return [routes[index] for index in self._route_ranker(routes).rank(message)]

    def _route_ranker(self, routes: Sequence[Route]) -> TextRanker:
        revisions = self._route_revisions()
        if self._ranker_cache is None or self._ranker_cache[0] != revisions:
            self._ranker_cache = (revisions, TextRanker([_route_text(route) for route in routes]))
        return self._ranker_cache[1]

    def _route_revisions(self) -> tuple[int, ...]:
        return tuple([route.revision for route in self.routes_by_id.values()])

    async def prepare(self) -> None:
        """Load what ranks routes, which the first turn does otherwise: up to half a second, in a thread. With a handful
        of routes there is nothing to load."""
        routes = tuple(self.routes_by_id.values())
        if len(routes) > self.limits.in_play:
            ranker = self._route_ranker(routes)
            if not ranker.is_ready:
                await asyncio.to_thread(ranker.prepare)

    def offered_routes(self) -> Sequence[Route]:
        """Routes to mention where none is active."""
        return tuple(self.routes_by_id.values())[: self.limits.in_play]

    def guidelines_at(self, route: Route | None, state: State | None) -> list[Guideline]:
        """The guidelines of the agent, of the route and of the state."""
        guidelines = [*self.guidelines]
        if route is not None:
            guidelines += route.guidelines
        if state is not None:
            guidelines += state.guidelines
        return guidelines

    def tools_at(
        self, route: Route | None, matches: Sequence[GuidelineMatch], extra_tools: Sequence[Any]
    ) -> tuple[Tool, ...]:
        """What the model may call: its own tools, those of capabilities, of guidelines that hold, and of domains that
        the route may use."""
        tools = [
            *self.tools,
            *(tool for each in self.capabilities for tool in each.tools),
            *(tool for match in matches for tool in match.guideline.tools),
            *self.domains.tools(None if route is None else route.domains),
            *map(as_tool, extra_tools),
        ]
        return tuple({tool.name: tool for tool in tools}.values())

    def all_tools(self, extra_tools: Sequence[Any]) -> tuple[Tool, ...]:
        """All tools that the model may ever have called: for a reply that is taken up again."""
        matches = [GuidelineMatch(guideline) for guideline in self._all_guidelines()]
        return self.tools_at(None, matches, extra_tools)

    def restore_session(self, session: SessionState) -> SessionState:
        """The session with its values typed again, if it comes from a database."""
        current = session.current_route
        last = session.route_history[-1] if session.route_history else None
        id = current.id if current is not None else last.route_id if last is not None and last.completed else None
        route = None if id is None else self.routes_by_id.get(id)
        extracted = session.extracted if route is None else route.schema.restore(session.extracted)
        paused_routes = {
            id: replace(paused, extracted=self.routes_by_id[id].schema.restore(paused.extracted))
            if id in self.routes_by_id
            else paused
            for id, paused in session.paused_routes.items()
        }
        return replace(session, extracted=extracted, paused_routes=paused_routes)

    def _resolve_chat_options(self, source: ChatOptions | Mapping[str, Any] | None) -> ChatOptions:
        unset: dict[str, Any] = {"provider": None, "tools": None, "tool_handler": None, "max_cycles": None}
        options = resolve_options(source, model=None, default_model=UNSET_MODEL, **unset)
        for name in ("output_type", "tools", "system", "skills", "skill_resolver"):
            if getattr(options, name) is not None:
                raise ConfigurationError(f"options of an agent take no {name}: it is the agent's own business.")
        return replace(options, skills=self.skills) if self.skills else options


def _route_text(route: Route) -> str:
    return ". ".join(filter(None, (route.title, route.description, *route.conditions, " ".join(route.gatherable))))
