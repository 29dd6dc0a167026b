"""What the codecs share: roles, ids of calls, data URLs, files that are text."""

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
"""In a message's `meta`: the text before the part that a provider's kept state is about."""

HISTORY_OMITTED = "[The conversation so far is not shown.]"
"""What stands first when a history begins with the model's words, which some providers refuse."""


def split_system_messages(system: str | None, messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """System messages inside a history join the system prompt, for providers that know no such role."""
    texts = [system] if system else []
    rest = []
    for message in messages:
        if message.role == "system":
            texts.append(message_text(message))
        else:
            rest.append(message)
    return "\n\n".join(text for text in texts if text) or None, rest


def merge_turns(turns: Iterable[tuple[str, list[T]]], opening: T) -> list[tuple[str, list[T]]]:
    """Turns of alternating roles, the user's first, for providers that insist; what is empty is left out.

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
    """An id for a call that came without one."""
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def get_inline_data(part: MessagePart) -> tuple[str | None, str | None]:
    """Media type and base64 data of a part that carries its data, in a `data:` URL or by itself."""
    if part.url and part.url.startswith("data:"):
        mime, data = split_data_url(part.url)
        return part.mime or mime, data
    return part.mime, part.data


def decode_base64(data: str) -> bytes:
    """Base64 data decoded; raises `ConfigurationError` where it is none."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigurationError(f"A part's data must be bytes or base64 text: {error}.") from error


def is_text_type(mime: str | None) -> bool:
    """Whether a file of this type can be read as text."""
    return mime is not None and (mime.startswith("text/") or mime in ("application/json", "application/xml"))


def decode_base64_text(data: str) -> str:
    """The text of base64 data."""
    return decode_base64(data).decode("utf-8", errors="replace")


def render_text_file(part: MessagePart) -> str | None:
    """The text of a file that is text, under its name; None for any other part."""
    mime, data = get_inline_data(part)
    if part.kind != "file" or not data or not is_text_type(mime):
        return None
    return (f"{part.name}:\n" if part.name else "") + decode_base64_text(data)
