"""`/ai-conversations`: checks of appended content, and pages of messages."""

from __future__ import annotations

from fastapi import Response

from tellback.errors import NotFoundError
from tellback.server.client_tools import validate_appended
from tellback.server.responses import parse_position
from tellback.server.routes.endpoint import Call, check, handle
from tellback.types.conversations import StoredMessage

BATCH_SIZE = 20
MAX_PAGE_CHARACTERS = 4_000_000
"""The number of characters after which a page ends early."""


@check("append_user_message", "append_assistant_turn", "append_system_message", "append_turn", "append_messages")
async def validate_content(call: Call) -> None:
    """Raise for content with results of an agent's calls, which would look like its tools' output."""
    arguments = call.arguments
    senders = (arguments, arguments.get("assistant", {}), *arguments.get("messages", ()))
    contents = [each.get("content") for each in senders]
    await validate_appended(call.caller.user, arguments["id"], arguments.get("user_content"), *contents)


@check("append_tool_result")
async def validate_tool_result(call: Call) -> None:
    """Raise for results of an agent's calls."""
    result = {"type": "tool_result", "tool_use_id": call.arguments["tool_use_id"], "content": ""}
    await validate_appended(call.caller.user, call.arguments["id"], [result])


@check("get_pending_calls")
async def require_conversation(call: Call) -> None:
    """Raise if the conversation does not exist. Otherwise, the response would be an empty list."""
    if await call.caller.user.conversations.get(call.arguments["id"]) is None:
        raise NotFoundError("conversation", call.arguments["id"])


@check("refresh_rolling_summary")
async def resolve_model(call: Call) -> None:
    """Raise for models that callers may not use."""
    if call.arguments.get("model") is not None:
        call.arguments["model"] = call.caller.resolve_model(call.arguments["model"])


@handle("get_messages", "get_raw_turns")
async def get_messages(call: Call) -> Response:
    """Return the newest messages, oldest first, or the messages after a `seq`."""
    before, after = call.arguments["before"], call.arguments["after"]
    forward = after is not None and before is None
    seq = parse_position(call.position)
    if seq is not None:
        before, after = (before, seq) if forward else (seq, after)
    messages, has_more = await _read_bounded(call, before, after)
    return call.items(messages, str(messages[-1 if forward else 0].seq) if has_more else None)


async def _read_bounded(call: Call, before: int | None, after: int | None) -> tuple[list[StoredMessage], bool]:
    """Return at most one page of messages, fewer if they are large, and whether there may be more."""
    conversations, id, max_messages = call.caller.user.conversations, call.arguments["id"], call.page_size
    internal, hidden = call.arguments.get("include_internal", True), call.arguments.get("include_hidden", False)
    forward = after is not None and before is None
    messages: list[StoredMessage] = []
    while True:
        # Read in small batches: a whole page of images could fill the memory.
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
    """Estimate the number of characters of a message."""
    return sum(len(value) for block in message.content for value in block.values() if isinstance(value, str))
