"""`/ai-conversations`: what appending checks, and pages of messages from the newest back."""

from __future__ import annotations

from fastapi import Response

from tellback.errors import NotFoundError
from tellback.server.client_tools import validate_appended
from tellback.server.responses import parse_position
from tellback.server.routes.endpoint import Call, check, handle
from tellback.types.conversations import StoredMessage

BATCH_SIZE = 20
MAX_PAGE_CHARACTERS = 4_000_000
"""After how many characters a page ends early."""


@check("append_user_message", "append_assistant_turn", "append_system_message", "append_turn", "append_messages")
async def validate_content(call: Call) -> None:
    """Refuse content with results of an agent's calls, which would pass for what its tools gave."""
    arguments = call.arguments
    senders = (arguments, arguments.get("assistant", {}), *arguments.get("messages", ()))
    contents = [each.get("content") for each in senders]
    await validate_appended(call.caller.user, arguments["id"], arguments.get("user_content"), *contents)


@check("append_tool_result")
async def validate_tool_result(call: Call) -> None:
    """Refuse the result of an agent's call."""
    result = {"type": "tool_result", "tool_use_id": call.arguments["tool_use_id"], "content": ""}
    await validate_appended(call.caller.user, call.arguments["id"], [result])


@check("get_pending_calls")
async def require_conversation(call: Call) -> None:
    """Refuse a conversation that is not there: nothing waits in it, which says the same of one that is."""
    if await call.caller.user.conversations.get(call.arguments["id"]) is None:
        raise NotFoundError("conversation", call.arguments["id"])


@check("refresh_rolling_summary")
async def resolve_model(call: Call) -> None:
    """Refuse a model that callers may not name."""
    if call.arguments.get("model") is not None:
        call.arguments["model"] = call.caller.resolve_model(call.arguments["model"])


@handle("get_messages", "get_raw_turns")
async def get_messages(call: Call) -> Response:
    """The newest messages, oldest first, or those after a `seq`."""
    before, after = call.arguments["before"], call.arguments["after"]
    forward = after is not None and before is None
    seq = parse_position(call.position)
    if seq is not None:
        before, after = (before, seq) if forward else (seq, after)
    messages, has_more = await _read_bounded(call, before, after)
    return call.items(messages, str(messages[-1 if forward else 0].seq) if has_more else None)


async def _read_bounded(call: Call, before: int | None, after: int | None) -> tuple[list[StoredMessage], bool]:
    """Up to a page of messages, fewer if they are large, and whether there may be more."""
    conversations, id, max_messages = call.caller.user.conversations, call.arguments["id"], call.page_size
    internal, hidden = call.arguments.get("include_internal", True), call.arguments.get("include_hidden", False)
    forward = after is not None and before is None
    messages: list[StoredMessage] = []
    while True:
        # A few at a time, as a page of pictures would fill the memory.
        size = min(max_messages + 1 - len(messages), BATCH_SIZE)
        batch = await conversations.messages(id, size, internal, before, after, hidden)
        messages = [*messages, *batch] if forward else [*batch, *messages]
        if len(batch) < size:
            return messages, False
        if len(messages) > max_messages:
            return (messages[:max_messages] if forward else messages[-max_messages:]), True
        if sum(map(_character_count, messages)) > MAX_PAGE_CHARACTERS:
            return messages, True
        before, after = (before, messages[-1].seq) if forward else (messages[0].seq, after)


def _character_count(message: StoredMessage) -> int:
    """About how many characters a message has."""
    return sum(len(value) for block in message.content for value in block.values() if isinstance(value, str))
