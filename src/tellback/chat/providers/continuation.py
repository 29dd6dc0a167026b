"""Going on after a stream broke off: the next attempt continues the text, and the caller never sees any of it twice.

The next attempt, by the same model or a backup, is shown what has been said and asked to go on from there. A model
that starts over all the same is recognised while its text repeats what was said, and that part is held back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tellback.chat.model import ChatRequest
from tellback.chat.providers.media import EARLIER_TEXT
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ToolUseStart, assistant_message, user_message

CONTINUE_INSTRUCTION = (
    "Your last message was cut off by a technical fault after exactly the text above. Continue it from the very next "
    "character. Do not repeat any of it, do not apologise and do not mention the interruption."
)


class StreamContinuation:
    """The text a caller has been given so far, over all attempts."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._earlier_text = ""
        self._held_text: str | None = None

    @property
    def text(self) -> str:
        """Everything the caller has been given."""
        return "".join(self._pieces)

    def start_attempt(self) -> None:
        """A new attempt starts."""
        self._earlier_text = self.text
        self._held_text = "" if self._earlier_text else None

    def build_request(self, request: ChatRequest) -> ChatRequest:
        """The request for this attempt: the original, or one that asks to go on."""
        if not self._earlier_text:
            return request
        return replace(
            request,
            messages=(*request.messages, assistant_message(self._earlier_text), user_message(CONTINUE_INSTRUCTION)),
        )

    def filter_delta(self, delta: ReplyDelta) -> Iterator[ReplyDelta]:
        """What the caller has not seen yet: text that only repeats what was said is held back while it does.

        The last delta is left out, since `whole` makes another.
        """
        if isinstance(delta, TextDelta):
            text = delta.text
            if self._held_text is not None:
                self._held_text += text
                if len(self._held_text) < len(self._earlier_text) and self._earlier_text.startswith(self._held_text):
                    return
                text, self._held_text = self._held_text.removeprefix(self._earlier_text), None
            if text:
                self._pieces.append(text)
                yield TextDelta(text)
            return
        if isinstance(delta, ToolUseStart | StreamStop):
            if self._held_text:  # the text ends before all was repeated, so it was no repetition
                self._pieces.append(self._held_text)
                yield TextDelta(self._held_text)
            self._held_text = None
        if not isinstance(delta, StreamStop):
            yield delta

    def build_stop(self, reply: ChatReply) -> StreamStop:
        """The last delta, with a reply that holds the text of all attempts."""
        if self._earlier_text:
            # The provider's state belongs to the last attempt; what had been said before goes before it.
            earlier = self.text.removesuffix(reply.text)
            meta = {**reply.meta, EARLIER_TEXT: earlier} if reply.meta else None
            reply = replace(reply, text=self.text, meta=meta)
        return StreamStop(reply.stop_reason, reply.usage, reply)
