"""Plain JSON: a message on each line, or a chat on each line with its messages, as fine-tuning files have them.

A message is `{"conversation": "…", "role": "user", "content": "…", "created_at": "…"}`; a chat is
`{"id": "…", "title": "…", "messages": […]}`, of which only the messages are needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.importing import collecting
from tellback.importing.collecting import MODEL_LENGTH, Collecting
from tellback.importing.fields import first, items, mapping, moment, short, words
from tellback.importing.values import ImportedChat, ImportedMessage, digest

SOURCE = "jsonl"
_SPOKEN_BY = {
    "user": ("user", "human"),
    "assistant": ("assistant", "ai", "agent", "bot", "gpt", "model"),
    "system": ("system", "developer"),
    "tool": ("tool", "function"),
}
_ROLES = {name: role for role, names in _SPOKEN_BY.items() for name in names}
_CONVERSATION = ("conversation", "conversation_id", "conversationId", "thread_id", "session_id", "chat_id")
_MESSAGES = ("messages", "conversations", "turns")
_SPEAKER = ("role", "from", "sender", "author", "type")
_CONTENT = ("content", "text", "value", "parts")
_TIME = ("created_at", "createdAt", "timestamp", "create_time", "time", "date")
_TITLE = ("title", "name")


def is_chat(raw: Any) -> bool:
    """Whether this is a whole chat."""
    return isinstance(raw, dict) and any(isinstance(raw.get(name), list) for name in _MESSAGES)


def is_message(raw: Any) -> bool:
    """Whether this is one message of a chat."""
    return isinstance(raw, dict) and isinstance(first(raw, *_SPEAKER), str) and any(name in raw for name in _CONTENT)


def conversation_of(raw: Mapping[str, Any]) -> str | None:
    """The chat that a message says it belongs to."""
    found = first(raw, *_CONVERSATION)
    return str(found) if isinstance(found, int) else short(found, collecting.ID_LENGTH)


def read_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """A chat that has its messages with it."""
    chat = Collecting(SOURCE, moment(first(raw, *_TIME)))
    for message in items(first(raw, *_MESSAGES)):
        _read(message, chat, raw)
    id = first(raw, "id", "uuid", *_CONVERSATION)
    return chat.chat(str(id) if isinstance(id, int) else id, first(raw, *_TITLE), raw)


def join_messages(id: str, files: Iterable[Sequence[Mapping[str, Any]]]) -> ImportedChat:
    """A chat of the messages that named it, in the order in which they stood; what several files have is told once."""
    messages: list[Mapping[str, Any]] = []
    repeated, known = 0, set[str]()
    for lines in files:
        texts = [json.dumps(line, sort_keys=True) for line in lines]
        new = [line for line, text in zip(lines, texts, strict=True) if text not in known]
        repeated += len(lines) - len(new)
        known.update(texts)
        messages += new
    chat = Collecting(SOURCE, next((at for raw in messages if (at := moment(first(raw, *_TIME)))), None))
    chat.leave_out(collecting.REPEATED, repeated)
    for message in messages:
        _read(message, chat, {})
    titles = (raw.get("conversation_title") or raw.get("title") for raw in messages)
    return chat.chat(id, next((title for title in titles if isinstance(title, str)), None))


def opening(messages: Sequence[Mapping[str, Any]]) -> str:
    """What tells a chat that nobody named from others: its first words, with their time if they have one."""
    for raw in messages:
        for said in join_messages("", [[raw]]).messages:
            if said.role != "system":
                return digest(said.role, said.text, "" if said.created_at is None else said.created_at.isoformat())
    return ""


def _read(raw: Any, chat: Collecting, whole: Mapping[str, Any]) -> None:
    message = mapping(raw)
    speaker = first(message, *_SPEAKER)
    speaker = mapping(speaker).get("role", speaker) if isinstance(speaker, dict) else speaker
    role = _ROLES.get(words(speaker).lower())
    text = _text(first(message, *_CONTENT))
    if role is None:
        chat.leave_out(collecting.UNKNOWN)
        return
    if message.get("tool_calls") or message.get("function_call"):
        chat.leave_out(collecting.CALL)
        if not text:
            return
    if role == "tool":
        chat.leave_out(collecting.RESULT)
    elif not text:
        chat.leave_out(collecting.EMPTY)
    else:
        by_model = role == "assistant"
        chat.add(
            ImportedMessage(
                role,
                text,
                moment(first(message, *_TIME)),
                short(first(message, "id", "uuid", "message_id"), collecting.ID_LENGTH),
                short(first(message, "model") or whole.get("model"), MODEL_LENGTH) if by_model else None,
                short(first(message, "provider") or whole.get("provider"), MODEL_LENGTH) if by_model else None,
                "internal" if role == "system" else "user",
            )
        )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n\n".join(text for text in (_part(part) for part in content) if text)
    return _part(content)


def _part(part: Any) -> str:
    if not isinstance(part, dict):
        return words(part)
    kind = words(part.get("type"))
    said = first(part, "text", "content")
    if text := words(mapping(said).get("value", said)):
        return text
    return "[image]" if "image" in kind else "[audio]" if "audio" in kind else "[file]" if "file" in kind else ""
