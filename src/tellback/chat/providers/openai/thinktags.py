"""Thinking that a model writes into its text between <think> tags, taken apart as it streams."""

from __future__ import annotations

from collections.abc import Iterator

from tellback.types import TextDelta, ThinkingDelta

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"


class ThinkTagSplitter:
    """Feed it text; it gives text and thinking deltas. Only a tag at the very beginning counts."""

    def __init__(self, enabled: bool = True) -> None:
        self._state = "start" if enabled else "text"
        self._held = ""

    def feed(self, text: str) -> Iterator[TextDelta | ThinkingDelta]:
        """What is certain after this piece; a tag that may be incomplete is held back."""
        if self._state == "after":  # the blank line that follows the tag is part of neither
            text = text.lstrip("\n")
            self._state = "text" if text else "after"
        if self._state in ("text", "after"):
            if text:
                yield TextDelta(text)
            return
        self._held += text
        if self._state == "start":
            stripped = self._held.lstrip()
            if stripped.startswith(THINK_OPEN):
                self._state, self._held = "thinking", stripped[len(THINK_OPEN) :]
            elif THINK_OPEN.startswith(stripped):
                return
            else:
                self._state, text, self._held = "text", self._held, ""
                yield TextDelta(text)
                return
        thought, closed, rest = self._held.partition(THINK_CLOSE)
        if closed:
            if thought:
                yield ThinkingDelta(thought)
            self._held, self._state = "", "after"
            yield from self.feed(rest)
            return
        held_length = _partial_tag_length(self._held, THINK_CLOSE)
        ready, self._held = self._held[: len(self._held) - held_length], self._held[len(self._held) - held_length :]
        if ready:
            yield ThinkingDelta(ready)

    def finish(self) -> Iterator[TextDelta | ThinkingDelta]:
        """What was held back when the text ended."""
        held, self._held = self._held, ""
        if held:
            yield ThinkingDelta(held) if self._state == "thinking" else TextDelta(held)


def split_thinking(text: str, enabled: bool = True) -> tuple[str, str]:
    """Text and thinking of a whole reply."""
    splitter = ThinkTagSplitter(enabled)
    pieces = [*splitter.feed(text), *splitter.finish()]
    return (
        "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)),
        "".join(piece.text for piece in pieces if isinstance(piece, ThinkingDelta)),
    )


def _partial_tag_length(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the beginning of `tag`."""
    return next((size for size in range(min(len(text), len(tag) - 1), 0, -1) if tag.startswith(text[-size:])), 0)
