"""Claude's `conversations.json`: each chat has its messages in a list, with their parents in newer exports.

Oddities of it: `text` repeats the content, with a note that a block cannot be shown in place of tools, so `content` is
read where it is there; a long paste is an attachment and the message empty; the first message's parent is an id of
nothing; no model is named; chats that were deleted have no messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tellback.importing import collecting
from tellback.importing.collecting import MODEL_LENGTH, Collecting
from tellback.importing.fields import first, items, mapping, moment, named_file, short, words
from tellback.importing.values import ImportedChat, ImportedMessage

SOURCE = "claude"
_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
_ROOT = "00000000-0000-"
"""How the id begins that stands for no parent."""
_NOT_SAID = {
    "thinking": collecting.THINKING,
    "redacted_thinking": collecting.THINKING,
    "tool_use": collecting.CALL,
    "tool_result": collecting.RESULT,
}


def is_chat(raw: Any) -> bool:
    """Whether this is a chat of such an export."""
    return isinstance(raw, dict) and "chat_messages" in raw


def read_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """The chat, of which only the branch shown last is told."""
    chat = Collecting(SOURCE, moment(raw.get("created_at")) or moment(raw.get("updated_at")))
    every = [message for message in items(raw.get("chat_messages")) if isinstance(message, dict)]
    for message in _shown(every, raw.get("current_leaf_message_uuid"), chat):
        role = _ROLES.get(words(message.get("sender")) or words(message.get("role")))
        text = _text(message, chat)
        if role is None:
            chat.leave_out(collecting.UNKNOWN)
        elif not text:
            chat.leave_out(collecting.EMPTY)
        else:
            by_model = role == "assistant"
            chat.add(
                ImportedMessage(
                    role,
                    text,
                    moment(message.get("created_at")),
                    short(message.get("uuid"), collecting.ID_LENGTH),
                    short(first(message, "model") or raw.get("model"), MODEL_LENGTH) if by_model else None,
                    "anthropic" if by_model else None,
                )
            )
    return chat.chat(raw.get("uuid"), raw.get("name"), raw)


def _shown(every: list[dict[str, Any]], leaf: Any, chat: Collecting) -> list[dict[str, Any]]:
    """The messages of the branch shown last; all of them in an export that knows no parents."""
    places = {message["uuid"]: place for place, message in enumerate(every) if isinstance(message.get("uuid"), str)}
    if not any(isinstance(message.get("parent_message_uuid"), str) for message in every):
        return every
    at = places[leaf] if isinstance(leaf, str) and leaf in places else _newest(every)
    found: dict[int, None] = {}
    while at is not None and at not in found:
        found[at] = None
        parent = every[at].get("parent_message_uuid")
        at = places.get(parent) if isinstance(parent, str) else None
        if at is None and isinstance(parent, str) and not parent.startswith(_ROOT):
            chat.leave_out(collecting.MISSING_PARENT)
    chat.leave_out(collecting.BRANCH, len(every) - len(found))
    return [every[place] for place in reversed(found)]


def _newest(every: list[dict[str, Any]]) -> int | None:
    """The message that was written last."""
    newest, best = None, -1.0
    for place, message in enumerate(every):
        at = moment(message.get("created_at"))
        if (written := 0.0 if at is None else at.timestamp()) >= best:
            newest, best = place, written
    return newest


def _text(message: Mapping[str, Any], chat: Collecting) -> str:
    """The words of a message, and of what was sent along."""
    blocks = [block for block in items(message.get("content")) if isinstance(block, dict)]
    found = []
    for block in blocks:
        kind = words(block.get("type"))
        if kind in _NOT_SAID:
            chat.leave_out(_NOT_SAID[kind])
        elif text := words(block.get("text")):
            found.append(text)
        elif kind.startswith("image"):
            found.append("[image]")
    if not blocks:
        found.append(words(message.get("text")))
    return "\n\n".join(text for text in (*found, *_sent_along(message)) if text)


def _sent_along(message: Mapping[str, Any]) -> Iterator[str]:
    named = set()
    for attachment in (mapping(each) for each in items(message.get("attachments"))):
        named.add(attachment.get("file_name") if isinstance(attachment.get("file_name"), str) else None)
        extracted = words(attachment.get("extracted_content"))
        place = named_file(attachment.get("file_name"))
        yield f"{place}\n{extracted}" if extracted else place
    for file in (mapping(each) for each in items(message.get("files"))):
        name = first(file, "file_name", "name")
        if not isinstance(name, str) or name not in named:
            yield named_file(name)
