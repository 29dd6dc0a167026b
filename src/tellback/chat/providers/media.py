"""What the encoders share: system messages apart, data URLs, files that are text."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from tellback.errors import ConfigurationError
from tellback.types import Message, MessagePart, message_text, split_data_url

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
