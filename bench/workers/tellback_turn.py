"""Tellback: `user.chat` and the layers under it, on a copy of a file with the memories.

With the argument `telemetry` OpenTelemetry's SDK is loaded; this needs a separate process.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import protocol
import turn_batches
from memory_batches import MemoryData
from persist_batches import ANSWER
from protocol import expect
from turn_batches import HITS, SYSTEM, USER, CallLog, ExpectedTurn, ModelCall, TurnAnswer

from tellback import ChatOptions, LoopResult, Skill, Tellback, run_loop_messages, stream_loop, telemetry
from tellback.chat import ChatRequest, ModelBase
from tellback.turn import TurnConfig, TurnInput, TurnResult, run_chat_turn
from tellback.types import ChatReply, Message, ReplyDelta, StreamStop, TextDelta
from tellback.types.conversations import Identity, Session

FILE = "tellback.db"
NAMESPACE = "chat"
TAIL = 30
"""The number of messages that a turn sends by default."""
CONVERSATION = 20
"""Messages per conversation from which memories were made."""
SPEAKERS = {"user": "Ann", "assistant": "Bob"}
CLOSE_AFTER = timedelta(hours=1)
WITH_TELEMETRY = sys.argv[1:] == ["telemetry"]
MIN_SPANS = 3
"""A turn has at least the spans of the turn, of a recall and of a model call."""

REPLY = ChatReply(text=ANSWER)
DELTAS: tuple[ReplyDelta, ...] = (*map(TextDelta, protocol.PIECES), StreamStop("end_turn"))
SHORT_DELTAS: tuple[ReplyDelta, ...] = (TextDelta(ANSWER), StreamStop("end_turn"))
SKILLS = [
    Skill(
        f"skill-{number}",
        f"How letters of kind {number} are written, checked and sent in this company.",
        when=[f"a letter of kind {number}", f"form {number} is mentioned"],
        body="Write it in plain words. " * 20,
    )
    for number in range(20)
]


class InstantModel(ModelBase):
    model = "instant"
    provider = "bench"

    def __init__(self, call_log: CallLog, deltas: Sequence[ReplyDelta]) -> None:
        self._call_log = call_log
        self._deltas = deltas

    async def _complete(self, request: ChatRequest) -> ChatReply:
        self._call_log.record_call(request, len(request.messages))
        return REPLY

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        self._call_log.record_call(request, len(request.messages))
        for delta in self._deltas:
            yield delta


@dataclass(frozen=True)
class ConversationHandle:
    """A conversation, its session, and the messages for the loop alone."""

    id: str
    session: str
    history: list[Message]


class TurnRunner:
    def __init__(self) -> None:
        self.call_log = CallLog()
        self._model = InstantModel(self.call_log, SHORT_DELTAS)
        self._streaming_model = InstantModel(self.call_log, DELTAS)
        self._sessions = 0
        self._spans: Any = None

    async def fill(self, folder: Path, data: MemoryData, size: int) -> None:
        """Store conversations verbatim by closing them; then bind the namespace to the space."""
        self._prepared_file = folder / FILE
        async with Tellback(self._prepared_file) as tb:
            user = tb.user(USER)
            space = await user.memory.create_space("default")
            for start in range(0, size, CONVERSATION):
                conversation = await user.conversations.create("past", metadata={"speakers": SPEAKERS})
                texts = data.memories[:size][start : start + CONVERSATION]
                await user.conversations.append_messages(conversation.id, to_messages(texts))
                await user.conversations.close(conversation.id)
                await user.memory.remember_conversation(space.id, conversation.id)
            await user.memory.create_binding({"namespace": NAMESPACE, "user_id": USER}, [space.id])
            await tb.jobs.drain()

    async def open(self, kind: str, folder: Path) -> None:
        shutil.copy(self._prepared_file, folder / FILE)
        # A summary would be an additional model call, which no other contender makes.
        self._tb = Tellback(folder / FILE, model=self._model, summary_every=None)
        await self._tb.open()
        self._user = self._tb.user(USER)
        [space] = await self._user.memory.list_spaces()
        self._space = space.id
        # Messages in a bound namespace are remembered, so chats without a space use another namespace.
        self._namespace = "unbound" if kind == "chat_spaceless" else NAMESPACE
        if kind == "chat_spans":
            self._trace()

    async def close(self, count: int) -> None:
        await self._tb.close()
        if self._spans is not None:
            telemetry.configure()
            expect("spans", len(self._spans.get_finished_spans()) >= MIN_SPANS * count, True)
            self._spans = None

    def _trace(self) -> None:
        """Collect spans in a list, which is dropped after the batch."""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._spans))
        telemetry.configure(tracer_provider=provider)

    async def create_conversation(self, texts: Sequence[str]) -> ConversationHandle:
        session = f"session-{self._sessions}"
        self._sessions += 1
        conversations = self._user.conversations
        conversation = await conversations.find_or_create(self._namespace, session, close_after=CLOSE_AFTER)
        messages = to_messages(texts)
        await conversations.append_messages(conversation.id, messages)
        history = [Message(each["role"], each["content"]) for each in messages]
        return ConversationHandle(conversation.id, session, history[-TAIL + 1 :])

    async def turn(self, kind: str, conversation: ConversationHandle, text: str) -> Any:
        return await getattr(self, f"_{kind}")(conversation, text)

    async def _loop(self, conversation: ConversationHandle, text: str) -> LoopResult:
        options = ChatOptions(model=self._model, system=SYSTEM)
        return await run_loop_messages(options, [*conversation.history, Message("user", text)])

    async def _recall(self, conversation: ConversationHandle, text: str) -> Any:
        return await self._user.memory.recall_by_topic(self._space, text, limit=HITS)

    async def _context(self, conversation: ConversationHandle, text: str) -> Any:
        return await self._user.working_context.build(conversation.id, self._space, text, template_id="messages")

    async def _turn(self, conversation: ConversationHandle, text: str) -> Any:
        return await self._user.conversations.run_turn(conversation.id, user_text=text, options={"system": SYSTEM})

    async def _turn_memory(self, conversation: ConversationHandle, text: str) -> Any:
        return await self._user.conversations.run_turn(
            conversation.id, user_text=text, options={"system": SYSTEM}, memory_space_id=self._space
        )

    async def _chat_turn(self, conversation: ConversationHandle, text: str) -> TurnResult:
        return await self._run_chat_turn(conversation, text, True)

    async def _chat_turn_unbound(self, conversation: ConversationHandle, text: str) -> TurnResult:
        return await self._run_chat_turn(conversation, text, False)

    async def _run_chat_turn(self, conversation: ConversationHandle, text: str, binds: bool) -> TurnResult:
        config = TurnConfig(self._user, NAMESPACE, system_base=SYSTEM)
        input = TurnInput(
            Session(conversation.session),
            Identity(USER, "Maya"),
            text,
            recall_opts={"limit": HITS, "min_score": 0.0},
            bind_tool_ctx=binds,
            ctx_extras={"plan": "pro", "locale": "en"} if binds else None,
        )
        return await run_chat_turn(config, input)

    async def _chat(self, conversation: ConversationHandle, text: str) -> TurnResult:
        return await self._user.chat(text, system=SYSTEM, session_id=conversation.session)

    _chat_spans = _chat

    async def _chat_spaceless(self, conversation: ConversationHandle, text: str) -> TurnResult:
        return await self._user.chat(text, self._namespace, None, system=SYSTEM, session_id=conversation.session)

    async def _chat_skills(self, conversation: ConversationHandle, text: str) -> TurnResult:
        return await self._user.chat(text, system=SYSTEM, session_id=conversation.session, skills=SKILLS)

    async def _stream_loop(self, conversation: ConversationHandle, text: str) -> Any:
        options = ChatOptions(model=self._streaming_model, system=SYSTEM)
        return await _drain_stream(stream_loop(options, [*conversation.history, Message("user", text)]))

    async def _stream_turn(self, conversation: ConversationHandle, text: str) -> Any:
        options = {"system": SYSTEM}
        return await _drain_stream(
            self._user.conversations.stream_turn(
                conversation.id, user_text=text, model=self._streaming_model, options=options
            )
        )

    async def _chat_stream(self, conversation: ConversationHandle, text: str) -> Any:
        # Answers of 1,000 words fill the default budget, so fewer messages would be sent than by the loop alone.
        recall = {"token_budget": 100_000}
        chat = self._user.chat_stream
        return await _drain_stream(
            chat(text, system=SYSTEM, session_id=conversation.session, model=self._streaming_model, recall=recall)
        )

    def to_answer(self, kind: str, outcome: Any) -> TurnAnswer:
        if kind == "recall":
            return TurnAnswer("", recalled=[hit.atom.text for hit in outcome.hits])
        if kind == "context":
            return TurnAnswer("", recalled=[atom.text for atom in outcome.atoms_used])
        pieces = 1
        if isinstance(outcome, tuple):
            pieces, outcome = outcome
        if isinstance(outcome, TurnResult):
            expect("problems", outcome.problems, ())
        context = getattr(outcome, "context", None)
        recalled = None if context is None else [atom.text for atom in context.atoms_used]
        return TurnAnswer(outcome.text, pieces, recalled)

    def expected_turn(self, kind: str, length: int) -> ExpectedTurn:
        streams = "stream" in kind
        return ExpectedTurn(
            text="" if kind in ("recall", "context") else protocol.STREAMED_TEXT if streams else ANSWER,
            window=None if kind in ("recall", "context") else TAIL,
            pieces=len(protocol.PIECES) if streams else 1,
            recalls=kind not in ("loop", "turn", "chat_spaceless", "stream_loop", "stream_turn"),
            persists=kind not in ("loop", "recall", "context", "stream_loop"),
        )

    def to_model_call(self, call: Any) -> ModelCall:
        request, _ = call
        return ModelCall(request.system or "", [str(message.content) for message in request.messages])

    async def load_texts(self, conversation: ConversationHandle) -> list[str]:
        return [message.text for message in await self._user.conversations.messages(conversation.id)]


async def _drain_stream(items: Any) -> tuple[int, Any]:
    """Return the number of text pieces, and the last event."""
    pieces, last = 0, None
    async with aclosing(items):
        async for item in items:
            if isinstance(item, TextDelta):
                pieces += 1
            last = item
    return pieces, last


def to_messages(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[index % 2], "content": text} for index, text in enumerate(texts)]


KINDS = (
    *("loop", "recall", "context", "turn", "turn_memory", "chat_turn", "chat_turn_unbound"),
    *("chat", "chat_spaceless", "chat_skills", "stream_loop", "stream_turn", "chat_stream"),
)

if __name__ == "__main__":
    if WITH_TELEMETRY:
        import opentelemetry.sdk.trace  # noqa: F401
    turn_batches.serve(TurnRunner(), ["chat", "chat_spans"] if WITH_TELEMETRY else KINDS, ["tellback"])
