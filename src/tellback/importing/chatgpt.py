"""ChatGPT's `conversations.json`: each chat is a tree of messages, of which the branch shown last is read.

Oddities of it: the root holds no message; `current_node` may be null; system messages are empty or hidden; times
are floats, null for what the server wrote; a message to a `recipient` other than "all" is a call of a tool; custom
instructions and ChatGPT's own memory are messages of content types of their own; citations are marked by characters
of Unicode's private area.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from tellback.importing import collecting
from tellback.importing.collecting import MODEL_LENGTH, Collecting
from tellback.importing.fields import first, items, mapping, moment, named_file, short, words
from tellback.importing.values import ImportedChat, ImportedMessage

SOURCE = "chatgpt"
_THINKING = ("thoughts", "reasoning_recap")
_CONTEXT = ("user_editable_context", "model_editable_context")
_MARKED = re.compile("\ue200([^\ue201]*)\ue201")


def is_chat(raw: Any) -> bool:
    """Whether this is a chat of such an export."""
    return isinstance(raw, dict) and "mapping" in raw


def read_chat(raw: Mapping[str, Any]) -> ImportedChat:
    """The chat, of which only the branch shown last is told."""
    chat = Collecting(SOURCE, moment(raw.get("create_time")) or moment(raw.get("update_time")))
    nodes = {id: node for id, node in mapping(raw.get("mapping")).items() if isinstance(node, dict)}
    path = list(_path(nodes, raw.get("current_node"), chat))
    for id in path:
        _read(nodes[id], chat)
    shown = set(path)
    chat.leave_out(collecting.BRANCH, sum(1 for id, node in nodes.items() if id not in shown and _says(node)))
    return chat.chat(first(raw, "conversation_id", "id"), raw.get("title"), raw)


def _path(nodes: Mapping[str, Any], current: Any, chat: Collecting) -> Iterator[str]:
    """From the root to the current node."""
    at = current if isinstance(current, str) and current in nodes else _newest(nodes)
    listed = {
        child: id for id, node in nodes.items() for child in items(node.get("children")) if isinstance(child, str)
    }
    found: dict[str, None] = {}
    while at is not None and at not in found:  # a tree that goes in a circle ends where it began
        found[at] = None
        parent = nodes[at].get("parent")
        above = parent if isinstance(parent, str) and parent in nodes else listed.get(at)
        if above is None and parent is not None:
            chat.leave_out(collecting.MISSING_PARENT)
        at = above
    return reversed(found)


def _newest(nodes: Mapping[str, Any]) -> str | None:
    """The message that was written last, of those that nothing follows."""
    parents = {node.get("parent") for node in nodes.values() if isinstance(node.get("parent"), str)}
    leaves = [id for id in nodes if id not in parents] or list(nodes)
    newest, best = None, -1.0
    for id in leaves:
        at = moment(mapping(nodes[id].get("message")).get("create_time"))
        if (written := 0.0 if at is None else at.timestamp()) >= best:
            newest, best = id, written
    return newest


def _read(node: Mapping[str, Any], chat: Collecting) -> None:
    message = mapping(node.get("message"))
    if not message:
        return
    role, content, metadata = _role(message), mapping(message.get("content")), mapping(message.get("metadata"))
    kind, at = content.get("content_type"), moment(message.get("create_time"))
    text = _text(message)
    id = short(first(message, "id") or node.get("id"), collecting.ID_LENGTH)
    if kind in _CONTEXT:
        context = _context(content)
        if context:
            chat.add(ImportedMessage("system", context, at, id, visibility="internal"))
    elif role == "system":
        if text:
            chat.add(ImportedMessage("system", text, at, id, visibility="internal"))
    elif role == "tool":
        chat.leave_out(collecting.RESULT)
    elif role not in ("user", "assistant"):
        chat.leave_out(collecting.UNKNOWN)
    elif kind in _THINKING:
        chat.leave_out(collecting.THINKING)
    elif role == "assistant" and message.get("recipient") not in (None, "", "all"):
        chat.leave_out(collecting.CALL)
    elif not text:
        chat.leave_out(collecting.EMPTY)
    else:
        chat.add(_said(role, text, at, id, metadata))


def _said(role: str, text: str, at: datetime | None, id: str | None, metadata: Mapping[str, Any]) -> ImportedMessage:
    hidden = metadata.get("is_visually_hidden_from_conversation") is True
    model = short(metadata.get("model_slug"), MODEL_LENGTH) if role == "assistant" else None
    provider = "openai" if role == "assistant" else None
    return ImportedMessage(role, text, at, id, model, provider, "internal" if hidden else "user")


def _role(message: Mapping[str, Any]) -> str:
    return words(mapping(message.get("author")).get("role"))


def _says(node: Mapping[str, Any]) -> bool:
    message = mapping(node.get("message"))
    return _role(message) in ("user", "assistant") and bool(_text(message))


def _text(message: Mapping[str, Any]) -> str:
    """The words of a message, with placeholders for what else was in it."""
    content = message.get("content")
    if isinstance(content, str):
        found = [content]
    else:
        content = mapping(content)
        parts = items(content.get("parts"))
        heard = any(isinstance(part, dict) and part.get("content_type") == "audio_transcription" for part in parts)
        found = [_part(part, heard) for part in parts] or [words(first(content, "text", "content", "result"))]
    for attachment in items(mapping(message.get("metadata")).get("attachments")):
        found.append(named_file(mapping(attachment).get("name")))
    return "\n\n".join(each for each in (_unmarked(words(part)) for part in found) if each)


def _part(part: Any, heard: bool) -> str:
    if isinstance(part, str):
        return part
    part = mapping(part)
    kind = words(part.get("content_type"))
    if "audio" in kind and kind != "audio_transcription":
        return "" if heard else "[audio]"
    if text := words(part.get("text")):
        return text
    return "[image]" if kind.startswith("image") else f"[{kind[:40]}]" if kind else ""


def _context(content: Mapping[str, Any]) -> str:
    """Custom instructions, or what ChatGPT had noted of the user."""
    fields = ("user_profile", "user_instructions", "model_set_context")
    return "\n\n".join(text for text in (words(content.get(name)) for name in fields) if text)


def _unmarked(text: str) -> str:
    """The text without marks of citations; what a mark is about stays where it is a name."""
    return _MARKED.sub(_marked, text).strip() if "\ue200" in text else text


def _marked(found: re.Match[str]) -> str:
    kind, _, rest = found[1].partition("\ue202")
    if kind == "entity":
        try:
            name = items(json.loads(rest))[1]
        except (ValueError, IndexError, RecursionError):
            return ""
        return words(name)
    return ""
