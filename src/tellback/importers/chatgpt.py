"""Parse ChatGPT's `conversations.json`. Each chat is a tree of messages; only the branch shown last is imported.

Format notes: the root has no message; `current_node` can be null; system messages are empty or hidden; times are
floats, or null for messages written by the server; a message to a `recipient` other than "all" is a tool call; custom
instructions and ChatGPT's memory are messages with special content types; citations are marked with Unicode
private-use characters."""

from __future__ import annotations

import json
import re
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

SOURCE = "chatgpt"
_THINKING_TYPES = ("thoughts", "reasoning_recap")
_CONTEXT_TYPES = ("user_editable_context", "model_editable_context")
_CITATION = re.compile("\ue200([^\ue201]*)\ue201")


def is_chat(raw: Any) -> bool:
    """Whether this is a chat of a ChatGPT export."""
    return isinstance(raw, dict) and "mapping" in raw


def parse_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """Parse a chat; only the branch shown last is kept."""
    builder = ChatBuilder(SOURCE, parse_time(raw.get("create_time")) or parse_time(raw.get("update_time")))
    nodes = {id: node for id, node in as_mapping(raw.get("mapping")).items() if isinstance(node, dict)}
    path = list(_branch_path(nodes, raw.get("current_node"), builder))
    for id in path:
        _parse_node(nodes[id], builder)
    shown = set(path)
    builder.leave_out(
        chats.LEFT_OUT_BRANCH, sum(1 for id, node in nodes.items() if id not in shown and _has_text(node))
    )
    return builder.build(first_field(raw, "conversation_id", "id"), raw.get("title"), raw)


def _branch_path(nodes: Mapping[str, Any], current: Any, builder: ChatBuilder) -> Iterator[str]:
    node_id = current if isinstance(current, str) and current in nodes else _newest_node(nodes)
    parent_by_child = {
        child: id for id, node in nodes.items() for child in as_list(node.get("children")) if isinstance(child, str)
    }
    path: dict[str, None] = {}
    while node_id is not None and node_id not in path:  # stop if the parents form a cycle
        path[node_id] = None
        parent = nodes[node_id].get("parent")
        parent_id = parent if isinstance(parent, str) and parent in nodes else parent_by_child.get(node_id)
        if parent_id is None and parent is not None:
            builder.leave_out(chats.LEFT_OUT_MISSING_PARENT)
        node_id = parent_id
    return reversed(path)


def _newest_node(nodes: Mapping[str, Any]) -> str | None:
    """Return the newest leaf of the tree."""
    parents = {node.get("parent") for node in nodes.values() if isinstance(node.get("parent"), str)}
    leaves = [id for id in nodes if id not in parents] or list(nodes)
    return find_newest((id, as_mapping(nodes[id].get("message")).get("create_time")) for id in leaves)


def _parse_node(node: Mapping[str, Any], builder: ChatBuilder) -> None:
    message = as_mapping(node.get("message"))
    if not message:
        return
    role, content = _message_role(message), as_mapping(message.get("content"))
    kind, time = content.get("content_type"), message.get("create_time")
    id = first_field(message, "id") or node.get("id")
    if role == "system" or kind in _CONTEXT_TYPES:
        if text := _context_text(content) if kind in _CONTEXT_TYPES else _message_text(message):
            builder.add("system", text, time, id, hidden=True)
    elif role == "tool":
        builder.leave_out(chats.LEFT_OUT_TOOL_RESULT)
    elif role not in ("user", "assistant"):
        builder.leave_out(chats.LEFT_OUT_UNKNOWN_ROLE)
    elif kind in _THINKING_TYPES:
        builder.leave_out(chats.LEFT_OUT_THINKING)
    elif role == "assistant" and message.get("recipient") not in (None, "", "all"):
        builder.leave_out(chats.LEFT_OUT_TOOL_CALL)
    else:
        metadata = as_mapping(message.get("metadata"))
        is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
        text, model = _message_text(message), metadata.get("model_slug")
        builder.add(role, text, time, id, model, "openai", hidden=is_hidden)


def _message_role(message: Mapping[str, Any]) -> str:
    return parse_text(as_mapping(message.get("author")).get("role"))


def _has_text(node: Mapping[str, Any]) -> bool:
    message = as_mapping(node.get("message"))
    return _message_role(message) in ("user", "assistant") and bool(_message_text(message))


def _message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, with placeholders for images, audio and files."""
    content = message.get("content")
    if isinstance(content, str):
        texts = [content]
    else:
        content = as_mapping(content)
        parts = as_list(content.get("parts"))
        has_transcript = any(
            isinstance(part, dict) and part.get("content_type") == "audio_transcription" for part in parts
        )
        texts = [_part_text(part, has_transcript) for part in parts] or [
            parse_text(first_field(content, "text", "content", "result"))
        ]
    for attachment in as_list(as_mapping(message.get("metadata")).get("attachments")):
        texts.append(file_placeholder(as_mapping(attachment).get("name")))
    return "\n\n".join(text for text in (_strip_citations(parse_text(part)) for part in texts) if text)


def _part_text(part: Any, has_transcript: bool) -> str:
    if isinstance(part, str):
        return part
    part = as_mapping(part)
    kind = parse_text(part.get("content_type"))
    if "audio" in kind and kind != "audio_transcription":
        return "" if has_transcript else "[audio]"
    if text := parse_text(part.get("text")):
        return text
    return "[image]" if kind.startswith("image") else f"[{kind[:40]}]" if kind else ""


def _context_text(content: Mapping[str, Any]) -> str:
    """Return the custom instructions, or ChatGPT's memory of the user."""
    fields = ("user_profile", "user_instructions", "model_set_context")
    return "\n\n".join(text for text in (parse_text(content.get(name)) for name in fields) if text)


def _strip_citations(text: str) -> str:
    """Remove citation marks from a text; the name in an entity mark stays."""
    return _CITATION.sub(_citation_text, text).strip() if "\ue200" in text else text


def _citation_text(match: re.Match[str]) -> str:
    kind, _, rest = match[1].partition("\ue202")
    if kind == "entity":
        try:
            name = as_list(json.loads(rest))[1]
        except (ValueError, IndexError, RecursionError):
            return ""
        return parse_text(name)
    return ""
