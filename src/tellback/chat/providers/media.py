"""Functions that the codecs share: roles, ids of calls, data URLs, text files."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Iterable, Sequence
from typing import TypeVar

from tellback.errors import ConfigurationError
from tellback.types import Message, MessagePart, message_text, split_data_url

T = TypeVar("T")

EARLIER_TEXT = "earlier_text"
"""The key in a message's `meta` for the text before the part that the provider's state belongs to."""

HISTORY_OMITTED = "[The conversation so far is not shown.]"
"""A user message to put before a history that begins with the model's message: some providers reject such a history."""


def split_system_messages(system: str | None, messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """Move system messages of a history into the system prompt, for providers without this role."""
    texts = [system] if system else []
    rest = []
    for message in messages:
        if message.role == "system":
            texts.append(message_text(message))
        else:
            rest.append(message)
    return "\n\n".join(text for text in texts if text) or None, rest


def merge_turns(turns: Iterable[tuple[str, list[T]]], opening: T) -> list[tuple[str, list[T]]]:
    """Merge turns so that roles alternate and the user is first, as some providers require; empty turns are dropped.

    >>> merge_turns([("assistant", ["Hi"]), ("user", ["Well"]), ("user", ["?"])], "...")
    [('user', ['...']), ('assistant', ['Hi']), ('user', ['Well', '?'])]
    """
    merged: list[tuple[str, list[T]]] = []
    for role, pieces in turns:
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(pieces)
        elif pieces:
            merged.append((role, pieces))
    return merged if merged and merged[0][0] == "user" else [("user", [opening]), *merged]


def generate_call_id(prefix: str) -> str:
    """Generate an id for a call without one."""
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def get_inline_data(part: MessagePart) -> tuple[str | None, str | None]:
    """Return the media type and base64 data of a part that contains data, directly or as a `data:` URL."""
    if part.url and part.url.startswith("data:"):
        mime, data = split_data_url(part.url)
        return part.mime or mime, data
    return part.mime, part.data


def decode_base64(data: str) -> bytes:
    """Decode base64 data; raises `ConfigurationError` if it is invalid."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigurationError(f"A part's data must be bytes or base64 text: {error}.") from error


def is_text_type(mime: str | None) -> bool:
    """Whether a file of this type can be read as text."""
    return mime is not None and (mime.startswith("text/") or mime in ("application/json", "application/xml"))


def decode_base64_text(data: str) -> str:
    """Decode base64 data to text."""
    return decode_base64(data).decode("utf-8", errors="replace")


def render_text_file(part: MessagePart) -> str | None:
    """Return the name and the text of a text file, or None for any other part."""
    mime, data = get_inline_data(part)
    if part.kind != "file" or not data or not is_text_type(mime):
        return None
    return (f"{part.name}:\n" if part.name else "") + decode_base64_text(data)
