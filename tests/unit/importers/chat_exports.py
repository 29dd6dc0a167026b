"""Builders of small ChatGPT and Claude exports."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

MARCH = 1_709_287_200.0
"""2024-03-01T10:00:00Z"""


def gpt_message(role: str, text: Any, at: float | None = MARCH, **fields: Any) -> dict[str, Any]:
    """Build a ChatGPT message."""
    content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
    return {"author": {"role": role}, "create_time": at, "content": content, "recipient": "all", **fields}


def gpt_chat(id: str, *messages: dict[str, Any], at: float | None = MARCH, **fields: Any) -> dict[str, Any]:
    """Build a ChatGPT chat with one branch."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    last = "root"
    for number, message in enumerate(messages):
        node = f"{id}-{number}"
        mapping[last]["children"].append(node)
        mapping[node] = {"id": node, "message": {"id": node, **message}, "parent": last, "children": []}
        last = node
    chat = {"title": f"Chat {id}", "create_time": at, "mapping": mapping, "current_node": last, "conversation_id": id}
    return {**chat, **fields}


def claude_message(
    uuid: str, sender: str, text: str, at: str = "2024-03-01T10:00:00Z", **fields: Any
) -> dict[str, Any]:
    """Build a Claude message."""
    content = [{"type": "text", "text": text}] if text else []
    message = {"uuid": uuid, "sender": sender, "text": text, "content": content, "created_at": at}
    return {**message, "attachments": [], "files": [], **fields}


def claude_chat(uuid: str, *messages: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Build a Claude chat."""
    fields = {"uuid": uuid, "name": f"Chat {uuid}", "created_at": "2024-03-01T09:59:00Z", "account": {"uuid": "me"}}
    return {**fields, "chat_messages": list(messages), **options}


def write_json(path: Path, value: Any) -> Path:
    """Write a JSON or JSON Lines file."""
    if path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(each)}\n" for each in value))
    else:
        path.write_text(json.dumps(value))
    return path


def write_zip(path: Path, **members: Any) -> Path:
    """Write a zip with these members; in their names, `__` means a slash and the last `_` a dot."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in members.items():
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            archive.writestr(".".join(name.replace("__", "/").rsplit("_", 1)), data)
    return path
