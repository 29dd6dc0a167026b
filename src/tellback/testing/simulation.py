"""`simulate`: a simulated user that talks to an agent until a route is completed."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tellback.errors import InvalidArgumentError
from tellback.types import Message, ToolCall, assistant_message, user_message
from tellback.types.jsontext import dump_json
from tellback.validation import validate_count

if TYPE_CHECKING:
    from tellback.agent import Agent, Response, Route, SessionState
    from tellback.chat import Model

_UNQUOTED = re.compile(r"\w[\w '/-]*")
"""A value that needs no quotes to be recognized within a message."""

Outcome = Literal["completed", "gave up", "waits", "too long"]

GOODBYE = "GOODBYE"
USER_PROMPT = f"""\
You play a person who talks to an assistant. Write only that person's next message, short, as people write. Use only \
these facts; you know nothing else. Answer what the assistant asks. If the assistant cannot help, or you have what you \
want, write {GOODBYE} and nothing else."""


class SimulatedUser:
    """A simulated user of an agent.

    Without a `model`, it follows rules: it sends its `goal`, then answers what the agent's state asks for from `facts`
    as `field: value`, with `eager` more facts in each message. `changes` are later values of facts; it sends each of
    them once, in order. If nothing is asked, it sends `agrees`. It gives up after `patience` messages without new facts
    and without progress.

    With a `model`, the model writes the messages from `goal` and `facts`. `route` is the route to complete (default:
    any).

    >>> user = SimulatedUser("I want to fly", {"destination": "Rome"}, changes={"destination": ["Oslo"]})
    >>> user.goal
    'I want to fly'
    """

    def __init__(
        self,
        goal: str,
        facts: Mapping[str, Any] | None = None,
        *,
        model: str | Model | None = None,
        changes: Mapping[str, Sequence[Any]] | None = None,
        eager: int = 0,
        agrees: str = "Yes, please.",
        patience: int = 3,
        route: Route | str | None = None,
    ) -> None:
        self.goal = goal
        self.facts = dict(facts or {})
        self.route = route if isinstance(route, str | None) else route.title
        self.changes = {name: list(values) for name, values in (changes or {}).items()}
        self.model = model
        self.eager = eager
        self.agrees = agrees
        self.patience = patience
        for name, values in (changes or {}).items():
            if name not in self.facts or isinstance(values, str):
                raise InvalidArgumentError(f"changes must map facts to lists of values, got {name}={values!r:.80}.")


@dataclass(frozen=True, slots=True)
class SimulatedExchange:
    """A message of the user (or a decision as text) and the agent's response."""

    message: str
    response: Response


@dataclass(frozen=True, slots=True)
class Simulation:
    """The outcome: "completed", "gave up", "waits" (for a decision) or "too long". `str()` renders the dialogue.

    >>> import asyncio
    >>> from tellback.agent import END_ROUTE, Agent
    >>> from tellback.testing import FlowModel
    >>> agent = Agent("Wanda", model=FlowModel())
    >>> route = agent.create_route("Take a name", gather_schema={"properties": {"name": {"type": "string"}}})
    >>> _ = route.initial_state.transition_to(chat_state="Ask", gather=["name"]).transition_to(state=END_ROUTE)
    >>> simulation = asyncio.run(simulate(agent, SimulatedUser("Hello", {"name": "Maya"})))
    >>> simulation.outcome, len(simulation.exchanges), simulation.session.extracted
    ('completed', 2, {'name': 'Maya'})
    """

    outcome: Outcome
    exchanges: tuple[SimulatedExchange, ...]
    initial_session: SessionState
    """The session before the first exchange."""

    @property
    def session(self) -> SessionState:
        """The session after the last exchange."""
        return self.exchanges[-1].response.session if self.exchanges else self.initial_session

    def __str__(self) -> str:
        lines = [f"user: {each.message}\nagent: {each.response.message}" for each in self.exchanges]
        return "\n".join([*lines, f"({self.outcome})"])


async def simulate(
    agent: Agent,
    user: SimulatedUser,
    /,
    max_turns: int = 20,
    session: SessionState | str | None = None,
    *,
    approve: Any = None,
    **more: Any,
) -> Simulation:
    """Let a simulated user talk to an agent until the route is completed, the user gives up, or `max_turns` is reached.

    `approve` decides on pending calls: True, False, an `Approval`, or a function (async or not) of the call that
    returns one. Without it, the simulation ends at a pending call. `more` is passed to `agent.respond`, such as `user`.

    >>> import asyncio
    >>> from tellback.agent import END_ROUTE, Agent
    >>> from tellback.testing import FlowModel
    >>> agent = Agent("Wanda", model=FlowModel())
    >>> route = agent.create_route("Take a name", gather_schema={"properties": {"name": {"type": "string"}}})
    >>> _ = route.initial_state.transition_to(chat_state="Ask", gather=["name"]).transition_to(state=END_ROUTE)
    >>> print(asyncio.run(simulate(agent, SimulatedUser("Hello", {"name": "Maya"}))))
    user: Hello
    agent: Ask (name?)
    user: name: Maya
    agent: 'Take a name' is completed.
    (completed)
    """
    validate_count("max_turns", max_turns, 1)
    _validate_user(agent, user)
    initial_session = await _load_initial_session(agent, session)
    speaker = _ModelSpeaker(user) if user.model is not None else _RuleBasedSpeaker(user)
    exchanges: list[SimulatedExchange] = []
    message: str | None = await speaker.next(None)
    has_stored_history = agent.memory is not None or agent.persistence is not None
    history: list[Message] = []
    approvals: dict[str, Any] | None = None
    while message is not None:
        history.append(user_message(message))
        user_input = message if has_stored_history else tuple(history)
        response = await agent.respond(None if approvals else user_input, session, approvals=approvals, **more)
        history.append(assistant_message(response.message))
        exchanges.append(SimulatedExchange(message, response))
        session = session if isinstance(session, str) else response.session
        if response.completed and response.route is not None and user.route in (None, response.route.title):
            return Simulation("completed", tuple(exchanges), initial_session)
        if response.pending and approve is None:
            return Simulation("waits", tuple(exchanges), initial_session)
        if len(exchanges) == max_turns:
            return Simulation("too long", tuple(exchanges), initial_session)
        approvals = {call.id: await _decide(approve, call) for call in response.pending} or None
        message = "(a person decides)" if approvals else await speaker.next(response)
    return Simulation("gave up", tuple(exchanges), initial_session)


def _validate_user(agent: Agent, user: SimulatedUser) -> None:
    titles = [route.title for route in agent.routes]
    if user.route is not None and user.route not in titles:
        raise InvalidArgumentError(f"{agent.place} has no route {user.route!r:.80}; its routes: {_join_names(titles)}.")
    if user.model is not None:
        return  # the model may use facts that are not fields
    fields = list(dict.fromkeys(name for route in agent.routes for name in route.schema.fields))
    unknown = [name for name in user.facts if name not in fields]
    if unknown:
        raise InvalidArgumentError(
            f"{agent.place} does not gather {unknown[0]!r:.80}; its fields: {_join_names(fields)}."
        )


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


async def _load_initial_session(agent: Agent, session: SessionState | str | None) -> SessionState:
    from tellback.agent import create_session

    if not isinstance(session, str | None):
        return session
    stored = await agent.persistence.load(session) if agent.persistence is not None and session else None
    return stored or create_session(session)


async def _decide(approve: Any, call: ToolCall) -> Any:
    decision = approve(call) if callable(approve) else approve
    return await decision if inspect.isawaitable(decision) else decision


class _RuleBasedSpeaker:
    """Answers by rules what the agent asks for."""

    def __init__(self, user: SimulatedUser) -> None:
        self._user = user
        self._stated_facts: dict[str, Any] = {}
        self._pending_changes = {name: list(values) for name, values in user.changes.items()}
        self._stuck = 0
        self._last_standing: Any = None

    async def next(self, response: Response | None) -> str | None:
        """Return the next message, or None to give up."""
        if response is None:
            return "; ".join([self._user.goal, *self._state_facts(self._unstated()[: self._user.eager])])
        asked_fields = response.asks
        answers = [name for name in asked_fields if name in self._user.facts]
        new_facts = [name for name in answers if name not in self._stated_facts]
        changed = None if new_facts else self._state_change()
        standing = (response.route, response.state, dict(response.session.extracted))
        self._stuck = 0 if new_facts or changed or standing != self._last_standing else self._stuck + 1
        self._last_standing = standing
        if self._stuck >= self._user.patience:
            return None
        if changed is not None:
            return changed
        if answers:
            more = [name for name in self._unstated() if name not in answers][: self._user.eager]
            return "; ".join(self._state_facts([*answers, *more]))
        if asked_fields:
            return f"I don't know the {' and '.join(map(_readable_name, asked_fields))}."
        return self._user.agrees

    def _state_change(self) -> str | None:
        for name, values in self._pending_changes.items():
            if name in self._stated_facts and values:
                self._stated_facts[name] = values.pop(0)
                return f"No, {_format_fact(name, self._stated_facts[name])}"
        return None

    def _unstated(self) -> list[str]:
        return [name for name in self._user.facts if name not in self._stated_facts]

    def _state_facts(self, names: Sequence[str]) -> list[str]:
        return [_format_fact(name, self._stated_facts.setdefault(name, self._user.facts[name])) for name in names]


class _ModelSpeaker:
    """Lets a model write the messages from the goal and the facts."""

    def __init__(self, user: SimulatedUser) -> None:
        self._user = user
        self._messages: list[Message] = []

    async def next(self, response: Response | None) -> str | None:
        """Return the next message, or None to give up."""
        from tellback.chat import ChatOptions
        from tellback.chat.dispatch import dispatch_chat

        user = self._user
        # The roles are swapped: the agent's messages are user messages for this model.
        self._messages.append(user_message("(The assistant waits: begin.)" if response is None else response.message))
        later = "".join(f"\nLater you change your mind: {dump_json({name: v})}" for name, v in user.changes.items())
        system = f"{USER_PROMPT}\n\nWhat you want: {user.goal}\nFacts: {dump_json(user.facts)}{later}"
        options = ChatOptions(model=user.model or "", system=system)
        reply = await dispatch_chat(options, self._messages)
        self._messages.append(assistant_message(reply.text))
        return None if not reply.text.strip() or GOODBYE in reply.text else reply.text


def _format_fact(name: str, value: Any) -> str:
    is_plain = isinstance(value, str) and _UNQUOTED.fullmatch(value)
    return f"{_readable_name(name)}: {value if is_plain else dump_json(value)}"


def _readable_name(name: str) -> str:
    return name.replace("_", " ")
