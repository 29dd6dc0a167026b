"""`AgentTurn`: one turn of an agent (understand, move, reply), and the user whose memory it uses.

The turn engine calls it after the user's message is stored."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tellback.agent.context import resolve_context, split_context, update_context
from tellback.agent.definitions.guidelines import CompositionMode, GuidelineMatch
from tellback.agent.definitions.value_parser import InvalidValue
from tellback.agent.flow.move import Interpretation, MoveGenerator, MoveResult, ToolRunRequest, ToolRunResult, move
from tellback.agent.flow.route_choice import find_current_route
from tellback.agent.prompts.answer import (
    ParsedAnswer,
    UnreadableAnswer,
    begins_with_refusal,
    collect_user_messages,
    consists_of_questions,
    parse_answer,
    parse_choice,
    reject_inconsistent_values,
)
from tellback.agent.prompts.reply import (
    ReplyPrompt,
    build_fixed_reply,
    collect_canned_levels,
    match_guidelines,
    render_applicable_canned,
    render_reply_prompt,
    render_wording,
    select_strict_texts,
)
from tellback.agent.prompts.understand import (
    Questions,
    build_output_schema,
    build_questions,
    build_topic,
    render_message_prompt,
    render_understand_prompt,
    trim_to_user_message,
)
from tellback.agent.response import BeforeResponse, ModelCall, Response, RouteInfo, StateInfo, Trace, run_before_hook
from tellback.agent.runtime.state_tools import StateToolRunner, TurnAttempt
from tellback.agent.sessions.session import SessionState
from tellback.chat import ChatOptions
from tellback.chat.approval import Approval
from tellback.chat.dispatch import CallRequest, call_settings, resolve_caller
from tellback.chat.model import SCRIPTED_READING
from tellback.chat.options import check_budget
from tellback.errors import (
    AlreadyAnsweredError,
    ConfigurationError,
    InvalidArgumentError,
    NotFoundError,
    OutputValidationError,
)
from tellback.tools import Tool
from tellback.tools.context import ToolContext, ToolHost, ToolUpdate
from tellback.turns.chat import CHAT_CLOSE_AFTER
from tellback.turns.request import NamespaceMemory, TurnLog, TurnPlanner, UserHandle
from tellback.types import ChatReply, ChatUsage, Message, assistant_message, find_instructions, user_message
from tellback.types.access import Scope
from tellback.types.conversations import Identity, ToolInvocation, TurnProblem, TurnResult
from tellback.types.ids import slug
from tellback.types.jsontext import dump_json, dump_json_line

if TYPE_CHECKING:
    from tellback.agent.agent import Agent


T = TypeVar("T")

OPENING_MESSAGE = "(The conversation begins: send the first message.)"
_NO_TOOLS: Mapping[str, Any] = dict.fromkeys(("tools", "skills", "skill_resolver", "tool_choice"))
EMPTY_REPLY_TEXT = "Sorry, I have no answer to this. Could you say it in other words?"
"""The reply if the model answers with an empty text twice; `ChatOptions(empty_reply_text=...)` replaces it."""
CHOOSE_INSTRUCTION = "Choose the answer that fits best now. Answer with JSON."


class AgentTurn(TurnPlanner):
    """One turn: planning and its result. The session passed in stays unchanged.

    `history` replaces the messages of the log; `approvals` decides a waiting call of a state; `resumes_reply` means
    that a reply which waited for a decision is resumed. `attempt` has the results of tools in earlier attempts at this
    turn, which are not run again.
    """

    def __init__(
        self,
        agent: Agent,
        session: SessionState,
        history: Sequence[Message] | None,
        override: Mapping[str, Any] | None,
        *,
        approvals: Mapping[str, Approval] | None = None,
        resumes_reply: bool = False,
        attempt: TurnAttempt,
    ) -> None:
        self.name: str = agent.name
        self.session_id = session.id
        self.version = session.version
        self.load_memory_tools: Callable[[], Awaitable[Sequence[Tool]]] | None = None
        self.recovered_call_ids: tuple[str, ...] = ()
        self.validate_version: Callable[[], Awaitable[None]] | None = None
        self._agent = agent
        self._session = session
        self._history = history
        self._override = override
        self._approvals = approvals or {}
        self._resumes_reply = resumes_reply
        self._context: Any = None
        self._move_result = MoveResult(session)
        self._matches: list[GuidelineMatch] = []
        self._parsed_answer = ParsedAnswer()
        self._calls: list[ModelCall] = []
        self._state_tools = StateToolRunner(attempt, self._approvals)
        self._problems: list[TurnProblem] = []
        self._is_replying = False
        self._memory_tools: Sequence[Tool] = ()
        self._reply_request: tuple[ReplyPrompt, Sequence[Message]] | None = None

    async def plan(
        self, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        """Understand and move; return the options and the messages for the reply."""
        if self.validate_version is not None:
            await self.validate_version()
        if log.previous_answer is not None and not self._resumes_reply:
            raise AlreadyAnsweredError(log.previous_answer)
        self._state_tools.turn_log = log
        messages = history if self._history is None else list(self._history)
        await self._resolve_context(messages)
        if self.load_memory_tools is not None:
            self._memory_tools = await self.load_memory_tools()
        if not self._resumes_reply:
            await self._recover_approved_calls()
            self._parsed_answer = await self._understand(options, messages)
            if self.recovered_call_ids:  # the user has not seen the next state's message yet
                interpretation = replace(self._parsed_answer.interpretation, user_spoke=False)
                self._parsed_answer = replace(self._parsed_answer, interpretation=interpretation)
            await self._move(after_decision=bool(self._approvals))
        else:
            self._move_result = self._current_position()
        moved, interpretation = self._move_result, self._parsed_answer.interpretation
        self._session = moved.session
        self._matches = match_guidelines(self._agent.guidelines_at(moved.route, moved.state), interpretation)
        self._is_replying = True
        if not messages:
            messages = [user_message(OPENING_MESSAGE)]
        if self._agent.composition_mode is CompositionMode.CANNED_STRICT:
            return await self._canned_reply_options(options, messages), messages
        options, prompt = self._reply_options(options)
        messages = prompt.add_instructions(messages)
        self._reply_request = (prompt, tuple(messages))
        return options, messages

    async def _recover_approved_calls(self) -> None:
        """Resume a call that was approved and run in an earlier attempt of this turn."""
        if self._approvals:
            return
        self.recovered_call_ids = tuple(
            each.call.id for each in self._session.pending_calls if self._state_tools.has_run(each.call)
        )
        if self.recovered_call_ids:
            await self._move(after_decision=True)
            self._session = self._move_result.session

    async def _resolve_context(self, messages: Sequence[Message]) -> None:
        agent = self._agent
        self._session = agent.restore_session(self._session)
        self._context = await resolve_context(agent.context, self._session, self._override)
        change = await run_before_hook(
            agent.before_response, BeforeResponse(self._session, tuple(messages), self._context)
        )
        if change is not None:
            self._context = update_context(self._context, change)

    async def _understand(self, options: ChatOptions, messages: Sequence[Message]) -> ParsedAnswer:
        """Interpret the newest message; skip the model call without a user message or open questions."""
        messages = trim_to_user_message(messages)
        if self._approvals:
            return ParsedAnswer()
        if not messages or messages[-1].role != "user":
            return ParsedAnswer(Interpretation(user_spoke=False))
        agent, session = self._agent, self._session
        await agent.prepare()
        questions = build_questions(
            agent.routes_by_id,
            agent.route_keys,
            session,
            agent.guidelines,
            agent.canned_responses,
            agent.rank_routes(build_topic(messages)),
            agent.limits,
        )
        user_messages = collect_user_messages(questions, session, messages, agent.local_time(session).date())
        if questions.is_empty:
            newest = user_messages.newest
            return ParsedAnswer(
                Interpretation(only_asks=consists_of_questions(newest), declines=begins_with_refusal(newest))
            )
        system = render_understand_prompt(agent.name, questions, session, agent.terms)
        prompt_messages = [user_message(render_message_prompt(questions, session, messages, agent.local_time(session)))]
        schema = build_output_schema(questions)

        def parse(reply: ChatReply) -> ParsedAnswer:
            return parse_answer(reply.text, questions, user_messages, trusted=reply.raw == SCRIPTED_READING)

        try:
            parsed = await self._ask_and_parse("understand", options, system, prompt_messages, schema, parse)
        except OutputValidationError as error:  # the user is asked to say it in other words
            self._problems.append(TurnProblem("understand", error))
            return ParsedAnswer(Interpretation(user_spoke=False, unreadable=True), (str(error),))
        interpretation = reject_inconsistent_values(agent.routes_by_id, session, parsed.interpretation)
        return parsed if interpretation is parsed.interpretation else replace(parsed, interpretation=interpretation)

    async def _ask_and_parse(
        self,
        purpose: str,
        options: ChatOptions,
        system: str,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        parse: Callable[[ChatReply], T],
    ) -> T:
        """Call the model for a structured answer; retry once if the answer cannot be parsed."""
        reply = await self._call_model(purpose, options, system, messages, schema)
        try:
            return parse(reply)
        except UnreadableAnswer as problem:
            correction = f"Your answer is invalid: {problem}. Answer again with only the corrected JSON."
            messages = [*messages, assistant_message(reply.text or "(empty)"), user_message(correction)]
        reply = await self._call_model(purpose, options, system, messages, schema)
        try:
            return parse(reply)
        except UnreadableAnswer as problem:
            raise OutputValidationError(f"answer to {purpose!r}", str(problem), reply.text, messages) from None

    async def _call_model(
        self, purpose: str, options: ChatOptions, system: str, messages: Sequence[Message], schema: Mapping[str, Any]
    ) -> ChatReply:
        model = self._agent.understand_model or options.model
        structured_options = replace(options, model=model, system=system, **_NO_TOOLS)
        check_budget(structured_options, messages, ())
        settings = {**call_settings(structured_options), "output_schema": schema}
        reply = await resolve_caller(structured_options).complete(CallRequest(tuple(messages), system, (), settings))
        usage, instructions = reply.usage or ChatUsage(), find_instructions(messages)
        self._calls.append(ModelCall(purpose, system, tuple(messages), reply.text, usage, instructions=instructions))
        return reply

    async def _move(self, *, after_decision: bool) -> None:
        agent = self._agent
        walk: MoveGenerator = move(
            agent.routes_by_id,
            self._session,
            self._parsed_answer.interpretation,
            self._now(),
            thresholds=agent.thresholds,
            after_decision=after_decision,
        )
        try:
            request = next(walk)
            while True:
                request = walk.send(await self._run_state_tool(request))
        except StopIteration as stop:
            self._move_result = stop.value

    def _current_position(self) -> MoveResult:
        """Return the session's current position, for a reply that is resumed."""
        session, current = self._session, self._session.current_state
        route = find_current_route(self._agent.routes_by_id, session)
        return MoveResult(session, route, None if route is None or current is None else route.state(current.id))

    async def _run_state_tool(self, request: ToolRunRequest) -> ToolRunResult:
        self._session = request.session
        result = await self._state_tools.run(request)
        if result.run.error is None:
            self._context = update_context(self._context, result.context)
        return result

    def _render_reply_prompt(self, options: ChatOptions, **closing_sections: str) -> ReplyPrompt:
        interpretation, moved = self._parsed_answer.interpretation, self._move_result
        context = split_context(self._agent.context, self._session, self._context)
        return render_reply_prompt(
            self._agent, moved, interpretation, self._matches, context, options.system, closing_sections
        )

    def _reply_options(self, options: ChatOptions) -> tuple[ChatOptions, ReplyPrompt]:
        agent, moved, interpretation = self._agent, self._move_result, self._parsed_answer.interpretation
        texts: list[str] = []
        if agent.composition_mode is not CompositionMode.FLUID:
            levels = collect_canned_levels(moved, agent)
            texts = render_applicable_canned(levels, moved.session.extracted, self._context, interpretation)
        prompt = self._render_reply_prompt(options, wording=render_wording(agent.composition_mode, texts))
        extra_tools = (*(options.tools or ()), *self._memory_tools)
        tools = (
            agent.all_tools(extra_tools)
            if self._resumes_reply
            else agent.tools_at(moved.route, self._matches, extra_tools)
        )
        fallback = options.empty_reply_text or EMPTY_REPLY_TEXT
        return replace(options, system=prompt.system, tools=tools or None, empty_reply_text=fallback), prompt

    async def _canned_reply_options(self, options: ChatOptions, messages: Sequence[Message]) -> ChatOptions:
        """Return options that make the reply exactly one canned response."""
        agent, moved, interpretation = self._agent, self._move_result, self._parsed_answer.interpretation
        place = (moved.state or moved.route or agent).place
        data = moved.session.extracted
        texts = select_strict_texts(collect_canned_levels(moved, agent), data, self._context, interpretation, place)
        text = texts[0] if len(texts) == 1 else await self._choose_canned_text(options, texts, messages)
        return replace(
            options,
            model="canned",
            chat_fn=build_fixed_reply(text),
            chat_stream_fn=None,
            system=None,
            **_NO_TOOLS,
        )

    async def _choose_canned_text(self, options: ChatOptions, texts: Sequence[str], messages: Sequence[Message]) -> str:
        answers_by_key = {f"r{number}": text for number, text in enumerate(texts, 1)}
        answer_lines = "\n".join(f"{key}: {dump_json_line(text)}" for key, text in answers_by_key.items())
        prompt = self._render_reply_prompt(options, answers=f"{CHOOSE_INSTRUCTION}\n{answer_lines}")
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(answers_by_key)}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        now = self._agent.local_time(self._session)
        conversation = user_message(render_message_prompt(Questions({}), self._session, messages, now))
        prompt_messages = prompt.add_instructions([conversation])

        def parse(reply: ChatReply) -> str:
            return parse_choice(reply.text, answers_by_key)

        try:
            return await self._ask_and_parse("choose", options, prompt.system, prompt_messages, schema, parse)
        except OutputValidationError as error:
            self._problems.append(TurnProblem("choose", error))
            return texts[0]

    @property
    def tool_host(self) -> ToolHost:
        return self

    def tool_context(self) -> ToolContext:
        route = self._move_result.route or find_current_route(self._agent.routes_by_id, self._session)
        domains = self._agent.domains.filtered(None if route is None else route.domains)
        session = replace(self._session, extracted=copy.deepcopy(dict(self._session.extracted)))
        return ToolContext(self._context, session, session.extracted, domains)

    def update(self, update: ToolUpdate) -> None:
        """Apply a tool's update immediately if the model called the tool. For a state's tool, the walk applies it."""
        if not self._is_replying:
            self._state_tools.add_update(update)
            return
        data = dict(self._session.extracted)
        for name, value in update.data.items():
            if value is None:
                data.pop(name, None)
                continue
            try:
                if self._move_result.route is None:
                    raise InvalidValue("no route is active to store it")
                data[name] = self._move_result.route.schema.check(name, value)
            except InvalidValue as problem:
                self._problems.append(TurnProblem("tool_data", InvalidValue(f"{name}: {problem}")))
        self._session = replace(self._session, extracted=data, context={**self._session.context, **update.context})
        self._context = update_context(self._context, update.context)

    def planning_usage(self) -> ChatUsage:
        return sum((call.usage for call in self._calls), ChatUsage())

    def reply_metadata(self) -> Mapping[str, Any]:
        route, state = self._move_result.route, self._move_result.state
        return {
            "agent": self.name,
            **({} if route is None else {"route": route.id}),
            **({} if state is None else {"state": state.id}),
        }

    @property
    def invocations(self) -> Sequence[ToolInvocation]:
        """The tool calls made by states in this turn."""
        return self._state_tools.invocations

    def session_after(self) -> SessionState:
        """Return the session after the turn."""
        metadata = {**self._session.metadata, "last_updated_at": self._now()}
        route = self._move_result.route
        last_route = None if route is None else route.id
        return replace(self._session, version=self.version + 1, metadata=metadata, last_route=last_route)

    def response(self, result: TurnResult) -> Response:
        """Build the response from the result of the reply."""
        moved = self._move_result
        if self._reply_request is not None:
            prompt, messages = self._reply_request
            self._calls.append(
                ModelCall(
                    "reply",
                    prompt.system,
                    messages,
                    result.text,
                    result.usage,
                    result.model_calls,
                    prompt.instructions,
                )
            )
        routes, interpretation = self._agent.routes_by_id, self._parsed_answer.interpretation
        trace = Trace(
            scores={routes[id].title: score for id, score in (interpretation.scores or {}).items()},
            route=moved.choice.why,
            walked=moved.walked,
            conditions=tuple(sorted(interpretation.true_conditions)),
            guidelines=tuple(self._matches),
            rejected=(*interpretation.rejected, *moved.rejected),
            problems=(*self._parsed_answer.problems, *moved.ignored),
            went_back=moved.went_back,
            queued=tuple(route.title for route in moved.queued),
            calls=tuple(self._calls),
        )
        paused_calls = [each for route in self._session.paused_routes.values() for each in route.pending_calls]
        pending = tuple(each.call for each in (*self._session.pending_calls, *paused_calls))
        return Response(
            message=result.text,
            session=self.session_after(),
            tool_calls=(*self._state_tools.invocations, *result.tool_invocations),
            route=None if moved.route is None else RouteInfo(moved.route.id, moved.route.title),
            state=None if moved.state is None else StateInfo(moved.state.id, moved.state.title),
            completed=moved.ended,
            completed_routes=tuple(RouteInfo(route.id, route.title) for route in moved.completed),
            asks=moved.missing,
            pending=(*pending, *result.pending),
            trace=trace,
            conversation_id=result.conversation_id,
            context=result.context,
            problems=(*result.problems, *self._problems),
            turn=result,
        )

    def _now(self) -> datetime:
        return self._agent.clock()


MemorySource = Any
"""A user's handle, a `Tellback`, or a function that returns a handle for a session."""

SessionKey = tuple[Scope | str | None, str]
"""The owner of a session, and its id."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How an agent uses a memory.

    The agent's conversations are stored in `namespace` (default: the agent's name). A conversation is closed after
    `close_after` without a message; then memories are extracted from it into `space`. `recall` contains arguments of
    `working_context.build`. With `tools` the model can search the memory. With `write` it can remember and forget on
    request.

    >>> MemoryOptions(space="travel").tools
    True
    """

    namespace: str | None = None
    space: str = "default"
    recall: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True
    write: bool = False
    close_after: timedelta | float | None = CHAT_CLOSE_AFTER

    def namespace_of(self, agent: str) -> str:
        """Return the namespace of this agent's conversations."""
        return self.namespace or slug(agent) or "agent"


async def resolve_memory_user(memory: MemorySource, session: SessionState, requested: Any) -> UserHandle | None:
    """Return the user whose memory the session uses, or None for an agent without a memory."""
    if memory is None:
        if requested is not None:
            raise InvalidArgumentError("user requires an agent with a memory: pass Agent(memory=...).")
        return None
    if requested is not None and not isinstance(requested, str):
        return _validate_user_handle(requested)
    if hasattr(memory, "user") and not hasattr(memory, "scope"):
        name = requested or session.metadata.get("user_id")
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(
                "the agent's memory has many users: pass respond(..., user=...), or"
                " create_session(metadata={'user_id': ...})."
            )
        return _validate_user_handle(memory.user(name))
    if requested is not None:
        raise InvalidArgumentError("user must not be passed: this agent's memory belongs to one user.")
    if callable(memory):
        found = cast("Callable[[SessionState], Any]", memory)(session)
        return _validate_user_handle(await found if inspect.isawaitable(found) else found)
    return _validate_user_handle(memory)


def _validate_user_handle(handle: Any) -> UserHandle:
    if not hasattr(handle, "conversations") or not hasattr(handle, "working_context"):
        raise ConfigurationError(
            f"memory must be a user's handle such as tb.user('maya'), a Tellback, or a function that returns a handle,"
            f" got {handle!r:.80}."
        )
    if not hasattr(type(handle), "chat_stream") or hasattr(handle, "_target"):
        raise ConfigurationError("memory must be an asynchronous handle: open Tellback with `async with`.")
    return cast("UserHandle", handle)


async def build_memory_tools(user: UserHandle, namespace: str, options: MemoryOptions) -> list[Tool]:
    """Return the tools with which the model uses the user's memory."""
    if not options.tools and not options.write:
        return []
    from tellback.memory.tools import memory_tools  # imported only if needed

    space_id = await NamespaceMemory(user, namespace, options.space, exclusive=True).space_id()
    tools = memory_tools(user.memory, space_id, write=options.write)
    return tools if options.tools else tools[3:]


def format_owner(key: SessionKey) -> str:
    """Format the owner for storage in the session."""
    owner = key[0]
    if isinstance(owner, Scope):
        return dump_json([owner.tenant_id, owner.app_id, owner.user_id])
    return owner or ""


def get_user_id(key: SessionKey) -> str | None:
    """Return the id of the session's user, or None if unknown."""
    return key[0].user_id if isinstance(key[0], Scope) else key[0]


def validate_owner(session: SessionState, key: SessionKey) -> None:
    """Raise `NotFoundError` for a session that belongs to another user, or was created for another user."""
    user_id, intended_user_id = get_user_id(key), session.metadata.get("user_id")
    is_other_user = user_id is not None and isinstance(intended_user_id, str) and intended_user_id not in ("", user_id)
    if is_other_user or (session.owner and session.owner != format_owner(key)):
        raise NotFoundError("session", session.id, "Each user needs their own session ids.")


def build_session_key(user: UserHandle | None, sender: Identity | None, session: SessionState) -> SessionKey:
    """Return the key of a session in this process: its owner and its id."""
    return (user.scope if user is not None else None if sender is None else sender.user_id), session.id
