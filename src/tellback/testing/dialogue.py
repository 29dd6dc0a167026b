"""`Dialogue` and `play`: scripted conversations with an agent, and assertions on its responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tellback.chat.model import ChatRequest
from tellback.testing.models import ScriptedModel, ScriptError, Step
from tellback.testing.nlu import parse_understanding_request
from tellback.types import Message, assistant_message, message_text, user_message

if TYPE_CHECKING:
    from tellback.agent import Agent, Response, Route, SessionState, State

_UNSET: Any = object()


class Dialogue:
    """A conversation with an agent, turn by turn, with scripted replies of the model.

    The agent is not changed: a copy with a scripted model runs the turns. The history and the session (its id if the
    agent has `persistence`) are passed from turn to turn.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import says
    >>> async def test():
    ...     dialogue = Dialogue(Agent("Wanda"))
    ...     await dialogue.says("Hi!", says("Hello! Where to?"))
    ...     dialogue.expect(said="Where to?", calls=1)
    >>> asyncio.run(test())
    """

    def __init__(self, agent: Agent, session: SessionState | str | None = None, *, user: Any = None) -> None:
        from tellback.agent import create_session

        self.agent = agent
        self.session = create_session() if session is None else session
        self.responses: list[Response] = []
        self._scripted_agent = agent.with_model(ScriptedModel([]))
        self._user = user
        self._history: list[Message] = []

    @property
    def last(self) -> Response:
        """The last response."""
        if not self.responses:
            raise ScriptError("there is no response yet: call says(...) or begins(...) first.")
        return self.responses[-1]

    async def says(self, text: str, *script: Any, **more: Any) -> Response:
        """Send a user message and script the model's replies.

        The first step is `understands(...)` if the agent must interpret the message. Unused and missing steps raise
        `ScriptError`. `more` is passed to `respond`.
        """
        return await self._turn(user_message(text), script, more)

    async def begins(self, *script: Any, **more: Any) -> Response:
        """Let the agent begin without a user message."""
        return await self._turn(None, script, more)

    async def decides(self, decision: Any, *script: Any, **more: Any) -> Response:
        """Decide on all pending calls: True, False, or an `Approval`."""
        pending = self.last.pending
        if not pending:
            raise ScriptError(f"no call is pending.\n{self._describe_turn()}")
        return await self._turn(None, script, {**more, "approvals": {call.id: decision for call in pending}})

    def expect(
        self,
        *,
        route: Route | str | None = _UNSET,
        state: State | str | None = _UNSET,
        data: Mapping[str, Any] | None = None,
        asks: Sequence[str] | None = None,
        not_asks: Sequence[str] = (),
        calls: int | None = None,
        tools: Sequence[str] | None = None,
        said: str | None = None,
        completed: bool | None = None,
        pending: Sequence[str] | None = None,
    ) -> Self:
        """Raise `ScriptError` with all differences and the trace unless the last response matches.

        - `route`, `state`: the objects, or their title or id.
        - `data`: known values, as Python or JSON values; None means that a field has no value.
        - `asks`: all fields that the state asks for; `not_asks`: fields that it must not ask for.
        - `calls`: the number of model calls. `tools`: the names of the tools that ran, in order; `pending`: of those
          that wait for approval.
        - `said`: a part of the agent's message. `completed`: whether the route is completed.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test
        last = self.last
        asked_fields = last.asks
        asks, forbidden = _validate_names("asks", asks), _validate_names("not_asks", not_asks) or ()
        tools, pending = _validate_names("tools", tools), _validate_names("pending", pending)
        data = _validate_mapping("data", data)
        self._check_fields(asks=asks, not_asks=forbidden, data=data)
        if not isinstance(said, str | None):
            raise ScriptError(f"said must be a part of the message as a string, got {said!r:.80}.")
        at_route = (None,) if last.route is None else (last.route.id, last.route.title)
        at_state = (None,) if last.state is None else (last.state.id, last.state.description)
        problems = [
            f"{argument}: expected {wanted!r}, got {found[-1]!r}"
            for argument, wanted, found in (("route", route, at_route), ("state", state, at_state))
            if wanted is not _UNSET and getattr(wanted, "id", wanted) not in found
        ]
        problems += self._compare_data(data)
        for argument, expected, actual in (
            ("asks", None if asks is None else set(asks), set(asked_fields)),
            ("not_asks", set(), set(forbidden) & set(asked_fields)),
            ("calls", calls, last.trace.model_calls),
            ("tools", tools, [each.name for each in last.tool_calls]),
            ("pending", pending, [each.name for each in last.pending]),
            ("completed", completed, last.completed),
        ):
            if expected is not None and expected != actual:
                problems.append(f"{argument}: expected {_format_value(expected)}, got {_format_value(actual)}")
        if said is not None and said not in last.message:
            problems.append(f"said: expected {said!r} in {last.message!r}")
        if problems:
            raise ScriptError("\n".join([*problems, self._describe_turn()]))
        return self

    def _check_fields(self, **expectations: Iterable[str] | None) -> None:
        """Reject unknown field names, which are probably misspelled: `not_asks` would never fail for them."""
        known = dict.fromkeys(name for route in self._scripted_agent.routes for name in route.schema.fields)
        known |= dict.fromkeys(self.last.session.extracted)
        for argument, names in expectations.items():
            unknown = [name for name in names or () if name not in known]
            if unknown:
                available = ", ".join(known) or "none"
                raise ScriptError(
                    f"{argument}: no route of the agent has the field {unknown[0]!r}; known fields: {available}."
                )

    def _compare_data(self, data: Mapping[str, Any]) -> list[str]:
        from tellback.agent.definitions.gather_schema import GatherSchema

        known = self.last.session.extracted
        plain = GatherSchema.from_definition(None, "").plain(known)
        return [
            f"data: expected {name}={value!r}, got {known.get(name)!r}"
            for name, value in data.items()
            if value != known.get(name) and value != plain.get(name)
        ]

    @property
    def _has_stored_history(self) -> bool:
        """Whether the agent loads the history itself."""
        return self.agent.memory is not None or self.agent.persistence is not None

    async def _turn(self, message: Message | None, script: Sequence[Any], more: Mapping[str, Any]) -> Response:
        model = _DialogueModel(script)
        history: Any = None
        if message is not None:
            history = message_text(message) if self._has_stored_history else (*self._history, message)
        elif self._history and not self._has_stored_history and "approvals" not in more:
            history = tuple(self._history)
        sender = {} if self._user is None else {"user": self._user}
        self._scripted_agent.model = model
        response = await self._scripted_agent.respond(history, self.session, **sender, **more)
        self.responses.append(response)
        self._history += [*([] if message is None else [message]), assistant_message(response.message)]
        if not isinstance(self.session, str):
            self.session = response.session
        try:
            model.assert_done()
        except ScriptError as error:
            raise ScriptError(f"{error}\n{self._describe_turn()}") from None
        return response

    def _describe_turn(self) -> str:
        last = self.last
        known = ", ".join(f"{name}={value!r}" for name, value in last.session.extracted.items()) or "nothing"
        return f"--- turn {len(self.responses)}\nsaid: {last.message!r}\nknown: {known}\n{last.trace}"


class _DialogueModel(ScriptedModel):
    """A scripted model that explains a missing `understands(...)` step."""

    async def _next(self, request: ChatRequest) -> Step:
        understanding = parse_understanding_request(request)
        if understanding is None:
            return await super()._next(request)
        step = await super()._next(request) if self.remaining > 0 else Step()
        # An error or invalid JSON in this place may be intended.
        if step.error is None and "{" not in step.reply.text:
            routes, fields = ", ".join(understanding.routes) or "none", ", ".join(understanding.field_names) or "none"
            raise ScriptError(
                f"the agent asked the model to interpret the message (routes: {routes}; fields: {fields}; conditions:"
                f" {'; '.join(understanding.conditions.values()) or 'none'}): put understands(...) first."
            )
        return step


async def play(
    agent: Agent,
    conversation: Iterable[Sequence[Any]],
    session: SessionState | str | None = None,
    *,
    user: Any = None,
) -> list[Response]:
    """Play a whole conversation. Each entry is one turn: the user's message (None: the agent begins), the model's
    steps, and optionally a mapping of arguments for `expect`.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> turns = [("Hi!", "Hello! Where to?", {"calls": 1}), ("To Rome.", "Rome it is.")]
    >>> [str(response) for response in asyncio.run(play(Agent("Wanda"), turns))]
    ['Hello! Where to?', 'Rome it is.']
    """
    dialogue = Dialogue(agent, session, user=user)
    for entry in conversation:
        text, *steps = _validate_entry(entry)
        expected = steps.pop() if steps and isinstance(steps[-1], Mapping) else {}
        await (dialogue.begins(*steps) if text is None else dialogue.says(text, *steps))
        dialogue.expect(**expected)
    return dialogue.responses


def _validate_entry(entry: Any) -> Sequence[Any]:
    if not isinstance(entry, list | tuple) or not entry or not isinstance(entry[0], str | None):
        raise ScriptError(f'each turn must be like ("Hi!", "Hello!"), the user\'s message first, got {entry!r:.80}.')
    return entry


def _validate_names(argument: str, value: Any) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ScriptError(f"{argument} must be a list of names, got {value!r:.80}: write {argument}=[...].")
    return list(value)


def _validate_mapping(argument: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping | None):
        raise ScriptError(f"{argument} must map fields to values, got {value!r:.80}: write {argument}={{...}}.")
    return value or {}


def _format_value(value: Any) -> str:
    return repr(sorted(value)) if isinstance(value, set) else repr(value)
