"""States of a route and the transitions between them, with the stable ids of routes, states and tools."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

from tellback.agent.definitions.canned_responses import CannedResponse, parse_canned_responses
from tellback.agent.definitions.guidelines import Guideline, GuidelineFields, coerce_value
from tellback.errors import FlowError, InvalidArgumentError
from tellback.tools import Tool, as_tool
from tellback.types.ids import slug

if TYPE_CHECKING:
    from tellback.agent.definitions.route import Route


def generate_route_id(title: str) -> str:
    """Return the id of a route with this title.

    >>> generate_route_id("User Onboarding")
    'route_user_onboarding_8bef1939'
    """
    return _build_id("route", title, title)


def generate_state_id(route_id: str, description: str | None = None, index: int | None = None) -> str:
    """Return the id of a state of a route; `index` distinguishes states with the same description.

    >>> generate_state_id("route_123", "Ask for name").startswith("state_ask_for_name_")
    True
    """
    label, number = description or "", "" if index is None else str(index)
    _validate_texts(route_id, label)
    return _build_id("state", label, "\x1f".join((route_id, label, number)))


def generate_tool_id(name: str) -> str:
    """Return the id of a tool with this name.

    >>> generate_tool_id("get_user_data").startswith("tool_get_user_data_")
    True
    """
    return _build_id("tool", name, name)


def _build_id(kind: str, label: str, source: str) -> str:
    _validate_texts(label)
    digest = hashlib.sha256(f"{kind}\x1f{source}".encode(errors="surrogatepass")).hexdigest()[:8]
    return "_".join(filter(None, (kind, slug(label), digest)))


def _validate_texts(*values: object) -> None:
    for each in values:
        if not isinstance(each, str):
            raise InvalidArgumentError(f"an id can only be built from strings, got {each!r:.80}.")


Data = Mapping[str, Any]
DataPredicate = Callable[[Data], Any]
"""A function that answers a yes/no question about the gathered data."""


class _EndRoute:
    """The end of a route.

    >>> END_ROUTE
    END_ROUTE
    """

    __slots__ = ()
    id: Final = "END_ROUTE"
    title: Final = "END_ROUTE"

    def transition_to(self, *_: Any, **__: Any) -> State:
        """Raise `FlowError`: no state can follow the end."""
        raise FlowError("END_ROUTE", "no state can follow END_ROUTE.")

    def __repr__(self) -> str:
        return "END_ROUTE"

    def __reduce__(self) -> str:
        return "END_ROUTE"


END_ROUTE: Final = _EndRoute()
"""The end of a route: `state.transition_to(state=END_ROUTE)`."""

_REFUSED_OPTIONS = {"chat_state": ("arguments", "save_as", "repeat"), "tool_state": ("gather",)}
"""Options that a transition of this kind does not accept. A transition to an existing `state` accepts none."""


@dataclass(frozen=True, slots=True)
class StateRef:
    """A reference to a state by its ids: `transition_to(state=ref)` leads there.

    >>> from tellback.agent import Route
    >>> route = Route("Book a flight", id="book")
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to", id="ask")
    >>> ask.ref
    StateRef(id='ask', route_id='book')
    >>> offer = ask.transition_to(chat_state="Offer flights")
    >>> offer.transition_to(state=ask.ref, condition="the user wants another flight") is ask
    True
    """

    id: str
    route_id: str


@dataclass(frozen=True, slots=True, eq=False)
class Transition:
    """A transition from one state to another.

    The model judges a `condition` in words when it reads the user's message; a function is called with the gathered
    data. `target` is the id of a state if that state did not exist when the transition was added.

    >>> from tellback.agent import Route
    >>> start = Route("Help").initial_state
    >>> greet = start.transition_to(chat_state="Greet the user", condition="the user says hello")
    >>> [transition] = start.transitions
    >>> transition.condition, transition.target_title, transition.resolve_target() is greet
    ('the user says hello', 'Greet the user', True)
    """

    source: State
    target: State | _EndRoute | str
    condition: str | DataPredicate | None = None
    on_error: bool = False
    forgets: tuple[str, ...] = ()

    @property
    def target_title(self) -> str:
        """The title of the target."""
        target = self.find_target()
        return str(self.target) if target is None else target.title

    def find_target(self) -> State | _EndRoute | None:
        """Return the target, or None if that state does not exist yet."""
        return self.target if not isinstance(self.target, str) else self.source.route.state(self.target)

    def resolve_target(self) -> State | _EndRoute:
        """Return the target, or raise `FlowError` if that state does not exist."""
        target = self.find_target()
        if target is None:
            raise FlowError(
                self.source.place, f"a transition leads to the state {self.target!r}, which the route does not have."
            )
        return target


@dataclass(slots=True, eq=False, repr=False)
class State:
    """A step of a route: a message to send or a tool to run. The `transition_to` of an earlier state creates it.

    >>> from tellback.agent.definitions.route import Route
    >>> route = Route("Book a flight", gather_schema={"type": "object", "properties": {"to": {"type": "string"}}})
    >>> ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
    >>> ask.transition_to(state=END_ROUTE)
    END_ROUTE
    """

    route: Route
    id: str
    description: str | None = None
    _: KW_ONLY
    kind: Literal["start", "chat", "tool"] = "chat"
    tool: Tool | None = None
    gather: tuple[str, ...] = ()
    skip_if: DataPredicate | None = None
    required_data: tuple[str, ...] = ()
    arguments: Mapping[str, str] | Callable[[Data], Mapping[str, Any]] | None = None
    save_as: str | None = None
    repeat: bool = True
    canned_responses: tuple[CannedResponse, ...] = ()
    guidelines: list[Guideline] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not _is_predicate(self.skip_if):
            raise FlowError(self.place, f"skip_if must be a synchronous function, got {self.skip_if!r:.80}.")
        if self.save_as is not None:
            validate_fields([self.save_as], self.route.schema.fields, self.place, "save_as")
        if self.tool is not None:
            _validate_tool_arguments(self.arguments, self.tool, self.route.schema.fields, self.place)

    @property
    def route_id(self) -> str:
        """The id of the state's route."""
        return self.route.id

    @property
    def ref(self) -> StateRef:
        """A reference to this state."""
        return StateRef(self.id, self.route_id)

    @property
    def title(self) -> str:
        """The state's short name: its description, or the tool's name."""
        if self.kind == "start":
            return "start"
        return self.description or (self.tool.name if self.tool is not None else self.id)

    @property
    def place(self) -> str:
        """The state's name in error messages."""
        return f"route {self.route.title!r}, state {self.title!r}"

    def transition_to(
        self,
        *,
        chat_state: str | None = None,
        tool_state: Tool | Callable[..., Any] | None = None,
        state: State | StateRef | _EndRoute | str | None = None,
        condition: str | DataPredicate | None = None,
        gather: Sequence[str] = (),
        skip_if: DataPredicate | None = None,
        required_data: Sequence[str] = (),
        arguments: Mapping[str, str] | Callable[[Data], Mapping[str, Any]] | None = None,
        save_as: str | None = None,
        repeat: bool = True,
        on_error: bool = False,
        forgets: Sequence[str] = (),
        canned_responses: Sequence[Any] = (),
        guidelines: Sequence[Any] = (),
        id: str | None = None,
    ) -> State:
        """Add a transition and return its target, so that calls can be chained.

        Pass exactly one of: `chat_state`, which describes in words what to say or ask; `tool_state`, a tool to run;
        `state`, an existing state (the object, its `ref` or its id) or `END_ROUTE`.

        - `condition`: when to take the transition: words for the model to judge, or a function of the gathered data.
          Transitions with a condition are tried first, in order; then those without.
        - `gather`: fields to learn there. A state whose fields are all known is skipped.
        - `skip_if`: a function of the data that alone decides whether to skip the state.
        - `required_data`: fields without which the state is not entered.
        - `arguments` of a tool: fields by parameter name, or a function of the data; by default, fields of equal name.
        - `save_as`: the field that stores the tool's result. `on_error`: take this transition when the tool fails.
        - `forgets`: fields to clear when the transition is taken, such as the fields of an order when the user wants to
          place another one.
        - `repeat`: whether the tool runs again by itself when one of its arguments is corrected or added. With False,
          such as for a payment, it runs again after a success only if the user confirms it with the new arguments, or
          in a new pass: a loop, or a new visit of the completed route.

        >>> from tellback.agent import Route
        >>> def search_flights(to: str) -> list[str]:
        ...     return [f"TP1 to {to}"]
        >>> fields = {"to": {"type": "string"}, "flights": {"type": "array", "items": {"type": "string"}}}
        >>> route = Route("Book a flight", gather_schema={"type": "object", "properties": fields})
        >>> ask = route.initial_state.transition_to(chat_state="Ask where to", gather=["to"])
        >>> search = ask.transition_to(tool_state=search_flights, save_as="flights")
        >>> search.transition_to(chat_state="Offer the flights found").transition_to(state=END_ROUTE)
        END_ROUTE
        """
        targets = {"chat_state": chat_state, "tool_state": tool_state, "state": state}
        kinds = [name for name, value in targets.items() if value is not None]
        if len(kinds) != 1:
            found = " and ".join(kinds) or "nothing"
            raise FlowError(self.place, f"pass exactly one of chat_state, tool_state and state, got {found}.")
        if not isinstance(condition, str) and not _is_predicate(condition):
            raise FlowError(self.place, f"condition must be a string or a synchronous function, got {condition!r:.80}.")
        if isinstance(condition, str) and not condition.strip():
            raise FlowError(self.place, "condition must not be empty: leave it out, or describe it.")
        if on_error and self.kind != "tool":
            raise FlowError(self.place, "on_error is only valid for transitions from a tool_state.")
        if isinstance(guidelines, str | Mapping) or not isinstance(guidelines, Sequence):
            raise FlowError(self.place, f"guidelines must be a list, got {guidelines!r:.80}: write guidelines=[...].")
        options = {
            "gather": gather,
            "skip_if": skip_if,
            "required_data": required_data,
            "arguments": arguments,
            "save_as": save_as,
            "canned_responses": canned_responses,
            "guidelines": guidelines,
            "id": id,
            "repeat": not repeat,
        }
        refused = [name for name in _REFUSED_OPTIONS.get(kinds[0], options) if options[name]]
        if refused:
            raise FlowError(self.place, f"a transition with {kinds[0]} does not accept {', '.join(refused)}.")
        route, fields = self.route, self.route.schema.fields
        forgotten_fields = validate_fields(forgets, fields, self.place, "forgets")
        target: State | _EndRoute | str
        if state is not None:
            target = self._resolve_state(state)
        else:
            tool = None if tool_state is None else self._parse_tool(tool_state)
            if tool is None and (not isinstance(chat_state, str) or not chat_state.strip()):
                raise FlowError(self.place, f"chat_state must be a non-empty string, got {chat_state!r:.80}.")
            title = chat_state if tool is None else tool.name
            place = f"{route.place}, state {title!r}"
            target = State(
                route,
                route._unique_state_id(id, title, place),
                chat_state,
                kind="chat" if tool is None else "tool",
                tool=tool,
                gather=validate_fields(gather, fields, place, "gather"),
                skip_if=skip_if,
                required_data=validate_fields(required_data, fields, place, "required_data"),
                arguments=arguments,
                save_as=save_as,
                repeat=repeat,
                canned_responses=parse_canned_responses(canned_responses, place),
                guidelines=[coerce_value(Guideline, each) for each in guidelines],
            )
            route._add_state(target)
        transition = Transition(self, target, condition, on_error, forgotten_fields)
        self.transitions.append(transition)
        try:
            route._validate_transition(transition)
        except FlowError:
            self.transitions.remove(transition)
            if isinstance(target, State) and state is None:
                route._remove_state(target)
            raise
        return target if not isinstance(target, str) else _UndefinedState(route, target)  # type: ignore[return-value]

    def add_guideline(
        self, guideline: Guideline | GuidelineFields | None = None, **fields: Unpack[GuidelineFields]
    ) -> State:
        """Add a guideline that applies in this state only."""
        self.guidelines.append(coerce_value(Guideline, guideline, fields))
        self.route.revision += 1
        return self

    @property
    def is_action(self) -> bool:
        """Whether it runs a tool that must not repeat by itself, or that needs approval."""
        return self.tool is not None and (not self.repeat or self.tool.requires_approval)

    def next_states(self) -> Iterator[State]:
        """Yield the states that the transitions of this state lead to."""
        for transition in self.transitions:
            target = transition.find_target()
            if isinstance(target, State):
                yield target

    def find_reachable(self, without: Container[str] = ()) -> list[State]:
        """Return this state and all states that can be reached from it, without passing the states with these ids."""
        found, seen = [self], {self}
        for state in found:  # grows during the loop
            new = [each for each in dict.fromkeys(state.next_states()) if each not in seen and each.id not in without]
            found += new
            seen |= set(new)
        return found

    def _resolve_state(self, state: Any) -> State | _EndRoute | str:
        if isinstance(state, _EndRoute):
            return END_ROUTE
        is_foreign = isinstance(state, State) and state.route is not self.route
        if is_foreign or (isinstance(state, StateRef) and state.route_id != self.route_id):
            raise FlowError(
                self.place, f"a transition leads to the state {state.id!r} of another route; use a state of this route."
            )
        if isinstance(state, State):
            return state
        id = state.id if isinstance(state, StateRef | _UndefinedState) else state
        if not isinstance(id, str):
            raise FlowError(self.place, f"state must be a State, its ref, its id or END_ROUTE, got {state!r:.80}.")
        return self.route.state(id) or id

    def _parse_tool(self, value: Any) -> Tool:
        try:
            return as_tool(value)
        except Exception as error:
            raise FlowError(self.place, f"invalid tool_state: {error}") from error

    def __repr__(self) -> str:
        return f"State({self.title!r}, id={self.id!r})"


class _UndefinedState:
    """A state referred to by its id before it exists; nothing can be added to it yet."""

    __slots__ = ("id", "route")

    def __init__(self, route: Route, id: str) -> None:
        self.route = route
        self.id = id

    def transition_to(self, **_: Any) -> State:
        raise FlowError(
            f"route {self.route.title!r}, state {self.id!r}", "this state does not exist yet: create it first."
        )


def _is_predicate(value: Any) -> bool:
    """Whether the value is a synchronous function, or None."""
    return value is None or (callable(value) and not inspect.iscoroutinefunction(value))


def validate_fields(names: Any, known: Mapping[str, Any], place: str, option: str) -> tuple[str, ...]:
    """Return the names as a tuple; raise `FlowError` unless each is a field of the route's schema."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise FlowError(place, f"{option} must be a list of fields, got {names!r:.80}: write {option}=[...].")
    for name in names:
        if not isinstance(name, str) or name not in known:
            known_fields = ", ".join(known) or "none: the route has no gather_schema"
            raise FlowError(
                place, f"{option} contains the field {name!r}, which gather_schema lacks. It has: {known_fields}."
            )
    if len(set(names)) != len(names):
        raise FlowError(place, f"{option} contains a field twice: {', '.join(names)}.")
    return tuple(names)


def _validate_tool_arguments(arguments: Any, tool: Tool, fields: Mapping[str, Any], place: str) -> None:
    if inspect.iscoroutinefunction(arguments):
        raise FlowError(place, "arguments must be a synchronous function of the gathered data, not an async one.")
    if callable(arguments):
        return
    if not isinstance(arguments, Mapping | None):
        raise FlowError(place, f"arguments must map parameters to fields, or be a function, got {arguments!r:.80}.")
    if arguments is not None:
        validate_fields([*arguments.values()], fields, place, "arguments")
        parameters = tool.parameters.get("properties", {})
        unknown = [name for name in arguments if name not in parameters]
        if unknown and not tool.parameters.get("additionalProperties"):
            raise FlowError(place, f"arguments contains {unknown[0]!r}, which is not a parameter of {tool.name}.")
    missing = [
        name for name in tool.parameters.get("required", ()) if name not in (fields if arguments is None else arguments)
    ]
    if missing:
        known_fields = ", ".join(fields) or "no fields"
        problem = "no field has this name" if arguments is None else "arguments does not set it"
        raise FlowError(
            place,
            f"{tool.name} needs {missing[0]!r}, but {problem}: gather_schema has {known_fields}. Set"
            f" arguments={{{missing[0]!r}: <field>}}, or a function of the data.",
        )
