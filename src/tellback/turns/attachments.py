"""Attachments of a message: one line each in the log, the full content for the model."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tellback.errors import InvalidArgumentError
from tellback.types import Message, MessagePart, audio_part, file_part, image_part, text_part

MAX_TEXT_LENGTH = 20_000
"""The maximum number of characters of an attached text that are sent to the model."""

_FIELD_ALIASES = {"filename": "name", "mime_type": "mime", "content_type": "mime"}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file sent with a message: its `text`, or its bytes as `data` or at a `url`, with their `mime` type.

    The log stores only its `summary`. The model receives the text, image, audio or file.

    >>> Attachment("receipt.png", mime="image/png", data=b"...").kind
    'image'
    """

    name: str
    mime: str | None = None
    text: str | None = None
    data: bytes | str | None = None
    url: str | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        for name in ("name", "mime", "text", "url"):
            value = getattr(self, name)
            if not isinstance(value, str) and (value is not None or name == "name"):
                raise InvalidArgumentError(f"an attachment's {name} must be a string, got {value!r:.80}.")
        if not isinstance(self.data, bytes | str | None):
            raise InvalidArgumentError(f"an attachment's data must be bytes or base64 text, got {self.data!r:.80}.")
        if isinstance(self.data, str):
            object.__setattr__(self, "data", _decode_base64(self.data))

    @property
    def kind(self) -> str:
        """The kind: "image", "audio", "text" or "file"."""
        major = (self.mime or "").partition("/")[0]
        return major if major in ("image", "audio") else "text" if self.text is not None else "file"

    @property
    def summary(self) -> str:
        """One line with name, type, size and URL, as far as they are known."""
        size = self.size if self.size is not None else len(self.data) if self.data is not None else None
        known = [self.mime, None if size is None else f"{size} bytes", self.url]
        about = ", ".join(filter(None, known))
        name = " ".join(self.name.split())
        return f"[attachment: {name} ({about})]" if about else f"[attachment: {name}]"

    @property
    def part(self) -> MessagePart | None:
        """The attachment as a message part, or None if it has only text or a name."""
        if self.text is not None or (self.data is None and self.url is None):
            return None
        arguments: dict[str, Any] = {"data": self.data} if self.data is not None else {"url": self.url}
        if self.mime is not None:
            arguments["mime"] = self.mime
        if self.kind == "image":
            return image_part(**arguments)
        return audio_part(**arguments) if self.kind == "audio" else file_part(name=self.name, **arguments)


_FIELD_NAMES = tuple(field.name for field in fields(Attachment))


def parse_attachments(values: Sequence[Any] | None) -> tuple[Attachment, ...]:
    """Parse attachments: `Attachment` objects, mappings of its fields, message parts, or file names."""
    if values is None:
        return ()
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise InvalidArgumentError(f"attachments must be a list, got {values!r:.80}.")
    return tuple(map(_parse_attachment, values))


def _parse_attachment(value: Any) -> Attachment:
    if isinstance(value, Attachment):
        return value
    if isinstance(value, str):
        return Attachment(value)
    if isinstance(value, MessagePart):
        return Attachment(value.name or value.kind, mime=value.mime, text=value.text, data=value.data, url=value.url)
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(f"an attachment must be an Attachment, a mapping or a file name, got {value!r:.80}.")
    values = {_FIELD_ALIASES.get(str(name), str(name)): value for name, value in value.items()}
    unknown = [name for name in values if name not in _FIELD_NAMES]
    if unknown or not isinstance(values.get("name"), str):
        raise InvalidArgumentError(
            f"an attachment needs a name and may have {', '.join(_FIELD_NAMES[1:])}"
            + (f"; unknown: {', '.join(unknown)}." if unknown else ".")
        )
    return Attachment(**values)


def _decode_base64(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise InvalidArgumentError(f"an attachment's data must be bytes or base64 text: {error}.") from None


def append_summaries(text: str, attachments: Sequence[Attachment]) -> str:
    """Return the text to store: the message and one line for each attachment."""
    return "\n".join([*filter(None, [text]), *(each.summary for each in attachments)])


def append_contents(text: str, attachments: Sequence[Attachment]) -> str:
    """Return the text for the model: the message and the contents of the attachments."""
    if not attachments:
        return text
    rendered = [_render_attachment(each) for each in attachments]
    return "\n\n".join([*filter(None, [text]), "Attached:\n" + "\n".join(rendered)])


def _render_attachment(attachment: Attachment) -> str:
    if attachment.text is None:
        return attachment.summary
    more = len(attachment.text) - MAX_TEXT_LENGTH
    text = attachment.text if more <= 0 else f"{attachment.text[:MAX_TEXT_LENGTH]}… ({more} more characters)"
    return f"{attachment.summary}\n{text}\n[end of {' '.join(attachment.name.split())}]"


def build_user_message(prompt: str, attachments: Sequence[Attachment]) -> Message:
    """Build the user's message for the model, with images, audio and files as parts."""
    parts = [part for each in attachments if (part := each.part) is not None]
    return Message("user", parts=(text_part(prompt), *parts)) if parts else Message("user", prompt)
