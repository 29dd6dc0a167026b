"""The response of an agent: its message, where the conversation stands, and a trace of how it came about.

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
    """The route an answer was given in."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class StateInfo:
    """The state that spoke."""

    id: str
    description: str | None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One question to the model: for what ("understand", "choose" or "reply"), with which prompt, and what it cost.

    `replies` is how often the model spoke: more than once where it called tools.
    """

    purpose: str
    system: str | None = field(repr=False)
    messages: Sequence[Message] = field(repr=False)
    text: str = field(default="", repr=False)
    usage: ChatUsage = field(default_factory=ChatUsage)
    replies: int = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """How an answer came about.

    `scores` are those of the routes by title, `route` says why this one; `walked` are the states and why; `conditions`
    are those that held, `guidelines` those that were followed; `rejected` values did not fit; `problems` are what could
    not be used of the model's reading.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    route: str = ""
    walked: tuple[WalkStep, ...] = ()
    conditions: tuple[str, ...] = ()
    guidelines: tuple[GuidelineMatch, ...] = ()
    rejected: tuple[RejectedValue, ...] = ()
    problems: tuple[str, ...] = ()
    calls: tuple[ModelCall, ...] = ()

    @property
    def prompts(self) -> tuple[str, ...]:
        """The system prompts that were sent."""
        return tuple(call.system or "" for call in self.calls)

    @property
    def model_calls(self) -> int:
        """How often a model was asked."""
        return sum(call.replies for call in self.calls)

    @property
    def usage(self) -> ChatUsage:
        """The tokens of all calls."""
        return sum((call.usage for call in self.calls), ChatUsage())

    @property
    def tokens(self) -> int:
        """How many tokens that were, as far as the provider says."""
        return self.usage.total_tokens or 0

    def __str__(self) -> str:
        lines = [f"route: {self.route}"]
        lines += [f"score: {title} {score:g}" for title, score in self.scores.items()]
        lines += [f"{step.action}: {step.state} ({step.why})" for step in self.walked]
        lines += [f"guideline: {match.guideline.action} ({match.rationale})" for match in self.guidelines]
        lines += [f"rejected: {each.field}={each.value!r} ({each.problem})" for each in self.rejected]
        lines += [f"problem: {problem}" for problem in self.problems]
        lines += [f"call: {call.purpose}, {call.usage.total_tokens or 0} tokens" for call in self.calls]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AgentStructuredResponse:
    """The answer as one value: what was said, in which route and state, and by which tools.

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
    """An agent's answer. `str(response)` is what it says.

    `session` is where the conversation stands now: pass it to the next `respond`. `asks` are the fields that the state
    asks for. `pending` are calls that wait for a decision: `respond(session=..., approvals={call.id: True})`. `trace`
    says how the answer came about. `problems` are failures that did not end the turn. `turn` is the result of the reply
    alone, and `result` that of the whole turn.

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

    @property
    def usage(self) -> ChatUsage:
        """The tokens of all model calls of the turn."""
        return self.trace.usage

    @property
    def atoms_used(self) -> tuple[Atom, ...]:
        """The memories that the model was given."""
        return () if self.context is None else self.context.atoms_used

    @property
    def result(self) -> TurnResult:
        """The response as the result that every turn gives; `result.to_dict()` is JSON."""
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
    """A piece of an answer. The last one is `done`, has no text, and carries the whole response.

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
    """The chunk that ends a stream."""
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
    """What `before_response` is given: the session, the messages to answer, and the context."""

    session: SessionState
    history: tuple[Message, ...]
    context: Any


BeforeHook = Callable[[BeforeResponse], Any]
"""May be async; what it gives, a mapping or None, changes the context of this turn. If it raises, the turn ends."""
AfterHook = Callable[[Response], Any]
"""May be async; what it gives is ignored. The answer is given by then, so what it raises is only logged."""


async def run_before_hook(hook: BeforeHook | None, event: BeforeResponse) -> Mapping[str, Any] | None:
    """Run the hook before a response."""
    if hook is None:
        return None
    changes = hook(event)
    if inspect.isawaitable(changes):
        changes = await changes
    if not isinstance(changes, Mapping | None):
        raise InvalidArgumentError(f"before_response gives a mapping of context values or None, not {changes!r:.80}.")
    return changes


async def run_after_hook(hook: AfterHook | None, response: Response) -> None:
    """Run the hook after a response."""
    if hook is None:
        return
    try:
        result = hook(response)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("after_response failed; the response stands")
