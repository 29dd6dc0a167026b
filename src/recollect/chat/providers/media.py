"""What the encoders share: system messages apart, data URLs, files that are text."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from recollect.types import Message, MessagePart, message_text


def system_and_rest(system: str | None, messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
    """System messages inside a history join the system prompt, for providers that know no such role."""
    texts = [system] if system else []
    rest = []
    for message in messages:
        if message.role == "system":
            texts.append(message_text(message))
        else:
            rest.append(message)
    return "\n\n".join(text for text in texts if text) or None, rest


def data_url(url: str) -> tuple[str | None, str]:
    """Media type and base64 data of a `data:` URL."""
    head, _, data = url.removeprefix("data:").partition(",")
    mime, *flags = head.split(";")
    if "base64" not in flags:
        data = base64.b64encode(data.encode()).decode("ascii")
    return mime or None, data


def as_data_url(part: MessagePart, default_mime: str) -> str:
    """A part's data as a `data:` URL."""
    return f"data:{part.mime or default_mime};base64,{part.data}"


def is_text(mime: str | None) -> bool:
    """Whether a file of this type can be read as text."""
    return mime is not None and (mime.startswith("text/") or mime in ("application/json", "application/xml"))


def decoded_text(data: str) -> str:
    """The text of base64 data."""
    return base64.b64decode(data).decode("utf-8", errors="replace")
