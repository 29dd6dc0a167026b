"""Parse Claude's `conversations.json`. Each chat has a list of messages; newer exports include their parents.

Format notes: `text` repeats the content, but replaces tool blocks with a note, so `content` is preferred; a long
pasted text is an attachment of an empty message; the first message's parent id refers to no message; exports contain no
model; deleted chats have no messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tellback.importers import chats
from tellback.importers.chats import (
    ChatBuilder,
    ImportedChat,
    as_list,
    as_mapping,
    file_placeholder,
    find_newest,
    first_field,
    parse_text,
    parse_time,
)

SOURCE = "claude"
_ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
_ROOT_ID_PREFIX = "00000000-0000-"
"""The prefix of the parent id that means "no parent"."""
_LEFT_OUT_BLOCKS = {
    "thinking": chats.LEFT_OUT_THINKING,
    "redacted_thinking": chats.LEFT_OUT_THINKING,
    "tool_use": chats.LEFT_OUT_TOOL_CALL,
    "tool_result": chats.LEFT_OUT_TOOL_RESULT,
}


def is_chat(raw: Any) -> bool:
    """Whether this is a chat of a Claude export."""
    return isinstance(raw, dict) and "chat_messages" in raw


def parse_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """Parse a chat; only the branch shown last is kept."""
    builder = ChatBuilder(SOURCE, parse_time(raw.get("created_at")) or parse_time(raw.get("updated_at")))
    messages = [message for message in as_list(raw.get("chat_messages")) if isinstance(message, dict)]
    for message in _shown_branch(messages, raw.get("current_leaf_message_uuid"), builder):
        role = _ROLES.get(parse_text(message.get("sender")) or parse_text(message.get("role")))
        text = _message_text(message, builder)
        if role is None:
            builder.leave_out(chats.LEFT_OUT_UNKNOWN_ROLE)
        else:
            model = first_field(message, "model") or raw.get("model")
            builder.add(role, text, message.get("created_at"), message.get("uuid"), model, "anthropic")
    return builder.build(raw.get("uuid"), raw.get("name"), raw)


def _shown_branch(messages: list[dict[str, Any]], leaf: Any, builder: ChatBuilder) -> list[dict[str, Any]]:
    """Return the messages of the branch shown last, or all messages if the export has no parents."""
    index_by_id = {
        message["uuid"]: index for index, message in enumerate(messages) if isinstance(message.get("uuid"), str)
    }
    if not any(isinstance(message.get("parent_message_uuid"), str) for message in messages):
        return messages
    current = index_by_id.get(leaf) if isinstance(leaf, str) else None
    if current is None:
        current = find_newest((index, message.get("created_at")) for index, message in enumerate(messages))
    path: dict[int, None] = {}
    while current is not None and current not in path:
        path[current] = None
        parent = messages[current].get("parent_message_uuid")
        current = index_by_id.get(parent) if isinstance(parent, str) else None
        if current is None and isinstance(parent, str) and not parent.startswith(_ROOT_ID_PREFIX):
            builder.leave_out(chats.LEFT_OUT_MISSING_PARENT)
    builder.leave_out(chats.LEFT_OUT_BRANCH, len(messages) - len(path))
    return [messages[index] for index in reversed(path)]


def _message_text(message: Mapping[str, Any], builder: ChatBuilder) -> str:
    """Return the text of a message and its attachments."""
    blocks = [block for block in as_list(message.get("content")) if isinstance(block, dict)]
    texts = []
    for block in blocks:
        kind = parse_text(block.get("type"))
        if kind in _LEFT_OUT_BLOCKS:
            builder.leave_out(_LEFT_OUT_BLOCKS[kind])
        elif text := parse_text(block.get("text")):
            texts.append(text)
        elif kind.startswith("image"):
            texts.append("[image]")
    if not blocks:
        texts.append(parse_text(message.get("text")))
    return "\n\n".join(text for text in (*texts, *_attachment_texts(message)) if text)


def _attachment_texts(message: Mapping[str, Any]) -> Iterator[str]:
    seen_names = set()
    for attachment in (as_mapping(item) for item in as_list(message.get("attachments"))):
        seen_names.add(attachment.get("file_name") if isinstance(attachment.get("file_name"), str) else None)
        extracted = parse_text(attachment.get("extracted_content"))
        placeholder = file_placeholder(attachment.get("file_name"))
        yield f"{placeholder}\n{extracted}" if extracted else placeholder
    for file in (as_mapping(item) for item in as_list(message.get("files"))):
        name = first_field(file, "file_name", "name")
        if not isinstance(name, str) or name not in seen_names:
            yield file_placeholder(name)
