"""A route: a conversation with a goal, as a graph of states.

Its checks reject unreachable transitions and states, and cycles in which no state speaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypedDict, Unpack

from tellback.agent.definitions.canned_responses import parse_canned_responses
from tellback.agent.definitions.diagram import describe_route, route_to_mermaid
from tellback.agent.definitions.gather_schema import GatherSchema
from tellback.agent.definitions.guidelines import Guideline, GuidelineFields, coerce_value
from tellback.agent.definitions.state import (
    State,
    Transition,
    generate_route_id,
    generate_state_id,
    validate_fields,
)
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.sessions.session import SessionState, get_route_data
from tellback.errors import FlowError
from tellback.types.ids import slug


@dataclass(frozen=True, slots=True)
class RouteRef:
    """A reference to a route by its id.

    >>> Route("Book a flight", id="book").ref
    RouteRef(id='book')
    """

    id: str


class RouteFields(TypedDict, total=False):
    """The options of `agent.create_route` besides the title: see `Route`."""

    id: str | None
    description: str | None
    conditions: Sequence[str]
    guidelines: Sequence[Any]
    domains: Sequence[str] | None
    rules: Sequence[str]
    prohibitions: Sequence[str]
    gather_schema: Mapping[str, Any] | type | None
    initial_data: Mapping[str, Any] | None
    canned_responses: Sequence[Any]


class Route:
    """A conversation with a goal. `initial_state.transition_to(...)` adds its states.

    `conditions` describe in words when the route applies. `gather_schema`, a JSON schema or a pydantic model, declares
    the fields to learn from the user; `initial_data` sets some of them from the start. `domains` lists the domains
    whose tools may be used in it (None: all). The agent must follow `rules` and must never do what `prohibitions` list.

    >>> route = Route("Tell the weather", conditions=["the user asks about the weather"])
    >>> route.initial_state.transition_to(chat_state="Tell the weather where they are").route_id == route.id
    True
    """

    def __init__(
        self,
        title: str,
        id: str | None = None,
        description: str | None = None,
        conditions: Sequence[str] = (),
        guidelines: Sequence[Any] = (),
        domains: Sequence[str] | None = None,
        rules: Sequence[str] = (),
        prohibitions: Sequence[str] = (),
        gather_schema: Mapping[str, Any] | type | None = None,
        initial_data: Mapping[str, Any] | None = None,
        canned_responses: Sequence[Any] = (),
    ) -> None:
        if not isinstance(title, str) or not title.strip():
            raise FlowError("a route", f"title must be a non-empty string, got {title!r:.80}.")
        self._title = title
        self.id = generate_route_id(title) if id is None else _validate_id(id, self.place)
        self.description = description
        self.conditions = _validate_texts(conditions, self.place, "conditions")
        self.rules = _validate_texts(rules, self.place, "rules")
        self.prohibitions = _validate_texts(prohibitions, self.place, "prohibitions")
        self.domains = None if domains is None else _validate_texts(domains, self.place, "domains")
        self.schema = GatherSchema.from_definition(gather_schema, self.place)
        self.gather_schema = gather_schema
        self.canned_responses = parse_canned_responses(canned_responses, self.place)
        self.guidelines: list[Guideline] = []
        self.revision = 0
        """The number of changes; a value that is cached for a route is valid for one revision."""
        for guideline in guidelines:
            self.create_guideline(guideline)
        self.initial_data = self._validate_initial_data(initial_data or {})
        self.key = slug(title)
        """The route's name in prompts; the agent makes it unique among routes with the same title."""
        self.gatherable: tuple[str, ...] = ()
        """The fields that the route's states ask the user for."""
        self._states: dict[str, State] = {}
        self.initial_state = State(self, generate_state_id(self.id, "start"), kind="start")
        self._states[self.initial_state.id] = self.initial_state

    @property
    def title(self) -> str:
        """The route's title, which does not change: its id and its name in prompts are made from it."""
        return self._title

    @title.setter
    def title(self, value: object) -> NoReturn:
        raise AttributeError(
            f"the title of {self.place} cannot be changed: create a Route with the title {value!r:.80}."
        )

    @property
    def place(self) -> str:
        """The route's name in error messages."""
        return f"route {self.title!r}"

    @property
    def ref(self) -> RouteRef:
        """A reference to this route."""
        return RouteRef(self.id)

    @property
    def states(self) -> tuple[State, ...]:
        """All states of the route, the initial one first."""
        return tuple(self._states.values())

    @property
    def has_actions(self) -> bool:
        """Whether a state of the route is an action."""
        return any(state.is_action for state in self._states.values())

    def state(self, id: str) -> State | None:
        """Return the state with this id, or None."""
        return self._states.get(id)

    def create_guideline(
        self, guideline: Guideline | GuidelineFields | None = None, **fields: Unpack[GuidelineFields]
    ) -> Route:
        """Add a guideline that applies in this route only.

        >>> route = Route("Book a flight")
        >>> route = route.create_guideline(action="Offer to call back.", condition="the user is in a hurry")
        >>> [guideline.action for guideline in route.guidelines]
        ['Offer to call back.']
        """
        self.guidelines.append(coerce_value(Guideline, guideline, fields))
        self.revision += 1
        return self

    def data(self, session: SessionState) -> Any:
        """Return the gathered data: an instance of the model, or a dict if a required field is missing or
        `gather_schema` is a JSON schema.

        >>> from tellback.agent import create_session
        >>> Route("Book a flight").data(create_session())
        {}
        """
        return self.schema.typed(get_route_data(session, self.id))

    def describe(self) -> str:
        """Describe the route in words: its states, the fields they gather, and their transitions.

        >>> route = Route("Book a flight", id="book")
        >>> offer = route.initial_state.transition_to(chat_state="Offer flights")
        >>> print(route.describe())
        Route: Book a flight (book)
        States:
          - start (state_start_41002f21)
              → Offer flights
          - Offer flights (state_offer_flights_03debbdc)
        """
        return describe_route(self)

    def to_mermaid(self, current_state: str | None = None) -> str:
        """Return the route as a Mermaid diagram, with the current state highlighted if its id is passed.

        >>> route = Route("Book a flight", id="book")
        >>> offer = route.initial_state.transition_to(chat_state="Offer flights")
        >>> print(route.to_mermaid())
        flowchart TD
          s0((start))
          s1["Offer flights"]
          s0 --> s1
        """
        return route_to_mermaid(self, current_state)

    def check(self) -> None:
        """Raise `FlowError` if the route can never work as it is defined."""
        validate_route(self)

    def _validate_initial_data(self, data: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(data, Mapping):
            raise FlowError(self.place, f"initial_data must be a mapping of field names to values, got {data!r:.80}.")
        validate_fields([*data], self.schema.fields, self.place, "initial_data")
        known = {}
        for name, value in data.items():
            try:
                known[name] = self.schema.check(name, value)
            except InvalidValue as problem:
                raise FlowError(self.place, f"initial_data, field {name}: {problem}") from problem
        return known

    def _add_state(self, state: State) -> None:
        self._states[state.id] = state
        self._mark_changed()

    def _unique_state_id(self, requested: str | None, description: str | None, place: str) -> str:
        if requested is not None:
            if _validate_id(requested, place) in self._states or requested == "END_ROUTE":
                raise FlowError(place, f"the id {requested!r} is already used in this route: choose another.")
            return requested
        id, index = generate_state_id(self.id, description), 0
        while id in self._states:
            index += 1
            id = generate_state_id(self.id, description, index)
        return id

    def _remove_state(self, state: State) -> None:
        del self._states[state.id]
        self._mark_changed()

    def _validate_transition(self, transition: Transition) -> None:
        self._mark_changed()
        validate_transition(self, transition)

    def _mark_changed(self) -> None:
        self.revision += 1
        self.gatherable = tuple(dict.fromkeys(name for state in self._states.values() for name in state.gather))

    def __repr__(self) -> str:
        return f"Route({self.title!r}, id={self.id!r})"


def _validate_id(value: Any, place: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise FlowError(place, f"id must be a non-empty string, got {value!r:.80}.")
    return value


def _validate_texts(value: Any, place: str, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(e, str) and e for e in value):
        raise FlowError(place, f"{name} must be a list of strings, got {value!r:.80}: write {name}=[...].")
    return tuple(value)


def validate_route(route: Route) -> None:
    """Raise `FlowError` if the route can never work as it is defined."""
    for state in route.states:
        for transition in state.transitions:
            transition.resolve_target()
    reachable = set(route.initial_state.find_reachable())
    for state in route.states:
        if state not in reachable:
            raise FlowError(state.place, "it is unreachable: no transition leads to it.")
    for state in route.states:
        _validate_no_silent_cycle(state)


def validate_transition(route: Route, transition: Transition) -> None:
    """Reject a new transition that is never used, or that closes a cycle in which no state speaks."""
    source = transition.source
    before = [
        other for other in source.transitions if other is not transition and other.on_error == transition.on_error
    ]
    always = next((other for other in before if _is_always_taken(other)), None)
    if always is not None and transition.condition is None:
        raise FlowError(
            source.place,
            f"the transition to {transition.target_title!r} is unreachable: the transition to"
            f" {always.target_title!r} comes first and has no condition. Give one of them a condition.",
        )
    same = next(
        (
            other
            for other in before
            if isinstance(transition.condition, str) and other.condition == transition.condition
        ),
        None,
    )
    if same is not None and not _target_requires_data(same):
        raise FlowError(
            source.place,
            f"two transitions have the condition {transition.condition!r}: the one to {transition.target_title!r} is"
            " unreachable.",
        )
    _validate_no_silent_cycle(source)


def _target_requires_data(transition: Transition) -> bool:
    return isinstance(transition.target, State) and bool(transition.target.required_data)


def _is_always_taken(transition: Transition) -> bool:
    """Whether no later transition without a condition can be taken: the target is always entered, and never skipped."""
    target = transition.target
    if transition.condition is not None or _target_requires_data(transition):
        return False
    return not isinstance(target, State) or not (target.skip_if is not None or target.gather)


def _validate_no_silent_cycle(state: State) -> None:
    """Reject a cycle in which every state may be skipped: the walk would never stop and no state would speak.

    Only certain cases are rejected: a condition may end the cycle, and a tool may change the data.
    """
    if not _can_be_skipped(state):
        return
    path: list[tuple[State, list[State]]] = [(state, _unconditional_targets(state))]
    seen = {state.id}
    while path:
        _, successors = path[-1]
        if not successors:
            path.pop()
            continue
        found = successors.pop(0)
        if found is state:
            names = " → ".join(repr(each.title) for each, _ in path)
            raise FlowError(
                state.place,
                f"{names} leads back to {state.title!r} in a cycle of states that may all be skipped: no state would"
                " speak. Add a chat_state without gather and skip_if, or a condition on one of the transitions.",
            )
        if found.id not in seen and _can_be_skipped(found):
            seen.add(found.id)
            path.append((found, _unconditional_targets(found)))


def _unconditional_targets(state: State) -> list[State]:
    targets = [
        transition.find_target()
        for transition in state.transitions
        if transition.condition is None and not transition.on_error
    ]
    return [target for target in targets if isinstance(target, State)]


def _can_be_skipped(state: State) -> bool:
    """Whether the walk can pass the state without a message or a tool call."""
    return state.kind == "start" or (state.kind == "chat" and (state.skip_if is not None or bool(state.gather)))
