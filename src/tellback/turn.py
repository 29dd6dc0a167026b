"""`run_chat_turn`, its configuration and input, and its steps.

The steps in order: `build_system` recalls memories, `persist_user_turn` stores the user's message, `stream_llm` calls
the model, `persist_assistant_turn` stores the reply. `run_chat_turn` runs all of them through the turn engine. A step
that you call yourself raises its errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from tellback import validation
from tellback.chat import ChatOptions, LoopResult, stream_loop
from tellback.chat.approval import as_approvals
from tellback.errors import ConversationClosedError, InvalidArgumentError
from tellback.runtime import Runtime
from tellback.stores import TurnDraft
from tellback.turns.attachments import (
    Attachment,
    append_contents,
    append_summaries,
    build_user_message,
    parse_attachments,
)
from tellback.turns.chat import find_or_open, get_conversation
from tellback.turns.engine import ReplyEvents
from tellback.turns.request import (
    NamespaceMemory,
    RecallRequest,
    TurnRequest,
    UserHandle,
    build_draft,
    build_recall,
    query_from_text,
    resolve_options,
    try_step,
    with_attachments,
)
from tellback.types import ChatReply, TextDelta
from tellback.types.conversations import (
    Conversation,
    Identity,
    MessageDraft,
    Session,
    StoredMessage,
    TurnProblem,
    TurnResult,
)
from tellback.types.ids import new_id

__all__ = [
    "Attachment",
    "Identity",
    "Session",
    "TurnConfig",
    "TurnInput",
    "TurnProblem",
    "TurnResult",
    "build_system",
    "persist_assistant_turn",
    "persist_user_turn",
    "reply_payload",
    "run_chat_turn",
    "stream_llm",
    "user_body",
    "user_prompt",
]

DEFAULT_RECALL_OPTIONS = {"limit": 5, "min_score": 0.3}
MEMORY_HEADING = "## Memory"
SESSION_CLOSE_AFTER = timedelta(days=1)
"""A session without messages for this long is closed and extracted into memories."""


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """The configuration of an agent's turns: the user, the agent's name, the model options and the base system prompt.

    `runtime` is a user's handle, `tb.user(...)`. `agent_name` is the namespace of the conversations. `stream_label` is
    part of every event of a reply.

    >>> from tellback import Tellback
    >>> TurnConfig(Tellback(":memory:").user("maya"), "greeter", system_base="Be kind.").agent_name
    'greeter'
    """

    runtime: UserHandle
    agent_name: str
    stream_label: str = "reply"
    chat_opts: ChatOptions = ChatOptions()
    system_base: str = ""

    def __post_init__(self) -> None:
        if not hasattr(self.runtime, "conversations"):
            raise InvalidArgumentError(f"runtime must be a user's handle, tb.user(...), got {self.runtime!r:.80}.")
        validation.validate_name("agent_name", self.agent_name)
        if not isinstance(self.chat_opts, ChatOptions):
            raise InvalidArgumentError(f"chat_opts must be a ChatOptions, got {self.chat_opts!r:.80}.")


@dataclass(frozen=True, slots=True)
class TurnInput:
    """The input of one turn: session, sender, text, and options of this turn. None means the default.

    - `attachments` are listed in the stored message and sent to the model: see `Attachment`.
    - `payload` contains the client's `session_id` and `message_id`, which are part of every event of the reply.
    - `recall_opts` are `limit`, `min_score`, the memory `space` by name or `space_id`, and other arguments of
      `working_context.build`. `memory_heading` is the heading above the recalled memories.
    - `persist_user=False` and `persist_assistant=False` turn off storing. `ctx_extras` are the extras that tools find
      in `tellback.request`; `bind_tool_ctx=False` turns off `tellback.request` for tools.
    - `user_source` and `user_metadata` are stored with the user's message, `assistant_source` and `assistant_metadata`
      with the reply. The source is the agent's name by default.
    - `fallback_text` is the reply, without a call of a model, for example when there is no API key.
      `system_override` is the whole system prompt; nothing is recalled then.
    - `approvals`, instead of a text, approves or denies the calls in `result.pending` of the session's conversation.

    >>> TurnInput(Session("web-42"), Identity("maya"), "Hi!", recall_opts={"limit": 3}).text
    'Hi!'
    """

    session: Session
    sender: Identity
    text: str = ""
    attachments: Sequence[Any] | None = None
    payload: Mapping[str, Any] | None = None
    recall_opts: Mapping[str, Any] | None = None
    memory_heading: str | None = None
    persist_user: bool | None = None
    persist_assistant: bool | None = None
    bind_tool_ctx: bool | None = None
    ctx_extras: Mapping[str, Any] | None = None
    user_source: str | None = None
    user_metadata: Mapping[str, Any] | None = None
    assistant_source: str | None = None
    assistant_metadata: Mapping[str, Any] | None = None
    fallback_text: str | None = None
    system_override: str | None = None
    approvals: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.session, Session) or not isinstance(self.sender, Identity):
            raise InvalidArgumentError("session must be a Session and sender an Identity of tellback.turn.")
        if not isinstance(self.text, str):
            raise InvalidArgumentError(f"text must be a string, got {self.text!r:.80}.")
        validation.validate_name("session.id", self.session.id, validation.KEY_LENGTH)
        validation.validate_name("sender.user_id", self.sender.user_id)
        validation.validate_mapping("ctx_extras", self.ctx_extras)
        validation.validate_metadata(self.user_metadata)
        validation.validate_metadata(self.assistant_metadata)
        if self.approvals is not None:
            as_approvals(self.approvals)
            if self.text or self.attachments:
                raise InvalidArgumentError("approvals resume a turn: pass them without text and attachments.")
        validation.validate_mapping("payload", self.payload)
        validation.validate_recall_options("recall_opts", self.recall_opts, ("limit", "space", "space_id"))


async def run_chat_turn(cfg: TurnConfig, input: TurnInput) -> TurnResult:
    """Run one turn: recall memories, store the user's message, call the model, store the reply.

    Listeners (`tellback.events.listen`) receive `reply:start`, `reply:delta`, `reply:end` or `reply:error` with the ids
    of the session and the message. If the store fails, the turn continues and `result.problems` lists what was not
    recalled or not stored. If the model fails, its error is raised.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async with Tellback(":memory:", model=ScriptedModel([says("Hello, Maya!")])) as tb:
    ...         cfg = TurnConfig(tb.user("maya"), agent_name="greeter", system_base="Be kind.")
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
    return await _run_turn(cfg, input)  # it was closed while the turn waited: continue in a new conversation


async def _run_turn(cfg: TurnConfig, input: TurnInput) -> TurnResult:
    options = _turn_options(cfg, input)
    problems: list[TurnProblem] = []
    conversation = await try_step(_resolve_conversation(cfg, input), "store_user", problems)
    payload = {name: value for name, value in reply_payload(input).items() if value is not None}
    request = TurnRequest(
        cfg.runtime,
        None if conversation is None else conversation.id,
        options,
        None if input.approvals is not None else _user_draft(cfg, input),
        approvals=input.approvals,
        recall=_build_recall(cfg, input, bind=conversation is not None and _stores_anything(input)),
        user_messages=[build_user_message(user_prompt(input), parse_attachments(input.attachments))]
        if input.attachments
        else (),
        session=input.session,
        sender=input.sender,
        extras=dict(input.ctx_extras or {}),
        bind_tools=_is_on(input.bind_tool_ctx),
        event_payload={"stream": cfg.stream_label, **payload},
        store_user_message=_is_on(input.persist_user),
        store_reply=_is_on(input.persist_assistant),
        agent=cfg.agent_name,
        reply_metadata=_reply_metadata(cfg, input),
        tolerate_store_errors=True,
        problems=problems,
    )
    async with aclosing(cfg.runtime.conversations.turns.stream(request)) as items:
        async for item in items:
            result = item
    assert isinstance(result, TurnResult)
    return result


async def build_system(cfg: TurnConfig, input: TurnInput) -> str:
    """Build the system prompt of a turn: `system_base`, then the recalled memories under the heading.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         maya = tb.user("maya")
    ...         space = await maya.memory.create_space("greeter")
    ...         await maya.memory.add_atom(space.id, "Maya keeps bees.")
    ...         cfg = TurnConfig(maya, "greeter", system_base="Be kind.")
    ...         return await build_system(cfg, TurnInput(Session("web-1"), Identity("maya"), "What does Maya keep?"))
    >>> system = asyncio.run(main())
    >>> system.splitlines()[0], "Maya keeps bees." in system
    ('Be kind.', True)
    """
    if input.system_override is not None:
        return input.system_override
    conversation = await _find_conversation(cfg, input)
    recall = _build_recall(cfg, input, bind=False)
    assert recall is not None, "only system_override skips recall"
    context = await recall.build_context(cfg.runtime, None if conversation is None else conversation.id)
    return recall.extend_prompt(_base_prompt(cfg, input), context) or ""


async def persist_user_turn(cfg: TurnConfig, input: TurnInput) -> StoredMessage:
    """Store the user's message with the text of `user_body`. This begins a turn.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         cfg = TurnConfig(tb.user("maya"), "greeter")
    ...         return await persist_user_turn(cfg, TurnInput(Session("web-1"), Identity("maya"), "Hi!"))
    >>> message = asyncio.run(main())
    >>> message.role, message.text, message.metadata["source"]
    ('user', 'Hi!', 'greeter')
    """
    conversation = await _open_conversation(cfg, input)
    return await _append(cfg, conversation, _user_draft(cfg, input), starts=True)


async def persist_assistant_turn(cfg: TurnConfig, input: TurnInput, text: str) -> StoredMessage | None:
    """Store a reply. An empty reply is not stored.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> async def main():
    ...     async with Tellback(":memory:") as tb:
    ...         cfg, turn = TurnConfig(tb.user("maya"), "greeter"), TurnInput(Session("web-1"), Identity("maya"), "Hi!")
    ...         await persist_user_turn(cfg, turn)
    ...         return await persist_assistant_turn(cfg, turn, "Hello, Maya!")
    >>> message = asyncio.run(main())
    >>> message.role, message.text, message.seq
    ('assistant', 'Hello, Maya!', 2)
    """
    if not text:
        return None
    conversation = await _open_conversation(cfg, input)
    draft = build_draft("assistant", text, _shared(cfg).clock(), visibility="user")
    return await _append(cfg, conversation, replace(draft, metadata=_reply_metadata(cfg, input)), starts=False)


async def stream_llm(cfg: TurnConfig, payload: Mapping[str, Any], system: str, prompt: str) -> str:
    """Call the model and emit each piece of its reply as `reply:delta`; store nothing.

    >>> import asyncio
    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, says
    >>> async def main():
    ...     async with Tellback(":memory:", model=ScriptedModel([says("Hello, Maya!")])) as tb:
    ...         cfg, turn = TurnConfig(tb.user("maya"), "greeter"), TurnInput(Session("web-1"), Identity("maya"), "Hi!")
    ...         return await stream_llm(cfg, reply_payload(turn), "Be kind.", user_prompt(turn))
    >>> asyncio.run(main())
    'Hello, Maya!'
    """
    options = replace(resolve_options(cfg.chat_opts, default_model=_shared(cfg).model), system=system or None)
    with ReplyEvents({"stream": cfg.stream_label, **payload}) as reply_events:
        async for item in stream_loop(options, prompt):
            if isinstance(item, TextDelta):
                reply_events.delta(item.text)
            elif isinstance(item, LoopResult):
                reply_events.text = item.text
    return reply_events.text


def user_body(input: TurnInput) -> str:
    """Return the text to store: the user's text and one line for each attachment.

    >>> from tellback.types.conversations import Identity, Session
    >>> user_body(TurnInput(Session("s"), Identity("maya"), "Look!", attachments=["cat.png"])).splitlines()
    ['Look!', '[attachment: cat.png]']
    """
    return append_summaries(input.text, parse_attachments(input.attachments))


def user_prompt(input: TurnInput) -> str:
    """Return the text for the model: the user's text and the text of the attachments.

    >>> from tellback.types.conversations import Identity, Session
    >>> note = Attachment("note.txt", text="Buy honey.")
    >>> "Buy honey." in user_prompt(TurnInput(Session("s"), Identity("maya"), "What must I buy?", attachments=[note]))
    True
    """
    return append_contents(input.text, parse_attachments(input.attachments))


def reply_payload(input: TurnInput) -> dict[str, Any]:
    """Return the ids in every event of the reply: those of the client, or that of the session.

    >>> from tellback.types.conversations import Identity, Session
    >>> reply_payload(TurnInput(Session("web-1"), Identity("maya"), "Hi!", payload={"message_id": "m-7"}))
    {'session_id': 'web-1', 'message_id': 'm-7'}
    """
    payload = input.payload or {}
    session = payload.get("session_id", payload.get("sessionId"))
    return {
        "session_id": input.session.id if session is None else session,
        "message_id": payload.get("message_id", payload.get("messageId")),
    }


def _build_recall(cfg: TurnConfig, input: TurnInput, *, bind: bool) -> RecallRequest | None:
    """Build the recall of a turn; None with `system_override`. `bind=True` binds the conversations to the space."""
    if input.system_override is not None:
        return None
    options = {**DEFAULT_RECALL_OPTIONS, **(input.recall_opts or {})}
    space_id = options.pop("space_id", options.pop("memory_space_id", None))
    memory = NamespaceMemory(cfg.runtime, cfg.agent_name, options.pop("space", None))
    query = None if input.approvals is not None else query_from_text(input.text)
    return build_recall(
        {"recall_limit": options.pop("limit"), **options},
        query,
        space_id,
        None if space_id is not None else memory,
        bind=bind,
        heading=MEMORY_HEADING if input.memory_heading is None else input.memory_heading,
    )


async def _resolve_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation | None:
    """Return the session's conversation; create one if the turn stores messages."""
    if input.approvals is None and _stores_anything(input):
        return await _open_conversation(cfg, input)
    found = await _find_conversation(cfg, input)
    if found is None and input.approvals is not None:
        raise InvalidArgumentError(
            f"session {input.session.id!r} has no open conversation with pending calls:"
            " pass Session(id, conversation_id=...) with the conversation_id of the result that has them."
        )
    return found


async def _find_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation | None:
    if input.session.conversation_id is not None:
        return await get_conversation(cfg.runtime, input.session.conversation_id)
    return await cfg.runtime.conversations.find(cfg.agent_name, input.session.id)


async def _open_conversation(cfg: TurnConfig, input: TurnInput) -> Conversation:
    if input.session.conversation_id is not None:
        return await get_conversation(cfg.runtime, input.session.conversation_id)
    return await find_or_open(cfg.runtime, cfg.agent_name, input.session.id, input.sender, SESSION_CLOSE_AFTER)


async def _append(cfg: TurnConfig, conversation: Conversation, draft: MessageDraft, *, starts: bool) -> StoredMessage:
    turn = TurnDraft(new_id("turn"), [draft], starts=starts, joins=not starts)
    runtime = _shared(cfg)
    appended = await runtime.store.conversations.append(cfg.runtime.scope, conversation.id, [turn], now=runtime.clock())
    return appended.messages[0]


def _user_draft(cfg: TurnConfig, input: TurnInput) -> MessageDraft:
    metadata = {**(input.user_metadata or {}), "sender": input.sender.user_id}
    return build_draft(
        "user",
        user_body(input),
        _shared(cfg).clock(),
        visibility="user",
        metadata={"source": input.user_source or cfg.agent_name, **metadata, "role": "user"},
    )


def _reply_metadata(cfg: TurnConfig, input: TurnInput) -> dict[str, Any]:
    source = input.assistant_source or cfg.agent_name
    return {"source": source, **(input.assistant_metadata or {}), "role": "assistant"}


def _turn_options(cfg: TurnConfig, input: TurnInput) -> ChatOptions:
    options = replace(cfg.chat_opts, system=_base_prompt(cfg, input) or None)
    if input.fallback_text is not None:
        return _with_fixed_reply(options, input.fallback_text)
    resolved = resolve_options(options, default_model=_shared(cfg).model)
    return with_attachments(resolved, parse_attachments(input.attachments))


def _with_fixed_reply(options: ChatOptions, text: str) -> ChatOptions:
    """Return options with a model function that always replies `text`."""

    async def reply(model: str, messages: Any, system: Any, tools: Any) -> ChatReply:
        return ChatReply(text, stop_reason="fallback")

    defaults: dict[str, Any] = dict.fromkeys(("tools", "skills", "skill_resolver", "chat_stream_fn", "output_type"))
    return replace(options, model="", chat_fn=reply, **defaults)


def _base_prompt(cfg: TurnConfig, input: TurnInput) -> str:
    if input.system_override is not None:
        return input.system_override
    return cfg.system_base or cfg.chat_opts.system or ""


def _shared(cfg: TurnConfig) -> Runtime:
    return cfg.runtime.conversations.runtime


def _stores_anything(input: TurnInput) -> bool:
    return _is_on(input.persist_user) or _is_on(input.persist_assistant)


def _is_on(value: bool | None) -> bool:
    return value is None or bool(value)
