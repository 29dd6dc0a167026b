"""One turn of an agent: understand, move, reply. The turn lifecycle runs it once the user's message is stored."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from tellback.agent.context import context_values, resolve_context, updated_context
from tellback.agent.hooks import BeforeResponse, call_before
from tellback.agent.move import Heard, Move, Moved, Ran, RunTool, move
from tellback.agent.reading import Understanding, Unreadable, agreed, chosen, read_answer, up_to_user
from tellback.agent.reply import all_texts, canned_levels, matched, reply_prompt, sayable, saying, wording
from tellback.agent.response import ModelCall, Response, RouteInfo, StateInfo, Trace
from tellback.agent.session import SessionState
from tellback.agent.state_tools import StateTools
from tellback.agent.tries import Done
from tellback.agent.understand import Questions, output_schema, questions, system_prompt, topic_of, user_prompt
from tellback.agent.value_reading import InvalidValue
from tellback.agent.values import CompositionMode, GuidelineMatch
from tellback.chat import ChatOptions
from tellback.chat.approval import Approval
from tellback.chat.budget import check_budget
from tellback.chat.dispatch import call_settings, caller_for
from tellback.conversations.turn_requests import SessionEnd, TurnLog
from tellback.errors import AlreadyAnsweredError, OutputValidationError
from tellback.tools import Tool
from tellback.tools.context import ToolContext, ToolUpdate
from tellback.turn.values import TurnResult
from tellback.types import (
    ChatReply,
    ChatUsage,
    Message,
    assistant_message,
    user_message,
)
from tellback.types.conversations import ToolInvocation
from tellback.types.jsontext import dump_line
from tellback.types.turns import TurnProblem

if TYPE_CHECKING:
    from tellback.agent.agent import Agent

T = TypeVar("T")

BEGIN = "(The conversation begins: speak first.)"
CHOOSE = "Choose the answer that fits best what is to be said now. Answer with JSON."


class AgentTurn:
    """A turn that is being planned, and what becomes of it. The session it was given stays as it was.

    `history` are the messages to answer, if they are not those of the log; `approvals` decides a waiting call of a
    state, and `goes_on` means that the reply itself is taken up again, where it waited for a decision. `done` is what
    tools gave in a first try of this very turn, which failed later: they are not run again.
    """

    def __init__(
        self,
        agent: Agent,
        session: SessionState,
        history: Sequence[Message] | None,
        override: Mapping[str, Any] | None,
        *,
        approvals: Mapping[str, Approval] | None = None,
        goes_on: bool = False,
        done: Done,
    ) -> None:
        self.name = agent.name
        self.session_id = session.id
        self.version = session.version
        self.memory_tools: Callable[[], Awaitable[Sequence[Tool]]] | None = None
        self.caught_up: tuple[str, ...] = ()
        self.still_due: Callable[[], Awaitable[None]] | None = None
        self.session_end: SessionEnd | None = None
        self._agent = agent
        self._session = session
        self._history = history
        self._override = override
        self._approvals = approvals or {}
        self._goes_on = goes_on
        self._context: Any = None
        self._moved = Moved(session)
        self._matches: list[GuidelineMatch] = []
        self._understood = Understanding()
        self._calls: list[ModelCall] = []
        self._tools = StateTools(done, self._approvals)
        self._problems: list[TurnProblem] = []
        self._replying = False
        self._memory_tools: Sequence[Tool] = ()
        self._reply_sent: tuple[str | None, Sequence[Message]] | None = None

    async def plan(
        self, options: ChatOptions, history: list[Message], log: TurnLog
    ) -> tuple[ChatOptions, list[Message]]:
        """Understand and move; gives how the model is to reply, and to what."""
        if self.still_due is not None:
            await self.still_due()
        if log.answered is not None and not self._goes_on:
            raise AlreadyAnsweredError(log.answered)
        self._tools.log = log
        messages = history if self._history is None else list(self._history)
        await self._resolve(messages)
        if self.memory_tools is not None:
            self._memory_tools = await self.memory_tools()
        if not self._goes_on:
            await self._catch_up()
            self._understood = await self._understand(options, messages)
            if self.caught_up:  # nobody has heard yet what the state that follows has to say
                heard = replace(self._understood.heard, answered=False)
                self._understood = replace(self._understood, heard=heard)
            await self._move(decides=bool(self._approvals))
        else:
            self._moved = self._standing()
        moved, heard = self._moved, self._understood.heard
        self._session = moved.session
        self._matches = matched(self._agent.guidelines_at(moved.route, moved.state), heard)
        self._replying = True
        if not messages:
            messages = [user_message(BEGIN)]
        if self._agent.composition_mode is CompositionMode.CANNED_STRICT:
            return await self._strictly(options, messages), messages
        options = self._reply_options(options)
        self._reply_sent = (options.system, tuple(messages))
        return options, messages

    async def _catch_up(self) -> None:
        """Go on from a call that was approved and run in a first try of this turn, which failed later."""
        if self._approvals:
            return
        self.caught_up = tuple(each.call.id for each in self._session.waiting if self._tools.has_run(each.call))
        if self.caught_up:
            await self._move(decides=True)
            self._session = self._moved.session

    async def _resolve(self, messages: Sequence[Message]) -> None:
        agent = self._agent
        self._session = agent.restored(self._session)
        self._context = await resolve_context(agent.context, self._session, self._override)
        change = await call_before(agent.before_response, BeforeResponse(self._session, tuple(messages), self._context))
        if change is not None:
            self._context = updated_context(self._context, change)

    async def _understand(self, options: ChatOptions, messages: Sequence[Message]) -> Understanding:
        """What the newest message means; nothing, if nobody spoke or nothing is to be decided."""
        messages = up_to_user(messages)
        if self._approvals:
            return Understanding()
        if not messages or messages[-1].role != "user":
            return Understanding(Heard(answered=False))
        await self._agent.prepare()
        asked = self._questions(topic_of(messages))
        if asked.is_empty:
            return Understanding()
        agent, session = self._agent, self._session
        system = system_prompt(agent.name, asked, session, agent.terms)
        said = [user_message(user_prompt(asked, session, messages, self._now()))]
        schema = output_schema(asked)
        read = await self._read("understand", options, system, said, schema, lambda text: read_answer(text, asked))
        return replace(read, heard=agreed(agent.routes_by_id, session, read.heard))

    async def _read(
        self,
        purpose: str,
        options: ChatOptions,
        system: str,
        said: Sequence[Message],
        schema: Mapping[str, Any],
        read: Callable[[str], T],
    ) -> T:
        """A structured answer; one that cannot be read is asked for once more."""
        reply = await self._ask(purpose, options, system, said, schema)
        try:
            return read(reply.text)
        except Unreadable as problem:
            correction = f"That cannot be read: {problem}. Answer again, with the corrected JSON and nothing else."
            said = [*said, assistant_message(reply.text or "(nothing)"), user_message(correction)]
        reply = await self._ask(purpose, options, system, said, schema)
        try:
            return read(reply.text)
        except Unreadable as problem:
            raise OutputValidationError(f"answer to {purpose!r}", str(problem), reply.text, said) from None

    def _questions(self, said: str) -> Questions:
        agent = self._agent
        return questions(
            agent.routes_by_id,
            agent.route_keys,
            self._session,
            agent.guidelines,
            agent.canned_responses,
            agent.ranked_routes(said),
            agent.limits,
        )

    async def _ask(
        self, purpose: str, options: ChatOptions, system: str, messages: Sequence[Message], schema: Mapping[str, Any]
    ) -> ChatReply:
        """One structured call."""
        model = self._agent.understand_model or options.model
        bare = replace(
            options, model=model, system=system, tools=None, skills=None, skill_resolver=None, tool_choice=None
        )
        check_budget(bare, messages, ())
        settings = {**call_settings(bare), "output_schema": schema}
        reply = await caller_for(bare).complete(tuple(messages), system, (), settings)
        self._calls.append(ModelCall(purpose, system, tuple(messages), reply.text, reply.usage or ChatUsage()))
        return reply

    async def _move(self, *, decides: bool) -> None:
        agent = self._agent
        walk: Move = move(
            agent.routes_by_id,
            self._session,
            self._understood.heard,
            self._now(),
            thresholds=agent.thresholds,
            decides=decides,
        )
        try:
            wanted = next(walk)
            while True:
                wanted = walk.send(await self._run(wanted))
        except StopIteration as stop:
            self._moved = stop.value

    def _standing(self) -> Moved:
        """Where the session stands, for a reply that is taken up again."""
        session, current = self._session, self._session.current_route
        route = None if current is None else self._agent.routes_by_id.get(current.id)
        at = session.current_state
        state = route.state(at.id) if route is not None and at is not None else None
        return Moved(session, route, state)

    async def _run(self, wanted: RunTool) -> Ran:
        self._session = wanted.session
        ran = await self._tools.run(wanted)
        if ran.run.error is None:
            self._context = updated_context(self._context, ran.context)
        return ran

    def _reply_options(self, options: ChatOptions) -> ChatOptions:
        agent, moved, heard = self._agent, self._moved, self._understood.heard
        context = context_values(self._context)
        levels = canned_levels(moved, agent.canned_responses)
        texts: list[str] = []
        if agent.composition_mode is not CompositionMode.FLUID:
            texts = all_texts(levels, moved.session.extracted, self._context, heard)
        system = reply_prompt(
            agent.persona,
            moved,
            heard,
            self._matches,
            context,
            agent.routes_by_id,
            agent.offered_routes() if moved.route is None else (),
            wording(agent.composition_mode, texts),
            options.system,
        )
        more = (*(options.tools or ()), *self._memory_tools)
        tools = agent.every_tool(more) if self._goes_on else agent.tools_at(moved.route, self._matches, more)
        return replace(options, system=system, tools=tools or None)

    async def _strictly(self, options: ChatOptions, messages: Sequence[Message]) -> ChatOptions:
        """Options by which a canned response is said, and nothing else."""
        agent, moved, heard = self._agent, self._moved, self._understood.heard
        place = f"agent {agent.name!r}" if moved.route is None else (moved.state or moved.route).place
        data = moved.session.extracted
        texts = sayable(canned_levels(moved, agent.canned_responses), data, self._context, heard, place)
        text = texts[0] if len(texts) == 1 else await self._choose(options, texts, messages)
        return replace(
            options,
            model="canned",
            chat_fn=saying(text),
            chat_stream_fn=None,
            system=None,
            tools=None,
            skills=None,
            skill_resolver=None,
            tool_choice=None,
        )

    async def _choose(self, options: ChatOptions, texts: Sequence[str], messages: Sequence[Message]) -> str:
        keyed = {f"r{number}": text for number, text in enumerate(texts, 1)}
        agent, moved = self._agent, self._moved
        prompt = reply_prompt(
            agent.persona,
            moved,
            self._understood.heard,
            self._matches,
            context_values(self._context),
            agent.routes_by_id,
            agent.offered_routes() if moved.route is None else (),
            "",
            options.system,
        )
        listed = "\n".join(f"{key}: {dump_line(text)}" for key, text in keyed.items())
        system = f"{prompt}\n\n# Answers\n{CHOOSE}\n{listed}"
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "string", "enum": list(keyed)}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        said = [user_message(user_prompt(Questions({}), self._session, messages, self._now()))]
        return await self._read("choose", options, system, said, schema, lambda text: chosen(text, keyed))

    def tool_context(self) -> ToolContext:
        """What tools of this turn may know."""
        route = self._moved.route
        current = self._session.current_route
        if route is None and current is not None:
            route = self._agent.routes_by_id.get(current.id)
        domains = self._agent.domains.filtered(None if route is None else route.domains)
        session = replace(self._session, extracted=copy.deepcopy(dict(self._session.extracted)))
        return ToolContext(self._context, session, session.extracted, domains)

    def update(self, update: ToolUpdate) -> None:
        """Take what a tool gives back: with the state's walk, or at once if the model called it."""
        if not self._replying:
            self._tools.take(update)
            return
        data = dict(self._session.extracted)
        for name, value in update.data.items():
            if value is None:
                data.pop(name, None)
                continue
            try:
                if self._moved.route is None:
                    raise InvalidValue("no route is active that could hold it")
                data[name] = self._moved.route.gathering.check(name, value)
            except InvalidValue as problem:
                self._problems.append(TurnProblem("tool_data", InvalidValue(f"{name}: {problem}")))
        self._session = replace(self._session, extracted=data, context={**self._session.context, **update.context})
        self._context = updated_context(self._context, update.context)

    def planning_usage(self) -> ChatUsage:
        """The tokens of what was asked before the reply."""
        return sum((call.usage for call in self._calls), ChatUsage())

    def reply_metadata(self) -> Mapping[str, Any]:
        """What is kept with the stored reply."""
        route, state = self._moved.route, self._moved.state
        return {
            "agent": self.name,
            **({} if route is None else {"route": route.id}),
            **({} if state is None else {"state": state.id}),
        }

    @property
    def invoked(self) -> Sequence[ToolInvocation]:
        """The tools that its states ran."""
        return self._tools.invoked

    def session_after(self) -> SessionState:
        """Where the session stands after the turn."""
        metadata = {**self._session.metadata, "last_updated_at": self._now()}
        return replace(self._session, version=self.version + 1, metadata=metadata)

    def response(self, result: TurnResult) -> Response:
        """The turn's answer, once it has been given."""
        moved = self._moved
        if self._reply_sent is not None:
            system, messages = self._reply_sent
            self._calls.append(ModelCall("reply", system, messages, result.text, result.usage, result.model_calls))
        routes, heard = self._agent.routes_by_id, self._understood.heard
        trace = Trace(
            scores={routes[id].title: score for id, score in (heard.scores or {}).items()},
            route=moved.choice.why,
            walked=moved.walked,
            conditions=tuple(sorted(heard.holds)),
            guidelines=tuple(self._matches),
            rejected=heard.rejected,
            problems=self._understood.problems,
            calls=tuple(self._calls),
        )
        left = [each for route in self._session.left.values() for each in route.waiting]
        waiting = tuple(each.call for each in (*self._session.waiting, *left))
        return Response(
            message=result.text,
            session=self.session_after(),
            tool_calls=(*self._tools.invoked, *result.tool_invocations),
            route=None if moved.route is None else RouteInfo(moved.route.id, moved.route.title),
            state=None if moved.state is None else StateInfo(moved.state.id, moved.state.title),
            completed=moved.ended,
            asks=moved.missing,
            pending=(*waiting, *result.pending),
            trace=trace,
            conversation_id=result.conversation_id,
            context=result.context,
            problems=(*result.problems, *self._problems),
        )

    def _now(self) -> datetime:
        return self._agent.clock()
