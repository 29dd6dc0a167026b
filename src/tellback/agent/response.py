"""The response of an agent: its message, the session after it, and a trace of the turn.

Also the hooks that an application runs before and after a response."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.definitions.guidelines import GuidelineMatch
from tellback.agent.flow.move import RejectedValue, WalkStep
from tellback.agent.sessions.session import SessionState
from tellback.errors import InvalidArgumentError
from tellback.types import ChatUsage, Message, ToolCall
from tellback.types.conversations import ToolInvocation, TurnProblem, TurnResult
from tellback.types.memory import Atom, WorkingContext

log = logging.getLogger("tellback.agent")


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """The route of an answer.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> agent = Agent("Wanda", model=ScriptedModel([says("Where to?")]))
    >>> ask = agent.create_route("Book a flight", id="book").initial_state.transition_to(chat_state="Ask where to")
    >>> asyncio.run(agent.respond("Hi!")).route
    RouteInfo(id='book', title='Book a flight')
    """

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class StateInfo:
    """The state that spoke.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> agent = Agent("Wanda", model=ScriptedModel([says("Where to?")]))
    >>> ask = agent.create_route("Book a flight").initial_state.transition_to(chat_state="Ask where to", id="ask")
    >>> asyncio.run(agent.respond("Hi!")).state
    StateInfo(id='ask', description='Ask where to')
    """

    id: str
    description: str | None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call: its purpose ("understand", "choose" or "reply"), its prompt, and its token usage.

    `replies` counts the model's replies: more than one if it called tools. `instructions` are those for this turn only;
    they end the newest user message of `messages`.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> agent = Agent("Wanda", goal="Book flights", model=ScriptedModel([says("Where to?")]))
    >>> [call] = asyncio.run(agent.respond("Hi!")).trace.calls
    >>> call.purpose, call.text, "Book flights" in call.system, "# Now" in call.instructions
    ('reply', 'Where to?', True, True)
    """

    purpose: str
    system: str | None = field(repr=False)
    messages: Sequence[Message] = field(repr=False)
    text: str = field(default="", repr=False)
    usage: ChatUsage = field(default_factory=ChatUsage)
    replies: int = 1
    instructions: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """How an answer was produced.

    `scores` are the scores of the routes by title, `route` the reason why the route was chosen; `walked` are the steps
    of the walk; `conditions` are those that were true, `guidelines` those that applied; `rejected` are values that did
    not fit, or that the user's words do not support; `problems` are the parts of the model's interpretation that were
    ignored. `went_back` is the reason why a state before the last one speaks; `queued` are the titles of other routes
    that the message asks for, which are entered when the current one ends.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> from tellback.types import ChatUsage
    >>> model = ScriptedModel([says("Where to?", usage=ChatUsage(120, 8, total_tokens=128))])
    >>> agent = Agent("Wanda", guidelines=[{"action": "Be brief."}], model=model)
    >>> ask = agent.create_route("Book a flight").initial_state.transition_to(chat_state="Ask where to")
    >>> print(asyncio.run(agent.respond("Hi!")).trace)
    route: it is the only route
    speaks: Ask where to (it is next)
    guideline: Be brief. (always)
    call: reply, 128 tokens
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    route: str = ""
    walked: tuple[WalkStep, ...] = ()
    conditions: tuple[str, ...] = ()
    guidelines: tuple[GuidelineMatch, ...] = ()
    rejected: tuple[RejectedValue, ...] = ()
    problems: tuple[str, ...] = ()
    calls: tuple[ModelCall, ...] = ()
    went_back: str = ""
    queued: tuple[str, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The prompts of the calls: the system prompt of each, followed by the instructions for this turn."""
        return tuple("\n\n".join(filter(None, (call.system, call.instructions))) for call in self.calls)

    @property
    def model_calls(self) -> int:
        """The number of model replies."""
        return sum(call.replies for call in self.calls)

    @property
    def usage(self) -> ChatUsage:
        """The token usage of all calls."""
        return sum((call.usage for call in self.calls), ChatUsage())

    @property
    def tokens(self) -> int:
        """The total number of tokens, if the provider reports it, else 0."""
        return self.usage.total_tokens or 0

    def __str__(self) -> str:
        lines = [f"route: {self.route}"]
        lines += [f"score: {title} {score:g}" for title, score in self.scores.items()]
        lines += [f"{step.action}: {step.state} ({step.why})" for step in self.walked]
        lines += [f"went back: {self.went_back}"] if self.went_back else []
        lines += [f"queued: {title}" for title in self.queued]
        lines += [f"guideline: {match.guideline.action} ({match.rationale})" for match in self.guidelines]
        lines += [f"rejected: {each.field}={each.value!r} ({each.problem})" for each in self.rejected]
        lines += [f"problem: {problem}" for problem in self.problems]
        lines += [f"call: {call.purpose}, {call.usage.total_tokens or 0} tokens" for call in self.calls]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AgentStructuredResponse:
    """The answer as one value: the message, its route and state, and the tool calls.

    >>> AgentStructuredResponse("Where to?", route="Book a flight").route
    'Book a flight'
    """

    message: str
    route: str | None = None
    state: str | None = None
    tool_calls: tuple[ToolInvocation, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """An agent's answer. `str(response)` is its message.

    `session` is the session after the turn: pass it to the next `respond`. `completed` says whether `route` was
    completed, and `completed_routes` are all routes that were: another one may have followed. `asks` are the fields
    that the state asks for. `pending` are calls that wait for a decision:
    `respond(session=..., approvals={call.id: True})`. `trace` explains how the answer was produced. `problems` are
    failures that did not end the turn. `turn` is the result of the reply alone, and `result` that of the whole turn.

    >>> from tellback.agent import create_session
    >>> str(Response("Where to?", create_session()))
    'Where to?'
    """

    message: str
    session: SessionState
    tool_calls: tuple[ToolInvocation, ...] = ()
    route: RouteInfo | None = None
    state: StateInfo | None = None
    completed: bool = False
    asks: tuple[str, ...] = ()
    pending: tuple[ToolCall, ...] = ()
    trace: Trace = field(default=Trace(), repr=False)
    conversation_id: str | None = None
    context: WorkingContext | None = field(default=None, repr=False)
    problems: tuple[TurnProblem, ...] = ()
    turn: TurnResult | None = field(default=None, repr=False, compare=False)
    completed_routes: tuple[RouteInfo, ...] = ()

    @property
    def usage(self) -> ChatUsage:
        """The token usage of all model calls of the turn."""
        return self.trace.usage

    @property
    def atoms_used(self) -> tuple[Atom, ...]:
        """The memories in the model's prompt."""
        return () if self.context is None else self.context.atoms_used

    @property
    def result(self) -> TurnResult:
        """The response as a `TurnResult`, which every kind of turn returns; `result.to_dict()` is JSON."""
        turn = TurnResult(ok=True, text="") if self.turn is None else self.turn
        status = "completed" if turn.status == "approval" else turn.status
        return replace(
            turn,
            ok=not self.pending,
            text=self.message,
            status="approval" if self.pending else status,
            session_id=self.session.id,
            conversation_id=self.conversation_id,
            usage=self.usage,
            context=self.context,
            tool_invocations=self.tool_calls,
            pending=self.pending,
            problems=self.problems,
            model_calls=self.trace.model_calls,
            trace=self.trace,
        )

    @property
    def structured(self) -> AgentStructuredResponse:
        """The answer as one value."""
        return AgentStructuredResponse(
            self.message,
            None if self.route is None else self.route.title,
            None if self.state is None else self.state.description,
            self.tool_calls,
            self.trace.route or None,
        )

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of an answer. The last one is `done`, has no text, and contains the whole response.

    >>> StreamChunk("lo!", "Hello!").done
    False
    """

    delta: str
    accumulated: str
    done: bool = False
    route: RouteInfo | None = None
    state: StateInfo | None = None
    tool_calls: tuple[ToolInvocation, ...] = ()
    session: SessionState | None = None
    response: Response | None = None


def last_chunk(accumulated: str, response: Response) -> StreamChunk:
    """Build the chunk that ends a stream."""
    return StreamChunk(
        "",
        accumulated,
        done=True,
        route=response.route,
        state=response.state,
        tool_calls=response.tool_calls,
        session=response.session,
        response=response,
    )


@dataclass(frozen=True, slots=True)
class BeforeResponse:
    """The argument of `before_response`: the session, the messages to answer, and the context.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> def add_greeting(event: BeforeResponse):
    ...     return {"greeting": "Welcome back!" if len(event.history) > 1 else "Welcome!"}
    >>> model = ScriptedModel([says("Welcome! Where to?", expect=lambda request: "Welcome!" in request.instructions)])
    >>> agent = Agent("Wanda", before_response=add_greeting, model=model)
    >>> asyncio.run(agent.respond("Hi!")).message
    'Welcome! Where to?'
    """

    session: SessionState
    history: tuple[Message, ...]
    context: Any


BeforeHook = Callable[[BeforeResponse], Any]
"""May be async; it returns None or a mapping that changes the context of this turn. If it raises, the turn fails."""
AfterHook = Callable[[Response], Any]
"""May be async; its return value is ignored. The turn is already complete, so an exception is only logged."""


async def run_before_hook(hook: BeforeHook | None, event: BeforeResponse) -> Mapping[str, Any] | None:
    """Run the hook before a response and validate its result."""
    if hook is None:
        return None
    changes = hook(event)
    if inspect.isawaitable(changes):
        changes = await changes
    if not isinstance(changes, Mapping | None):
        raise InvalidArgumentError(f"before_response must return a mapping or None, got {changes!r:.80}.")
    return changes


async def run_after_hook(hook: AfterHook | None, response: Response) -> None:
    """Run the hook after a response; log its exceptions."""
    if hook is None:
        return
    try:
        result = hook(response)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("The after_response hook failed; the response is not affected")
