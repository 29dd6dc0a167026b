"""What an agent knows at a place of its routes: the guidelines, tools and routes that matter there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.agent.canned import CannedResponse, fill
from tellback.agent.domains import DomainRegistry
from tellback.agent.relevance import Relevance
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

UNSET = "-"
"""The model's name where none is set."""


class Setting:
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
        self._ranking: tuple[tuple[int, ...], Relevance] | None = None
        self._checked: tuple[Any, ...] | None = None

    def _add(self, route: Route) -> None:
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
        state = (
            self._changes(),
            self.composition_mode,
            self.canned_responses,
            len(self.guidelines),
            len(self.capabilities),
            len(self.tools),
            self.domains.names,
        )
        if self._checked == state:
            return
        for route in self.routes_by_id.values():
            route.check()
        if self.composition_mode is CompositionMode.CANNED_STRICT:
            self._check_strict()
        self._check_tools()
        self._checked = state

    def _check_strict(self) -> None:
        if any(each.condition is None and isinstance(fill(each, {}, None), str) for each in self.canned_responses):
            return
        raise FlowError(
            self.place,
            "it only says what is written (strict_canned), so it needs a canned response of its own without a condition"
            " and without values, for when no other can be said: Agent(canned_responses=[...]).",
        )

    def _check_tools(self) -> None:
        every = [*self.tools, *(tool for each in self.capabilities for tool in each.tools), *self.domains.tools()]
        for guideline in self._all_guidelines():
            every += guideline.tools
        known: dict[str, Tool] = {}
        for tool in every:
            if known.setdefault(tool.name, tool).fn != tool.fn:
                raise FlowError(self.place, f"two tools are called {tool.name!r}; give one another name.")
            if tool.requires_approval and self.memory is None:
                raise FlowError(
                    self.place,
                    f"{tool.name} needs approval, and the model may call it: its call waits in the log of a memory, so"
                    " pass memory=..., or run it in a state (tool_state=...).",
                )

    def _all_guidelines(self) -> list[Guideline]:
        found = [*self.guidelines]
        for route in self.routes_by_id.values():
            found += route.guidelines
            for state in route.states:
                found += state.guidelines
        return found

    def ranked_routes(self, said: str) -> Sequence[Route]:
        """The routes by how much they have to do with what was said; in their order, if they can all be in play."""
        routes = tuple(self.routes_by_id.values())
        if len(routes) <= self.limits.in_play:
            return routes
        return [routes[index] for index in self._relevance(routes).rank(said)]

    def _relevance(self, routes: Sequence[Route]) -> Relevance:
        seen = self._changes()
        if self._ranking is None or self._ranking[0] != seen:
            self._ranking = (seen, Relevance([_about(route) for route in routes]))
        return self._ranking[1]

    def _changes(self) -> tuple[int, ...]:
        return tuple([route.changes for route in self.routes_by_id.values()])

    async def prepare(self) -> None:
        """Load what ranks routes, which the first turn does otherwise: up to half a second, in a thread. With a handful
        of routes there is nothing to load."""
        routes = tuple(self.routes_by_id.values())
        if len(routes) > self.limits.in_play:
            relevance = self._relevance(routes)
            if not relevance.is_ready:
                await asyncio.to_thread(relevance.prepare)

    def offered_routes(self) -> Sequence[Route]:
        """Routes to mention where none is active."""
        return tuple(self.routes_by_id.values())[: self.limits.in_play]

    def guidelines_at(self, route: Route | None, state: State | None) -> list[Guideline]:
        """The guidelines of the agent, of the route and of the state."""
        found = [*self.guidelines]
        if route is not None:
            found += route.guidelines
        if state is not None:
            found += state.guidelines
        return found

    def tools_at(self, route: Route | None, matches: Sequence[GuidelineMatch], more: Sequence[Any]) -> tuple[Tool, ...]:
        """What the model may call: its own tools, those of capabilities, of guidelines that hold, and of domains that
        the route may use."""
        found = [
            *self.tools,
            *(tool for each in self.capabilities for tool in each.tools),
            *(tool for match in matches for tool in match.guideline.tools),
            *self.domains.tools(None if route is None else route.domains),
            *map(as_tool, more),
        ]
        return tuple({tool.name: tool for tool in found}.values())

    def every_tool(self, more: Sequence[Any]) -> tuple[Tool, ...]:
        """All tools that the model may ever have called: for a reply that is taken up again."""
        matches = [GuidelineMatch(guideline) for guideline in self._all_guidelines()]
        return self.tools_at(None, matches, more)

    def restored(self, session: SessionState) -> SessionState:
        """The session with its values typed again, if it comes from a database."""
        current = session.current_route
        last = session.route_history[-1] if session.route_history else None
        id = current.id if current is not None else last.route_id if last is not None and last.completed else None
        route = None if id is None else self.routes_by_id.get(id)
        extracted = session.extracted if route is None else route.gathering.restore(session.extracted)
        left = {
            id: replace(kept, extracted=self.routes_by_id[id].gathering.restore(kept.extracted))
            if id in self.routes_by_id
            else kept
            for id, kept in session.left.items()
        }
        return replace(session, extracted=extracted, left=left)

    def _as_options(self, given: ChatOptions | Mapping[str, Any] | None) -> ChatOptions:
        more: dict[str, Any] = {"provider": None, "tools": None, "tool_handler": None, "max_cycles": None}
        options = resolve_options(given, model=None, default_model=UNSET, **more)
        for name in ("output_type", "tools", "system", "skills", "skill_resolver"):
            if getattr(options, name) is not None:
                raise ConfigurationError(f"options of an agent take no {name}: it is the agent's own business.")
        return replace(options, skills=self.skills) if self.skills else options


def _about(route: Route) -> str:
    return ". ".join(filter(None, (route.title, route.description, *route.conditions, " ".join(route.gatherable))))
