"""Conversations with an agent that are written down: what is said, what the model answers, what must come of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tellback.chat.model import ChatRequest
from tellback.testing.asked import asked_in
from tellback.testing.scripted import ScriptedModel, ScriptError, Step
from tellback.types import Message, assistant_message, message_text, user_message

if TYPE_CHECKING:
    from tellback.agent import Agent, Response, Route, SessionState, State

_ANY: Any = object()


class Dialogue:
    """A conversation with an agent, turn by turn, in which the model answers as the test says.

    The agent itself stays as it is: a twin that has a scripted model takes its turns. What was said is passed on from
    turn to turn, and so is the session, or its id where the agent has `persistence`.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import says
    >>> async def test():
    ...     talk = Dialogue(Agent("Wanda"))
    ...     await talk.says("Hi!", says("Hello! Where to?"))
    ...     talk.expect(said="Where to?", calls=1)
    >>> asyncio.run(test())
    """

    def __init__(self, agent: Agent, session: SessionState | str | None = None, *, user: Any = None) -> None:
        from tellback.agent import create_session

        self.agent = agent
        self.session = create_session() if session is None else session
        self.responses: list[Response] = []
        self._twin = agent.with_model(ScriptedModel([]))
        self._user = user
        self._said: list[Message] = []

    @property
    def last(self) -> Response:
        """The last response."""
        if not self.responses:
            raise ScriptError("nobody has spoken yet: begin with says(...) or begins(...).")
        return self.responses[-1]

    async def says(self, text: str, *script: Any, **more: Any) -> Response:
        """The user says something, and the model answers by the script: `understands(...)` first where the agent has
        something to decide, then what it says. Steps that are not used, or missing, fail. `more` goes to `respond`."""
        return await self._turn(user_message(text), script, more)

    async def begins(self, *script: Any, **more: Any) -> Response:
        """The agent speaks without being spoken to."""
        return await self._turn(None, script, more)

    async def decides(self, decision: Any, *script: Any, **more: Any) -> Response:
        """A person decides on all that is pending: True, False, or an `Approval`."""
        pending = self.last.pending
        if not pending:
            raise ScriptError(f"there is nothing to decide: no call is pending.\n{self._shown()}")
        return await self._turn(None, script, {**more, "approvals": {call.id: decision for call in pending}})

    def expect(
        self,
        *,
        route: Route | str | None = _ANY,
        state: State | str | None = _ANY,
        data: Mapping[str, Any] | None = None,
        asks: Sequence[str] | None = None,
        not_asks: Sequence[str] = (),
        calls: int | None = None,
        tools: Sequence[str] | None = None,
        said: str | None = None,
        completed: bool | None = None,
        pending: Sequence[str] | None = None,
    ) -> Self:
        """Fail, with all that is different and the trace, unless the last response is like that.

        `route` and `state` are themselves, or their title or id. `data` holds values that are known, as they are or as
        JSON has them; None means that there is none. `asks` are the fields that the state asks for, all of them, and
        `not_asks` some that it must not ask for. `calls` counts model calls. `tools` are the names of those that ran
        and `pending` of those that wait, in order. `said` is a part of the message.
        """
        last = self.last
        asked = last.asks
        asks, never = _names("asks", asks), _names("not_asks", not_asks) or ()
        tools, pending = _names("tools", tools), _names("pending", pending)
        data = _mapping("data", data)
        self._check_fields(asks=asks, not_asks=never, data=data)
        if not isinstance(said, str | None):
            raise ScriptError(f"said is a part of the message, not {said!r:.80}.")
        at_route = (None,) if last.route is None else (last.route.id, last.route.title)
        at_state = (None,) if last.state is None else (last.state.id, last.state.description)
        wrong = [
            f"{what}: expected {given!r}, but it is {found[-1]!r}"
            for what, given, found in (("route", route, at_route), ("state", state, at_state))
            if given is not _ANY and getattr(given, "id", given) not in found
        ]
        wrong += self._wrong_data(data)
        for what, expected, got in (
            ("asks", None if asks is None else set(asks), set(asked)),
            ("not_asks", set(), set(never) & set(asked)),
            ("calls", calls, last.trace.model_calls),
            ("tools", tools, [each.name for each in last.tool_calls]),
            ("pending", pending, [each.name for each in last.pending]),
            ("completed", completed, last.completed),
        ):
            if expected is not None and expected != got:
                wrong.append(f"{what}: expected {_listed(expected)}, but it is {_listed(got)}")
        if said is not None and said not in last.message:
            wrong.append(f"said: expected {said!r} in {last.message!r}")
        if wrong:
            raise ScriptError("\n".join([*wrong, self._shown()]))
        return self

    def _check_fields(self, **given: Iterable[str] | None) -> None:
        """Refuse fields that are nowhere: what is expected of them would hold whatever happens."""
        known = dict.fromkeys(name for route in self._twin.routes for name in route.gathering.fields)
        known |= dict.fromkeys(self.last.session.extracted)
        for what, names in given.items():
            unknown = [name for name in names or () if name not in known]
            if unknown:
                there = ", ".join(known) or "none"
                raise ScriptError(f"{what}: no route of the agent has the field {unknown[0]!r}; it knows: {there}.")

    def _wrong_data(self, data: Mapping[str, Any]) -> list[str]:
        from tellback.agent.gathering import GatherSchema

        known = self.last.session.extracted
        plain = GatherSchema.of(None, "").plain(known)
        return [
            f"data: expected {name}={value!r}, but it is {known.get(name)!r}"
            for name, value in data.items()
            if value != known.get(name) and value != plain.get(name)
        ]

    @property
    def _is_kept(self) -> bool:
        """Whether the agent itself knows what was said before."""
        return self.agent.memory is not None or self.agent.persistence is not None

    async def _turn(self, said: Message | None, script: Sequence[Any], more: Mapping[str, Any]) -> Response:
        model = _TurnModel(script)
        history: Any = None
        if said is not None:
            history = message_text(said) if self._is_kept else (*self._said, said)
        elif self._said and not self._is_kept and "approvals" not in more:
            history = tuple(self._said)
        named = {} if self._user is None else {"user": self._user}
        self._twin.model = model
        response = await self._twin.respond(history, self.session, **named, **more)
        self.responses.append(response)
        self._said += [*([] if said is None else [said]), assistant_message(response.message)]
        if not isinstance(self.session, str):
            self.session = response.session
        try:
            model.assert_done()
        except ScriptError as error:
            raise ScriptError(f"{error}\n{self._shown()}") from None
        return response

    def _shown(self) -> str:
        last = self.last
        known = ", ".join(f"{name}={value!r}" for name, value in last.session.extracted.items()) or "nothing"
        return f"--- turn {len(self.responses)}\nsaid: {last.message!r}\nknown: {known}\n{last.trace}"


class _TurnModel(ScriptedModel):
    """Says so when a reading was asked for and none was scripted."""

    async def _next(self, request: ChatRequest) -> Step:
        asked = asked_in(request)
        if asked is None:
            return await super()._next(request)
        step = await super()._next(request) if self.remaining > 0 else Step()
        # A reading that fails, and JSON that is broken, may be meant.
        if step.error is None and "{" not in step.reply.text:
            routes, fields = ", ".join(asked.routes) or "none", ", ".join(asked.field_names) or "none"
            raise ScriptError(
                f"the agent asked for a reading (routes: {routes}; fields: {fields}; conditions:"
                f" {'; '.join(asked.conditions.values()) or 'none'}): put understands(...) first."
            )
        return step


async def play(
    agent: Agent,
    conversation: Iterable[Sequence[Any]],
    session: SessionState | str | None = None,
    *,
    user: Any = None,
) -> list[Response]:
    """Play a whole conversation. Each entry is one turn: what the user says (None: the agent begins), the model's
    steps, and last, if you like, a mapping of what to `expect`.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> talk = [("Hi!", "Hello! Where to?", {"calls": 1}), ("To Rome.", "Rome it is.")]
    >>> [str(response) for response in asyncio.run(play(Agent("Wanda"), talk))]
    ['Hello! Where to?', 'Rome it is.']
    """
    talk = Dialogue(agent, session, user=user)
    for entry in conversation:
        text, *steps = _entry(entry)
        expected = steps.pop() if steps and isinstance(steps[-1], Mapping) else {}
        await (talk.begins(*steps) if text is None else talk.says(text, *steps))
        talk.expect(**expected)
    return talk.responses


def _entry(entry: Any) -> Sequence[Any]:
    if not isinstance(entry, list | tuple) or not entry or not isinstance(entry[0], str | None):
        raise ScriptError(f'each turn is like ("Hi!", "Hello!"), what is said first, not {entry!r:.80}.')
    return entry


def _names(what: str, given: Any) -> list[str] | None:
    if given is None:
        return None
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ScriptError(f"{what} is a list of names, not {given!r:.80}: write {what}=[...].")
    return list(given)


def _mapping(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping | None):
        raise ScriptError(f"{what} holds values by field, not {given!r:.80}: write {what}={{...}}.")
    return given or {}


def _listed(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, set) else repr(value)
