"""`Agent`: a goal-directed assistant that follows routes, gathers data and uses tools.

Arguments are validated when the agent is created, so that errors are raised before the first conversation."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from typing import Any, NoReturn, Unpack
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tellback import validation
from tellback.agent.definitions.canned_responses import CannedResponse, fill_canned_responses, parse_canned_responses
from tellback.agent.definitions.diagram import agent_to_mermaid
from tellback.agent.definitions.guidelines import (
    Capability,
    CapabilityFields,
    CompositionMode,
    Guideline,
    GuidelineFields,
    GuidelineMatch,
    Term,
    TermFields,
    coerce_value,
)
from tellback.agent.definitions.route import Route, RouteFields
from tellback.agent.definitions.state import State
from tellback.agent.definitions.tools import DomainRegistry
from tellback.agent.flow.route_choice import Thresholds
from tellback.agent.prompts.relevance import TextRanker
from tellback.agent.prompts.understand import Limits
from tellback.agent.response import AfterHook, BeforeHook, Response, StreamChunk
from tellback.agent.runtime.responder import UNSET_MODEL, RespondArguments, Responder
from tellback.agent.runtime.turn import MemoryOptions, MemorySource
from tellback.agent.sessions.persistence import Persistence, SessionStore
from tellback.agent.sessions.session import PausedRoute, SessionState
from tellback.chat import ChatOptions, Model
from tellback.chat.dispatch import as_reply
from tellback.chat.model import Messages, ModelBase, ToolEntry
from tellback.chat.options import ChatOptionsLike
from tellback.errors import ConfigurationError, FlowError, InvalidArgumentError
from tellback.tools import Tool, as_tool
from tellback.turns.request import resolve_options
from tellback.types import ChatReply, ReplyDelta, reply_deltas
from tellback.types.ids import slug, utc_now


class CompletingModel(ModelBase):
    """A model object that lacks a name or `stream`: its class's name is the model's name, and it streams whole replies.

    >>> from tellback.types import user_message
    >>> class Parrot:
    ...     async def complete(self, messages, system=None, tools=None, **options):
    ...         return ChatReply(f"You said: {messages[-1].content}")
    >>> model = CompletingModel(Parrot())
    >>> model.model, asyncio.run(model.complete([user_message("Hi")])).text
    ('Parrot', 'You said: Hi')
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self.model = str(getattr(source, "model", None) or type(source).__name__)
        self.provider = str(getattr(source, "provider", None) or "custom")

    async def complete(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> ChatReply:
        found = self.source.complete(messages, system, tools, **options)
        return as_reply(await found if inspect.isawaitable(found) else found)

    async def stream(
        self, messages: Messages, system: str | None = None, tools: Sequence[ToolEntry] | None = None, **options: Any
    ) -> AsyncGenerator[ReplyDelta, None]:
        if not hasattr(self.source, "stream"):
            for delta in reply_deltas(await self.complete(messages, system, tools, **options)):
                yield delta
            return
        async with aclosing(self.source.stream(messages, system, tools, **options)) as deltas:
            async for delta in deltas:
                yield delta

    def __repr__(self) -> str:
        return repr(self.source)


def validate_model(name: str, value: Any) -> Any:
    """Return the value if it is a model name, a model or None; complete a model that has only `complete`."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, type) or not callable(getattr(value, "complete", None)):
        problem = "which is a class: pass an object" if isinstance(value, type) else "which has no method complete"
        raise InvalidArgumentError(f"{name} must be a name or a model object, got {value!r:.80}, {problem}.")
    if callable(getattr(value, "stream", None)) and isinstance(getattr(value, "model", None), str):
        return value
    try:
        inspect.signature(value.complete).bind((), None, (), output_schema=None)
    except TypeError as error:
        raise InvalidArgumentError(
            f"{name} cannot be called, its method complete has other parameters ({error}): write"
            " async def complete(self, messages, system=None, tools=None, **options) -> ChatReply."
        ) from error
    except ValueError:  # its signature cannot be read
        pass
    return CompletingModel(value)


def resolve_session_store(value: Any) -> Any:
    """Return a session store or None; build a `Persistence` from an adapter or a mapping of its arguments."""
    if isinstance(value, Mapping) or hasattr(value, "session_repository"):
        return validation.build_instance(
            "persistence", Persistence, value if isinstance(value, Mapping) else {"adapter": value}
        )
    missing = [name for name in ("load", "save", "history") if not callable(getattr(value, name, None))]
    if value is not None and missing:
        raise InvalidArgumentError(
            f"persistence must be a session store such as Persistence(InMemoryAdapter()), got {value!r:.80}, which"
            f" lacks {', '.join(missing)}."
        )
    return value


def parse_composition_mode(value: Any) -> CompositionMode:
    """Return the composition mode with this value."""
    try:
        return CompositionMode(value)
    except ValueError:
        known = ", ".join(mode.value for mode in CompositionMode)
        raise InvalidArgumentError(f"composition_mode must be one of {known}, got {value!r:.80}.") from None


class Agent:
    """An assistant that follows routes, gathers data, uses tools, and can have a memory.

    - `model`, `options` (a `ChatOptions` or a mapping of its fields): the model and its settings. A model is a name or
      an object with the method `complete` of `Model`. `understand_model` may be a smaller one that interprets messages.
    - `context`: a value, or a function that returns it for a session; tools and templates use it, and the model sees
      its plain values whose names do not begin with `_`.
    - `routes`, `terms`, `guidelines`, `capabilities`, `domains`, `tools`, `skills`, `rules`, `prohibitions`: its
      knowledge and permissions; `create_route` and similar methods add more.
    - `composition_mode` and `canned_responses`: how freely it phrases its answers.
    - `memory`: a user's handle (`tb.user("maya")`), a function that returns one for a session, or a `Tellback`. With a
      `Tellback`, each session names its user (`create_session(metadata={"user_id": "maya"})`). Conversations are then
      stored and remembered, as configured by `memory_options`.
    - `persistence`: stores sessions between turns, such as `Persistence(SqliteAdapter("agent.db"))`; without it, pass
      `response.session` to the next call yourself.
    - `time_zone`: the users' time zone, such as "Europe/Lisbon" (default: that of `clock`, which is UTC). It decides
      which day "today" is; a session's own (`create_session(metadata={"time_zone": ...})`) takes precedence.
    - `before_response`, `after_response`: functions that are called around each response.

    >>> import asyncio
    >>> from tellback.testing import ScriptedModel, says
    >>> agent = Agent("Wanda", goal="Book flights", model=ScriptedModel([says("Hello! Where to?")]))
    >>> asyncio.run(agent.respond("Hi")).message
    'Hello! Where to?'
    """

    def __init__(
        self,
        name: str,
        description: str | None = None,
        goal: str | None = None,
        model: str | Model | None = None,
        context: Any = None,
        persistence: SessionStore | None = None,
        routes: Sequence[Route] = (),
        terms: Sequence[Any] = (),
        guidelines: Sequence[Any] = (),
        capabilities: Sequence[Any] = (),
        domains: Mapping[str, Any] | None = None,
        tools: Sequence[Any] = (),
        skills: Sequence[Any] = (),
        memory: MemorySource = None,
        composition_mode: CompositionMode | str = CompositionMode.FLUID,
        canned_responses: Sequence[Any] = (),
        rules: Sequence[str] = (),
        prohibitions: Sequence[str] = (),
        *,
        options: ChatOptionsLike | None = None,
        understand_model: str | Model | None = None,
        memory_options: MemoryOptions | Mapping[str, Any] | None = None,
        before_response: BeforeHook | None = None,
        after_response: AfterHook | None = None,
        thresholds: Thresholds | Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        clock: Callable[[], datetime] = utc_now,
        time_zone: str | None = None,
    ) -> None:
        self._name = validation.validate_text("an agent's name", name)
        self.place = f"agent {name!r}"
        self.description = None if description is None else validation.validate_text("description", description)
        self.goal = None if goal is None else validation.validate_text("goal", goal)
        self.model = model
        self.understand_model = understand_model
        self.context = context
        self.persistence: SessionStore | None = persistence
        self.memory = memory
        self.memory_options = coerce_value(MemoryOptions, memory_options or {})
        self.composition_mode: CompositionMode = composition_mode  # type: ignore[assignment]
        self.canned_responses: tuple[CannedResponse, ...] = canned_responses  # type: ignore[assignment]
        self.rules = validation.validate_texts("rules", rules)
        self.prohibitions = validation.validate_texts("prohibitions", prohibitions)
        self.before_response: BeforeHook | None = before_response
        self.after_response: AfterHook | None = after_response
        self.thresholds: Thresholds = thresholds  # type: ignore[assignment]
        self.limits: Limits = limits  # type: ignore[assignment]
        self.clock: Callable[[], datetime] = clock
        self.time_zone = time_zone
        self.routes_by_id: dict[str, Route] = {}
        self.route_keys: dict[str, str] = {}
        self._ranker_cache: tuple[tuple[int, ...], TextRanker] | None = None
        self._last_validated: tuple[Any, ...] | None = None
        self.terms: list[Term] = []
        self.guidelines: list[Guideline] = []
        self.capabilities: list[Capability] = []
        self.domains = DomainRegistry()
        self.skills = validation.validate_list("skills", skills)
        self.tools = tuple(map(as_tool, validation.validate_list("tools", tools)))
        self.options = self._resolve_chat_options(options)
        for domain, members in validation.validate_mapping("domains", domains).items():
            self.add_domain(domain, members)
        for term in validation.validate_list("terms", terms):
            self.create_term(term)
        for guideline in validation.validate_list("guidelines", guidelines):
            self.create_guideline(guideline)
        for capability in validation.validate_list("capabilities", capabilities):
            self.create_capability(capability)
        for route in validation.validate_list("routes", routes):
            self.add_route(route)
        self._responder = Responder(self)
        if routes:
            self._validate_flow()

    def __setattr__(self, name: str, value: Any) -> None:
        # Attributes set later are validated like constructor arguments.
        validate = _VALIDATORS.get(name)
        super().__setattr__(name, value if validate is None else validate(value, self))

    @property
    def name(self) -> str:
        """The agent's name, which does not change: stored sessions are found by it."""
        return self._name

    @name.setter
    def name(self, value: object) -> NoReturn:
        raise AttributeError(
            f"the name of {self.place} cannot be changed: create an Agent with the name {value!r:.80}."
        )

    @property
    def routes(self) -> tuple[Route, ...]:
        """The agent's routes."""
        return tuple(self.routes_by_id.values())

    @property
    def domain(self) -> Any:
        """The agent's domains as attributes: `agent.domain.payment.refund(...)`."""
        return self.domains.namespace

    def create_route(self, title: str, **fields: Unpack[RouteFields]) -> Route:
        """Add a route: see `Route` for its arguments.

        >>> agent = Agent("Wanda")
        >>> agent.create_route(title="Book a flight", conditions=["the user wants to fly"]).title
        'Book a flight'
        """
        try:
            route = Route(title, **fields)
        except TypeError as error:
            raise InvalidArgumentError(f"invalid arguments for a route: {error}.") from error
        return self.add_route(route)

    def add_route(self, route: Route) -> Route:
        """Add an existing `Route`."""
        if not isinstance(route, Route):
            raise InvalidArgumentError(f"route must be a Route, got {route!r:.80}: use agent.create_route(title=...).")
        existing = self.routes_by_id.get(route.id)
        if existing is not None:
            raise FlowError(
                route.place,
                f"the id {route.id!r} is already used by {existing.title!r}: give one of them another id or title.",
            )
        self._register_route(route)
        return route

    def create_term(self, term: Term | TermFields | None = None, **fields: Unpack[TermFields]) -> Agent:
        """Explain a domain term to the model."""
        self.terms.append(coerce_value(Term, term, fields))
        return self

    def create_guideline(
        self, guideline: Guideline | GuidelineFields | None = None, **fields: Unpack[GuidelineFields]
    ) -> Agent:
        """Add an instruction, and when to follow it."""
        self.guidelines.append(coerce_value(Guideline, guideline, fields))
        return self

    def create_capability(
        self, capability: Capability | CapabilityFields | None = None, **fields: Unpack[CapabilityFields]
    ) -> Agent:
        """Describe something the agent can do."""
        self.capabilities.append(coerce_value(Capability, capability, fields))
        return self

    def add_domain(self, name: str, domain: Any) -> None:
        """Add tools, functions and other values under a name; routes can be restricted to named domains.

        A route may name a domain before it is added; it must exist at the first turn.

        >>> agent = Agent("Wanda")
        >>> route = agent.create_route(title="Refund", domains=["payment"])
        >>> agent.add_domain("payment", {"currency": "EUR", "refund": lambda amount: f"{amount} paid back"})
        >>> agent.domain.payment.currency, agent.domain.payment.refund(5)
        ('EUR', '5 paid back')
        """
        self.domains.register(name, domain)

    def domains_for_route(self, route_id: str) -> dict[str, dict[str, Any]]:
        """Return the domains that a route may use: those it lists, or all."""
        route = self.routes_by_id.get(route_id)
        if route is None:
            raise InvalidArgumentError(
                f"{self.place} has no route {route_id!r}. Known: {', '.join(self.routes_by_id) or 'none'}."
            )
        return self.domains.filtered(route.domains)

    def domains_for_route_title(self, title: str) -> dict[str, dict[str, Any]]:
        """Return the domains that the route with this title may use."""
        found = next((route for route in self.routes if route.title == title), None)
        if found is None:
            titles = ", ".join(repr(route.title) for route in self.routes)
            raise InvalidArgumentError(f"{self.place} has no route titled {title!r}. Known: {titles or 'none'}.")
        return self.domains_for_route(found.id)

    async def respond(
        self,
        history: Any = None,
        session: SessionState | str | None = None,
        context_override: Mapping[str, Any] | None = None,
        **options: Unpack[RespondArguments],
    ) -> Response:
        """Answer the newest message of the history.

        `history` is a string, or events or messages in order; without one the agent speaks first. `session` is the
        last response's session, or its id if the agent has `persistence`.

        By keyword: `approvals` decides calls of `response.pending`, instead of a history. `user` is the handle or the
        id of the user whose memory to use. Tools read `extras` and `sender` from `tellback.request`. With an
        `idempotency_key`, a repeated message is not answered twice; this requires `persistence` or a memory. `wait` is
        how many seconds to wait for another turn of the session. `metadata` and `trace_id` are stored with the message
        of an agent with a memory.

        Cancelling the task cancels the turn; the session that was passed stays unchanged.
        """
        return await self._responder.respond(history, session, context_override, options)

    def respond_stream(
        self,
        history: Any = None,
        session: SessionState | str | None = None,
        context_override: Mapping[str, Any] | None = None,
        **options: Unpack[RespondArguments],
    ) -> AsyncGenerator[StreamChunk, None]:
        """Stream `respond`: text chunks, and a last chunk that is `done`, with route, state, tool calls and session.

        Closing the iterator cancels the turn.
        """
        return self._responder.stream(history, session, context_override, options)

    def with_model(self, model: str | Model) -> Agent:
        """Return a copy of the agent with another model for all calls. This agent stays unchanged.

        >>> Agent("Wanda", model="gpt-5").with_model("claude-sonnet-5").model
        'claude-sonnet-5'
        """
        clone = copy.copy(self)
        for name in ("routes_by_id", "route_keys", "terms", "guidelines", "capabilities", "domains"):
            setattr(clone, name, copy.copy(getattr(self, name)))
        clone.model = model
        clone.understand_model = None
        clone.options = replace(self.options, chat_fn=None, chat_stream_fn=None)
        clone._responder = Responder(clone)
        return clone

    def to_mermaid(self, session: SessionState | None = None) -> str:
        """Return all routes as a Mermaid diagram, with the session's state highlighted."""
        return agent_to_mermaid(self, session)

    def _register_route(self, route: Route) -> None:
        self.routes_by_id[route.id] = route
        # The key is the name of the route in prompts: short and unique.
        key = base = slug(route.title) or "route"
        number = 1
        while key in self.route_keys.values():
            number += 1
            key = f"{base}_{number}"
        self.route_keys[route.id] = route.key = key

    def check(self) -> None:
        """Raise `FlowError` if a route is invalid or names an unknown domain, tools conflict, or strict mode lacks a
        fallback response. The first turn calls it."""
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
        self._validate_flow()
        for route in self.routes_by_id.values():
            self._validate_domains(route)
        self._last_validated = snapshot

    def _validate_flow(self) -> None:
        for route in self.routes_by_id.values():
            route.check()
        if self.composition_mode is CompositionMode.CANNED_STRICT:
            self._validate_strict_mode()
        self._validate_tools()

    def _validate_domains(self, route: Route) -> None:
        unknown = [name for name in route.domains or () if not self.domains.has(name)]
        if unknown:
            raise FlowError(
                route.place,
                f"the domain {unknown[0]!r} is unknown. Known: {', '.join(self.domains.names) or 'none'}. Add it with"
                " agent.add_domain(...) before the first turn.",
            )

    def _validate_strict_mode(self) -> None:
        unconditional = [each for each in self.canned_responses if each.condition is None]
        if fill_canned_responses(unconditional, {}, None)[0]:
            return
        raise FlowError(
            self.place,
            "strict_canned mode needs a canned response of the agent without a condition and without values, for when"
            " no other one applies: Agent(canned_responses=[...]).",
        )

    def _validate_tools(self) -> None:
        known: dict[str, Tool] = {}
        for tool in self._list_tools(None, self._all_guidelines()):
            if known.setdefault(tool.name, tool).fn != tool.fn:
                raise FlowError(self.place, f"two tools have the name {tool.name!r}: rename one.")
            if tool.requires_approval and self.memory is None:
                raise FlowError(
                    self.place,
                    f"the model may call {tool.name}, which needs approval, but only a memory can store a waiting call:"
                    " pass memory=..., or run the tool in a state (tool_state=...).",
                )

    def _all_guidelines(self) -> list[Guideline]:
        guidelines = [*self.guidelines]
        for route in self.routes_by_id.values():
            guidelines += route.guidelines
            for state in route.states:
                guidelines += state.guidelines
        return guidelines

    def local_time(self, session: SessionState) -> datetime:
        """Return the present time in the time zone of the session's user."""
        zone = session.metadata.get("time_zone", self.time_zone)
        return self.clock() if zone is None else self.clock().astimezone(find_time_zone(zone))

    def rank_routes(self, message: str) -> Sequence[Route]:
        """Return the routes by relevance to the message, or in the agent's order if all of them fit into the prompt."""
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
        """Load the route ranker in a thread, which takes up to half a second. Otherwise the first turn loads it.

        An agent with only a few routes needs no ranker.
        """
        routes = tuple(self.routes_by_id.values())
        if len(routes) > self.limits.in_play:
            ranker = self._route_ranker(routes)
            if not ranker.is_ready:
                await asyncio.to_thread(ranker.prepare)

    def guidelines_at(self, route: Route | None, state: State | None) -> list[Guideline]:
        """Return the guidelines of the agent, the route and the state."""
        return [each for level in (self, route, state) if level is not None for each in level.guidelines]

    def tools_at(
        self, route: Route | None, matches: Sequence[GuidelineMatch], extra_tools: Sequence[Any]
    ) -> tuple[Tool, ...]:
        """Return the tools the model may call: its own, and those of capabilities, of matching guidelines and of the
        route's domains."""
        tools = [*self._list_tools(route, [match.guideline for match in matches]), *map(as_tool, extra_tools)]
        return tuple({tool.name: tool for tool in tools}.values())

    def _list_tools(self, route: Route | None, guidelines: Sequence[Guideline]) -> list[Tool]:
        return [
            *self.tools,
            *(tool for each in self.capabilities for tool in each.tools),
            *(tool for each in guidelines for tool in each.tools),
            *self.domains.tools(None if route is None else route.domains),
        ]

    def all_tools(self, extra_tools: Sequence[Any]) -> tuple[Tool, ...]:
        """Return all tools that the model may have called, for a reply that is resumed."""
        matches = [GuidelineMatch(guideline) for guideline in self._all_guidelines()]
        return self.tools_at(None, matches, extra_tools)

    def restore_session(self, session: SessionState) -> SessionState:
        """Restore the types of a session's values, which a database stores as JSON."""
        current = session.current_route
        last = session.route_history[-1] if session.route_history else None
        id = current.id if current is not None else last.route_id if last is not None and last.completed else None
        route = None if id is None else self.routes_by_id.get(id)
        extracted = session.extracted if route is None else route.schema.restore(session.extracted)
        if not session.paused_routes and not session.completed_routes:
            return replace(session, extracted=extracted) if extracted else session
        return replace(
            session,
            extracted=extracted,
            paused_routes=self._restore_routes(session.paused_routes),
            completed_routes=self._restore_routes(session.completed_routes),
        )

    def _restore_routes(self, routes: Mapping[str, PausedRoute]) -> dict[str, PausedRoute]:
        return {
            id: replace(each, extracted=self.routes_by_id[id].schema.restore(each.extracted))
            if id in self.routes_by_id
            else each
            for id, each in routes.items()
        }

    def _resolve_chat_options(self, source: ChatOptionsLike | None) -> ChatOptions:
        options = resolve_options(source, default_model=UNSET_MODEL)
        if not isinstance(options.model, str):
            options = replace(options, model=validate_model("options.model", options.model))
        for name in ("output_type", "tools", "system", "skills", "skill_resolver"):
            if getattr(options, name) is not None:
                raise ConfigurationError(f"an agent's options must not contain {name}: the agent sets it.")
        return replace(options, skills=self.skills) if self.skills else options

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, routes={len(self.routes_by_id)})"


def find_time_zone(name: Any) -> ZoneInfo:
    """Return the time zone with this name of the IANA database."""
    try:
        return ZoneInfo(name)
    except (TypeError, ValueError, OSError, ZoneInfoNotFoundError):
        raise InvalidArgumentError(
            f"time_zone must be a name such as 'Europe/Lisbon', got {name!r:.80}. If the name is right, this computer"
            " has no time zones: install the package tzdata."
        ) from None


def _route_text(route: Route) -> str:
    return ". ".join(filter(None, (route.title, route.description, *route.conditions, " ".join(route.gatherable))))


_VALIDATORS: dict[str, Callable[[Any, Agent], Any]] = {
    "model": lambda value, _: validate_model("model", value),
    "understand_model": lambda value, _: validate_model("understand_model", value),
    "persistence": lambda value, _: resolve_session_store(value),
    "composition_mode": lambda value, _: parse_composition_mode(value),
    "canned_responses": lambda value, agent: parse_canned_responses(value, agent.place),
    "before_response": lambda value, _: validation.validate_callable("before_response", value),
    "after_response": lambda value, _: validation.validate_callable("after_response", value),
    "thresholds": lambda value, _: validation.build_instance("thresholds", Thresholds, value),
    "limits": lambda value, _: validation.build_instance("limits", Limits, value),
    "clock": lambda value, _: validation.validate_callable("clock", value),
    "time_zone": lambda value, _: None if value is None else find_time_zone(value).key,
}
