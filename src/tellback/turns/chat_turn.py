"""`run_chat_turn` and its steps.

The steps in order: `build_system` recalls, `persist_user_turn` stores the message, `stream_llm` asks the model,
`persist_assistant_turn` stores the answer. `run_chat_turn` does all of them through the turn engine; alone, a step does
its part and raises its errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tellback.chat import ChatOptions, LoopResult, stream_loop
from tellback.errors import ConversationClosedError, InvalidArgumentError
from tellback.request import Request
from tellback.stores import TurnDraft
from tellback.turns.attachments import append_contents, append_summaries, build_user_message, parse_attachments
from tellback.turns.chat import NamespaceMemory
from tellback.turns.engine import ReplyEvents
from tellback.turns.request import (
    RecalledContext,
    TurnRequest,
    build_draft,
    query_from_text,
    resolve_options,
    with_attachments,
)
from tellback.turns.types import (
    DEFAULT_RECALL_OPTIONS,
    TurnConfig,
    TurnInput,
    TurnResult,
    build_turn_result,
    get_conversation,
    try_step,
)
from tellback.types import ChatReply, TextDelta
from tellback.types.conversations import Conversation, MessageDraft, StoredMessage, TurnOutcome, TurnProblem
from tellback.types.ids import new_id
from tellback.types.memory import WorkingContext

log = logging.getLogger("tellback.turn")

MEMORY_HEADING = "## Memory"
SESSION_CLOSE_AFTER = timedelta(days=1)
"""A session that nobody goes on with for so long is over, and becomes memories."""


async def run_chat_turn(cfg: TurnConfig, input: TurnInput) -> TurnResult:
    """Answer one message, with what is remembered: recall, store the message, ask the model, store the answer.

    Whoever listens (`tellback.events.listen`) gets `reply:start`, `reply:delta`, `reply:end` or `reply:error`, with
    the ids of the session and the message. A store that fails does not end the turn: `result.problems` says what was
    not recalled or not kept. A model that fails does, with its own error.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async with Tellback(":memory:", model=ScriptedModel([says("Hello, Maya!")])) as rc:
    ...         cfg = TurnConfig(rc.user("maya"), agent_name="greeter", system_base="Be kind.")
    ...         return await run_chat_turn(cfg, TurnInput(Session("web-1"), Identity("maya", "Maya"), "Hi!"))
    >>> from tellback.types.conversations import Identity, Session
    >>> asyncio.run(main()).text
    'Hello, Maya!'
    """
    try:
        return await _run_turn(cfg, input)
    except ConversationClosedError:
        if input.session.conversation_id is not None or input.approvals is not None:
            raise
    return await _run_turn(cfg, input)  # it was closed while we waited for it: the session goes on in a new one


async def _run_turn(cfg: TurnConfig, input: TurnInput) -> TurnResult:
    options = _turn_options(cfg, input)
    problems: list[TurnProblem] = []
    conversation = await try_step(_resolve_conversation(cfg, input), "store_user", problems)
    draft = None if input.approvals is not None else _user_draft(cfg, input)
    payload = {name: value for name, value in reply_payload(input).items() if value is not None}
    if draft is not None:
        payload.setdefault("message_id", draft.id)
    request = TurnRequest(
        scope=cfg.runtime.scope,
        conversation_id=None if conversation is None else conversation.id,
        options=options,
        draft=draft,
        approvals=input.approvals,
        user_messages=[build_user_message(user_prompt(input), parse_attachments(input.attachments))]
        if input.attachments
        else (),
        prepare=_recall_step(cfg, input, conversation, problems),
        request=_tool_request(input),
        agent=cfg.agent_name,
        event_payload={"stream": cfg.stream_label, **payload},
        store_user_message=_with_default(input.persist_user, True),
        store_reply=_with_default(input.persist_assistant, True),
        reply_metadata=_message_metadata(
            "assistant", input.assistant_source or cfg.agent_name, input.assistant_metadata
        ),
        tolerate_store_errors=True,
        problems=problems,
    )
    async with aclosing(cfg.runtime.conversations.turns.stream(request)) as items:
        async for item in items:
            outcome = item
    assert isinstance(outcome, TurnOutcome)
    return build_turn_result(outcome, payload)


async def build_system(cfg: TurnConfig, input: TurnInput) -> str:
    """The system prompt of a turn: `system_base`, and under the heading what is remembered, as it stands now."""
    if input.system_override is not None:
        return input.system_override
    system, _ = await _build_system_and_context(cfg, input, await _find_conversation(cfg, input), bind_space=False)
    return system


async def persist_user_turn(cfg: TurnConfig, input: TurnInput) -> StoredMessage:
    """Store what the user said, as `user_body` gives it; it begins a turn."""
    conversation = await _open_conversation(cfg, input)
    return await _append(cfg, conversation, _user_draft(cfg, input), starts=True)


async def persist_assistant_turn(cfg: TurnConfig, input: TurnInput, text: str) -> StoredMessage | None:
    """Store an answer, so that later turns know it; an empty one is not stored."""
    if not text:
        return None
    conversation = await _open_conversation(cfg, input)
    draft = MessageDraft(
        id=new_id("msg"),
        role="assistant",
        content=build_draft("assistant", text, _now(cfg), visibility="user").content,
        created_at=_now(cfg),
        metadata=_message_metadata("assistant", input.assistant_source or cfg.agent_name, input.assistant_metadata),
    )
    return await _append(cfg, conversation, draft, starts=False)


async def stream_llm(cfg: TurnConfig, payload: Mapping[str, Any], system: str, prompt: str) -> str:
    """Ask the model, with every piece of its answer told as `reply:delta`; nothing is stored."""
    options = replace(_resolve_options(cfg, cfg.chat_opts), system=system or None)
    with ReplyEvents({"stream": cfg.stream_label, **payload}) as reply_events:
        async for item in stream_loop(options, prompt):
            if isinstance(item, TextDelta):
                reply_events.delta(item.text)
            elif isinstance(item, LoopResult):
                reply_events.text = item.text
    return reply_events.text


def user_body(input: TurnInput) -> str:
    """What is stored of the user's message: the words, and a line for each attachment.

    >>> from tellback.types.conversations import Identity, Session
    >>> user_body(TurnInput(Session("s"), Identity("maya"), "Look!", attachments=["cat.png"])).splitlines()
    ['Look!', '[attachment: cat.png]']
    """
    return append_summaries(input.text, parse_attachments(input.attachments))


def user_prompt(input: TurnInput) -> str:
    """What the model reads: the words, and the attachments with their text."""
    return append_contents(input.text, parse_attachments(input.attachments))


def reply_payload(input: TurnInput) -> dict[str, Any]:
    """The ids that go with every event of the reply: the client's own, or the session's."""
    payload = input.payload or {}
    session = payload.get("session_id", payload.get("sessionId"))
    return {
        "session_id": input.session.id if session is None else session,
        "message_id": payload.get("message_id", payload.get("messageId")),
    }


def _recall_step(
    cfg: TurnConfig, input: TurnInput, conversation: Conversation | None, problems: list[TurnProblem]
) -> Callable[[], Awaitable[RecalledContext]]:
    async def prepare() -> RecalledContext:
        if input.system_override is not None:
            return RecalledContext(input.system_override or None)
        found = await try_step(
            _build_system_and_context(cfg, input, conversation, bind_space=_stores_anything(input)), "recall", problems
        )
        system, context = (_base_prompt(cfg), None) if found is None else found
        return RecalledContext(system or None, context)

    return prepare


async def _build_system_and_context(
    cfg: TurnConfig, input: TurnInput, conversation: Conversation | None, *, bind_space: bool
) -> tuple[str, WorkingContext]:
    """The system prompt with what is remembered, and that. With `bind_space`, this turn is remembered too."""
    recall_options = {**DEFAULT_RECALL_OPTIONS, **(input.recall_opts or {})}
    space_id, space = (
        recall_options.pop("space_id", recall_options.pop("memory_space_id", None)),
        recall_options.pop("space", None),
    )
    context_options = {
        "recall_limit": recall_options.pop("limit"),
        "recall_query": None if input.approvals is not None else query_from_text(input.text),
        "template_id": "messages",
        **recall_options,
    }
    conversation_id = None if conversation is None else conversation.id

    async def build(id: str | None) -> WorkingContext:
        return await cfg.runtime.working_context.build(conversation_id, id, **context_options)

    memory = NamespaceMemory(cfg.runtime, cfg.agent_name, space)
    if space_id is not None:
        context = await build(space_id)
    elif bind_space and conversation is not None:
        context = await memory.use_space(build)
    else:
        context = await build(await memory.find())
    if not context.remembers:
        return _base_prompt(cfg), context
    heading = MEMORY_HEADING if input.memory_heading is None else input.memory_heading
    return "\n\n".join(filter(None, (_base_prompt(cfg), heading, context.system))), context


async def _resolve_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation | None:
    """The conversation of the session; one is opened if something is going to be stored."""
    if input.approvals is None:
        return await (_open_conversation(cfg, input) if _stores_anything(input) else _find_conversation(cfg, input))
    found = await _find_conversation(cfg, input)
    if found is None:
        raise InvalidArgumentError(
            f"session {input.session.id!r} has no open conversation whose calls could be decided:"
            " pass Session(id, conversation_id=...), as the result that asked has it."
        )
    return found


async def _find_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation | None:
    conversations, session = cfg.runtime.conversations, input.session
    if session.conversation_id is not None:
        return await get_conversation(cfg.runtime, session.conversation_id)
    return await conversations.find(cfg.agent_name, session.id)


async def _open_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation:
    conversations, session = cfg.runtime.conversations, input.session
    if session.conversation_id is not None:
        return await get_conversation(cfg.runtime, session.conversation_id)
    name = input.sender.name
    metadata = {"speakers": {"user": name}} if name else None
    return await conversations.find_or_create(
        cfg.agent_name, session.id, metadata=metadata, close_after=SESSION_CLOSE_AFTER
    )


async def _append(cfg: TurnConfig, conversation: Conversation, draft: MessageDraft, *, starts: bool) -> StoredMessage:
    turn = TurnDraft(new_id("turn"), [draft], starts=starts, joins=not starts)
    conversation_log = cfg.runtime.conversations.runtime.store.conversations
    appended = await conversation_log.append(cfg.runtime.scope, conversation.id, [turn], now=_now(cfg))
    return appended.messages[0]


def _user_draft(cfg: TurnConfig, input: TurnInput) -> MessageDraft:
    metadata = {**(input.user_metadata or {}), "sender": input.sender.user_id}
    return build_draft(
        "user",
        user_body(input),
        _now(cfg),
        visibility="user",
        metadata=_message_metadata("user", input.user_source or cfg.agent_name, metadata),
    )


def _message_metadata(role: str, source: str, metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"source": source, **(metadata or {}), "role": role}


def _turn_options(cfg: TurnConfig, input: TurnInput) -> ChatOptions:
    if input.fallback_text is not None:
        return _with_fixed_reply(cfg.chat_opts, input.fallback_text)
    return with_attachments(_resolve_options(cfg, cfg.chat_opts), parse_attachments(input.attachments))


def _resolve_options(cfg: TurnConfig, options: ChatOptions) -> ChatOptions:
    default = cfg.runtime.conversations.runtime.model
    defaults: dict[str, Any] = dict.fromkeys(("model", "provider", "tools", "tool_handler", "max_cycles"))
    return resolve_options(options, **defaults, default_model=default)


def _with_fixed_reply(options: ChatOptions, text: str) -> ChatOptions:
    """Options by which that is the answer, whatever is asked."""

    async def reply(model: str, messages: Any, system: Any, tools: Any) -> ChatReply:
        return ChatReply(text, stop_reason="fallback")

    defaults: dict[str, Any] = dict.fromkeys(("tools", "skills", "skill_resolver", "chat_stream_fn", "output_type"))
    return replace(options, model="", chat_fn=reply, **defaults)


def _tool_request(input: TurnInput) -> Request | None:
    if not _with_default(input.bind_tool_ctx, True):
        return None
    return Request(input.session, input.sender, dict(input.ctx_extras or {}))


def _base_prompt(cfg: TurnConfig) -> str:
    return cfg.system_base or cfg.chat_opts.system or ""


def _now(cfg: TurnConfig) -> Any:
    return cfg.runtime.conversations.runtime.clock()


def _stores_anything(input: TurnInput) -> bool:
    return _with_default(input.persist_user, True) or _with_default(input.persist_assistant, True)


def _with_default(value: bool | None, default: bool) -> bool:
    return default if value is None else value
