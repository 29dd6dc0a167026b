"""Parse JSON Lines with one message per line, or with one chat per line as in fine-tuning files.

A message is `{"conversation": "…", "role": "user", "content": "…", "created_at": "…"}`; a chat is
`{"id": "…", "title": "…", "messages": […]}`. Only `messages` is required in a chat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.importers import chats
from tellback.importers.chats import (
    ChatBuilder,
    ImportedChat,
    as_list,
    as_mapping,
    digest_texts,
    first_field,
    parse_short_text,
    parse_text,
    parse_time,
)

SOURCE = "jsonl"
_ROLE_ALIASES = {
    "user": ("user", "human"),
    "assistant": ("assistant", "ai", "agent", "bot", "gpt", "model"),
    "system": ("system", "developer"),
    "tool": ("tool", "function"),
}
_ROLES = {name: role for role, names in _ROLE_ALIASES.items() for name in names}
_CONVERSATION_FIELDS = ("conversation", "conversation_id", "conversationId", "thread_id", "session_id", "chat_id")
_MESSAGE_FIELDS = ("messages", "conversations", "turns")
_ROLE_FIELDS = ("role", "from", "sender", "author", "type")
_CONTENT_FIELDS = ("content", "text", "value", "parts")
_TIME_FIELDS = ("created_at", "createdAt", "timestamp", "create_time", "time", "date")
_TITLE_FIELDS = ("title", "name")


def is_chat(raw: Any) -> bool:
    """Whether this is a whole chat."""
    return isinstance(raw, dict) and any(isinstance(raw.get(name), list) for name in _MESSAGE_FIELDS)


def is_message(raw: Any) -> bool:
    """Whether this is one message of a chat."""
    return (
        isinstance(raw, dict)
        and isinstance(first_field(raw, *_ROLE_FIELDS), str)
        and any(name in raw for name in _CONTENT_FIELDS)
    )


def find_conversation_id(raw: Mapping[str, Any]) -> str | None:
    """Return the id of the chat that a message belongs to, or None."""
    id = first_field(raw, *_CONVERSATION_FIELDS)
    return str(id) if isinstance(id, int) else parse_short_text(id, chats.MAX_ID_LENGTH)


def parse_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """Parse a chat that contains its messages."""
    builder = ChatBuilder(SOURCE, parse_time(first_field(raw, *_TIME_FIELDS)))
    for message in as_list(first_field(raw, *_MESSAGE_FIELDS)):
        _parse_message(message, builder, raw)
    id = first_field(raw, "id", "uuid", *_CONVERSATION_FIELDS)
    return builder.build(str(id) if isinstance(id, int) else id, first_field(raw, *_TITLE_FIELDS), raw)


def join_messages(id: str, files: Iterable[Sequence[Mapping[str, Any]]]) -> ImportedChat:
    """Build a chat from its message lines, in file order. Lines repeated in another file are used once."""
    messages: list[Mapping[str, Any]] = []
    repeated, seen = 0, set[str]()
    for lines in files:
        texts = [json.dumps(line, sort_keys=True) for line in lines]
        new = [line for line, text in zip(lines, texts, strict=True) if text not in seen]
        repeated += len(lines) - len(new)
        seen.update(texts)
        messages += new
    builder = ChatBuilder(
        SOURCE, next((time for raw in messages if (time := parse_time(first_field(raw, *_TIME_FIELDS)))), None)
    )
    builder.leave_out(chats.LEFT_OUT_REPEATED, repeated)
    for message in messages:
        _parse_message(message, builder, {})
    titles = (raw.get("conversation_title") or raw.get("title") for raw in messages)
    return builder.build(id, next((title for title in titles if isinstance(title, str)), None))


def opening_digest(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of the first message and its time, which identifies a chat without an id."""
    for raw in messages:
        for message in join_messages("", [[raw]]).messages:
            if message.role != "system":
                return digest_texts(
                    message.role, message.text, "" if message.created_at is None else message.created_at.isoformat()
                )
    return ""


def _parse_message(raw: Any, builder: ChatBuilder, raw_chat: Mapping[str, Any]) -> None:
    message = as_mapping(raw)
    speaker = first_field(message, *_ROLE_FIELDS)
    speaker = as_mapping(speaker).get("role", speaker) if isinstance(speaker, dict) else speaker
    role = _ROLES.get(parse_text(speaker).lower())
    text = _content_text(first_field(message, *_CONTENT_FIELDS))
    if role is None:
        builder.leave_out(chats.LEFT_OUT_UNKNOWN_ROLE)
        return
    if message.get("tool_calls") or message.get("function_call"):
        builder.leave_out(chats.LEFT_OUT_TOOL_CALL)
        if not text:
            return
    if role == "tool":
        builder.leave_out(chats.LEFT_OUT_TOOL_RESULT)
    else:
        time, id = first_field(message, *_TIME_FIELDS), first_field(message, "id", "uuid", "message_id")
        by = (first_field(message, name) or raw_chat.get(name) for name in ("model", "provider"))
        builder.add(role, text, time, id, *by, hidden=role == "system")


def _content_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n\n".join(text for text in (_part_text(part) for part in content) if text)
    return _part_text(content)


def _part_text(part: Any) -> str:
    if not isinstance(part, dict):
        return parse_text(part)
    kind = parse_text(part.get("type"))
    value = first_field(part, "text", "content")
    if text := parse_text(as_mapping(value).get("value", value)):
        return text
    return "[image]" if "image" in kind else "[audio]" if "audio" in kind else "[file]" if "file" in kind else ""
