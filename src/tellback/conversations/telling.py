"""The events of a reply: `reply:start`, `reply:delta`, `reply:end`, `reply:error`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback import events

REPLY_START, REPLY_DELTA, REPLY_END, REPLY_ERROR = "reply:start", "reply:delta", "reply:end", "reply:error"


class ReplyEvents:
    """Tells whoever listens how a reply comes along, as a context manager around it.

    Every event carries the payload: the ids of the session and of the message that is answered. Set `text` to the whole
    answer before the block ends.
    """

    __slots__ = ("_payload", "text")

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self._payload = payload if events.has_listeners() else None
        self.text = ""

    def __enter__(self) -> ReplyEvents:
        if self._payload is not None:
            events.emit(REPLY_START, dict(self._payload))
        return self

    def delta(self, text: str) -> None:
        """A piece of the answer has come."""
        if self._payload is not None:
            events.emit(REPLY_DELTA, {**self._payload, "text": text})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._payload is None:
            return
        if error is None:
            events.emit(REPLY_END, {**self._payload, "text": self.text})
        else:
            name = type(error).__name__
            events.emit(REPLY_ERROR, {**self._payload, "error": str(error) or name, "error_type": name})
