"""`Agent`: holds goal-directed conversations along its routes."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack

from tellback.agent import arguments
from tellback.agent.canned import CannedResponse
from tellback.agent.choosing import Thresholds
from tellback.agent.domains import DomainRegistry
from tellback.agent.drawing import agent_to_mermaid
from tellback.agent.hooks import AfterHook, BeforeHook
from tellback.agent.memory import MemoryOptions, MemorySource
from tellback.agent.reply import Persona
from tellback.agent.responding import RespondArguments, Responder
from tellback.agent.response import Response, StreamChunk
from tellback.agent.route import Route, RouteFields
from tellback.agent.session import SessionState
from tellback.agent.sessions import SessionStore
from tellback.agent.setting import AgentBase
from tellback.agent.state import validate_canned_responses
from tellback.agent.understand import Limits
from tellback.agent.values import Capability, CompositionMode, Guideline, Term, coerce_value
from tellback.chat import ChatOptions, Model
from tellback.errors import FlowError, InvalidArgumentError
from tellback.tools import as_tool
from tellback.types.times import utc_now


class Agent(AgentBase):
    """An assistant that follows routes, gathers data on the way, uses tools, and remembers if it has a memory.

    - `model`, `options` (a `ChatOptions` or a mapping of its fields): who answers, and how. `understand_model` may be
      another, smaller one for reading messages.
    - `context`: a value, or a function of the session that gives it; tools and templates see it, and of it the model
      sees plain values whose names do not begin with `_`.
    - `routes`, `terms`, `guidelines`, `capabilities`, `domains`, `tools`, `skills`, `rules`, `prohibitions`: what it
      knows and may do; more can be added by `create_route` and its like.
    - `composition_mode` and `canned_responses`: how freely it words its answers.
    - `memory`: a user's handle (`rc.user("maya")`), a function of the session that gives one, or a `Tellback` whose
      users the sessions name (`create_session(metadata={"user_id": "maya"})`). Conversations are then kept and
      remembered; `memory_options` says how.
    - `persistence`: where sessions are kept between turns, such as `Persistence(SqliteAdapter("agent.db"))`; without,
      pass `response.session` on yourself.
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
        options: ChatOptions | Mapping[str, Any] | None = None,
        understand_model: str | Model | None = None,
        memory_options: MemoryOptions | Mapping[str, Any] | None = None,
        before_response: BeforeHook | None = None,
        after_response: AfterHook | None = None,
        thresholds: Thresholds | Mapping[str, Any] | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__()
        self.name = arguments.validate_text("an agent's name", name)
        self.place = f"agent {name!r}"
        self.description = arguments.validate_optional_text("description", description)
        self.goal = arguments.validate_optional_text("goal", goal)
        self.model = model
        self.understand_model = understand_model
        self.context = context
        self.persistence: SessionStore | None = persistence
        self.memory = memory
        self.memory_options = coerce_value(MemoryOptions, memory_options or {})
        self.composition_mode: CompositionMode = composition_mode  # type: ignore[assignment]
        self.canned_responses: tuple[CannedResponse, ...] = canned_responses  # type: ignore[assignment]
        self.rules = arguments.validate_texts("rules", rules)
        self.prohibitions = arguments.validate_texts("prohibitions", prohibitions)
        self.before_response: BeforeHook | None = before_response
        self.after_response: AfterHook | None = after_response
        self.thresholds: Thresholds = thresholds  # type: ignore[assignment]
        self.limits: Limits = limits  # type: ignore[assignment]
        self.clock: Callable[[], datetime] = clock
        self.terms: list[Term] = []
        self.guidelines: list[Guideline] = []
        self.capabilities: list[Capability] = []
        self.domains = DomainRegistry()
        self.skills = tuple(arguments.validate_list("skills", skills))
        self.tools = tuple(map(as_tool, arguments.validate_list("tools", tools)))
        self.options = self._resolve_chat_options(options)
        for domain, members in arguments.validate_mapping("domains", domains).items():
            self.add_domain(domain, members)
        for term in arguments.validate_list("terms", terms):
            self.create_term(term)
        for guideline in arguments.validate_list("guidelines", guidelines):
            self.create_guideline(guideline)
        for capability in arguments.validate_list("capabilities", capabilities):
            self.create_capability(capability)
        for route in arguments.validate_list("routes", routes):
            self.add_route(route)
        self._responder = Responder(self)
        if routes:
            self.check()

    def __setattr__(self, name: str, value: Any) -> None:
        # What is set later is checked as what was given at first.
        validate = _VALIDATORS.get(name)
        super().__setattr__(name, value if validate is None else validate(value, self))

    @property
    def routes(self) -> tuple[Route, ...]:
        """Its routes."""
        return tuple(self.routes_by_id.values())

    @property
    def domain(self) -> Any:
        """Its domains by attribute: `agent.domain.payment.refund(...)`."""
        return self.domains.namespace

    @property
    def persona(self) -> Persona:
        """What of it goes into every prompt."""
        return Persona(
            self.name, self.description, self.goal, self.rules, self.prohibitions, self.terms, self.capabilities
        )

    def create_route(self, title: str, **fields: Unpack[RouteFields]) -> Route:
        """Add a route: see `Route` for what it takes.

        >>> agent = Agent("Wanda")
        >>> agent.create_route(title="Book a flight", conditions=["the user wants to fly"]).title
        'Book a flight'
        """
        try:
            route = Route(title, **fields)
        except TypeError as error:
            raise InvalidArgumentError(f"that makes no route: {error}.") from error
        return self.add_route(route)

    def add_route(self, route: Route) -> Route:
        """Add a route that was made before."""
        if not isinstance(route, Route):
            raise InvalidArgumentError(f"{route!r:.80} is no Route: use agent.create_route(title=...).")
        existing = self.routes_by_id.get(route.id)
        if existing is not None:
            raise FlowError(
                route.place,
                f"its id {route.id!r} is that of {existing.title!r} already: give one of them another id or title.",
            )
        for name in route.domains or ():
            if not self.domains.has(name):
                known_domains = ", ".join(self.domains.names) or "none"
                raise FlowError(
                    route.place,
                    f"the domain {name!r} is not known. Known: {known_domains}. Add it first: agent.add_domain(...).",
                )
        self._register_route(route)
        return route

    def create_term(self, term: Term | Mapping[str, Any] | None = None, **fields: Any) -> Agent:
        """Explain a word of the trade."""
        self.terms.append(coerce_value(Term, term, fields))
        return self

    def create_guideline(self, guideline: Guideline | Mapping[str, Any] | None = None, **fields: Any) -> Agent:
        """Say what to do, and when."""
        self.guidelines.append(coerce_value(Guideline, guideline, fields))
        return self

    def create_capability(self, capability: Capability | Mapping[str, Any] | None = None, **fields: Any) -> Agent:
        """Say what it can do."""
        self.capabilities.append(coerce_value(Capability, capability, fields))
        return self

    def add_domain(self, name: str, domain: Any) -> None:
        """Add tools and functions under a name that routes can be restricted to."""
        self.domains.register(name, domain)

    def domains_for_route(self, route_id: str) -> dict[str, dict[str, Any]]:
        """The domains that a route may use: those it names, or all."""
        route = self.routes_by_id.get(route_id)
        if route is None:
            raise InvalidArgumentError(
                f"{self.place} has no route {route_id!r}: it has {', '.join(self.routes_by_id)}."
            )
        return self.domains.filtered(route.domains)

    def domains_for_route_title(self, title: str) -> dict[str, dict[str, Any]]:
        """The same by the route's title."""
        found = next((route for route in self.routes if route.title == title), None)
        if found is None:
            titles = ", ".join(repr(route.title) for route in self.routes)
            raise InvalidArgumentError(f"{self.place} has no route called {title!r}: it has {titles or 'none'}.")
        return self.domains_for_route(found.id)

    async def respond(
        self,
        history: Any = None,
        session: SessionState | str | None = None,
        context_override: Mapping[str, Any] | None = None,
        **options: Unpack[RespondArguments],
    ) -> Response:
        """Answer the newest message of the history.

        `history` is a text, or events or messages in order; without one the agent speaks first. `session` is where the
        conversation stands, as the last response had it, or its id where the agent has `persistence`.

        By keyword: `approvals` decides calls of `response.pending`, in the place of a history. `user` is the handle or
        the id of the user whose memory is meant. `extras` and `sender` are what tools find in `tellback.request`.
        `metadata`, `idempotency_key`, `trace_id` and `wait` go with the stored message, where there is a memory.

        Cancelling the task cancels the turn; the session that was passed is still as it was.
        """
        return await self._responder.respond(history, session, context_override, options)

    def respond_stream(
        self,
        history: Any = None,
        session: SessionState | str | None = None,
        context_override: Mapping[str, Any] | None = None,
        **options: Unpack[RespondArguments],
    ) -> AsyncGenerator[StreamChunk, None]:
        """`respond` as chunks: text as it comes, and one last that is `done`, with route, state, tool calls, session.

        Closing the iterator cancels the turn.
        """
        return self._responder.stream(history, session, context_override, options)

    def with_model(self, model: str | Model) -> Agent:
        """The same agent, routes and all, with another model for everything. This one stays as it is.

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
        """All routes as a Mermaid diagram, with the session's state lit."""
        return agent_to_mermaid(self, session)

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, routes={len(self.routes_by_id)})"


_VALIDATORS: dict[str, Callable[[Any, Agent], Any]] = {
    "model": lambda given, _: arguments.validate_model("model", given),
    "understand_model": lambda given, _: arguments.validate_model("understand_model", given),
    "persistence": lambda given, _: arguments.resolve_session_store(given),
    "composition_mode": lambda given, _: arguments.parse_composition_mode(given),
    "canned_responses": lambda given, agent: validate_canned_responses(given, agent.place),
    "before_response": lambda given, _: arguments.validate_callable("before_response", given),
    "after_response": lambda given, _: arguments.validate_callable("after_response", given),
    "thresholds": lambda given, _: arguments.build_instance("thresholds", Thresholds, given),
    "limits": lambda given, _: arguments.build_instance("limits", Limits, given),
    "clock": lambda given, _: arguments.validate_callable("clock", given),
}
