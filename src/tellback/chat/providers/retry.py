"""Retry policy: which failures are retried, after what delay, and when a backup model takes over.

After a stream broke off, the next request contains the text so far and asks the model to continue it. Repeated text is
withheld, so the caller never receives it twice."""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tellback.chat.model import ChatRequest, Model
from tellback.chat.providers.media import EARLIER_TEXT
from tellback.errors import ProviderError, TellbackError
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ToolUseStart, assistant_message, user_message

INITIAL_DELAY = 0.5
MAX_DELAY = 8.0
MAX_RETRY_AFTER = 60.0
"""The longest delay that a provider may request; after a longer one, a backup model is used, or the error is raised."""

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

RetryTarget = str | Model
"""A model name of the same provider, or a model object, which has its own retries."""

CONTINUE_INSTRUCTION = (
    "Your last message was cut off by a technical fault after exactly the text above. Continue it from the very next "
    "character. Do not repeat any of it, do not apologise and do not mention the interruption."
)


def backoff(attempt: int, retry_after: float | None = None) -> float:
    """Return the delay before attempt `attempt + 1`: exponential with jitter, and at least `retry_after`."""
    delay = min(INITIAL_DELAY * 2.0 ** min(attempt, 10), MAX_DELAY)
    delay *= random.uniform(0.5, 1.0)
    return delay if retry_after is None else max(delay, retry_after)


def parse_retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Parse the seconds of `retry-after-ms` or of `retry-after`, which is a number or a date."""
    if headers is None:
        return None
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return max(milliseconds / 1000, 0.0)
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None:
        return max(seconds, 0.0)
    date = email.utils.parsedate_tz(value) if value else None
    return None if date is None else max(email.utils.mktime_tz(date) - time.time(), 0.0)


def _parse_number(value: str | None) -> float | None:
    try:
        number = None if value is None else float(value)
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) else None


class RetryAttempts:
    """The attempts of one call and their failures.

    `convert_error` converts an SDK's exception and the model's name to a `ProviderError`, or returns None if the
    provider did not cause the exception.
    """

    def __init__(
        self,
        targets: Sequence[RetryTarget],
        retries: int,
        convert_error: Callable[[Exception, str], ProviderError | None],
    ) -> None:
        self._targets = targets
        self._retries = retries
        self._convert_error = convert_error
        self._index = 0
        self._attempt_count = 0
        self._failures: list[ProviderError] = []

    async def next_target(self) -> RetryTarget | None:
        """Return the target of the next attempt, after a delay if it is a retry; None if all targets failed."""
        if self._attempt_count:
            if self._should_retry():
                await asyncio.sleep(backoff(self._attempt_count - 1, self._failures[-1].retry_after))
            else:
                self._index += 1
                self._attempt_count = 0
        if self._index >= len(self._targets):
            return None
        self._attempt_count += 1
        return self._targets[self._index]

    def record_failure(self, error: Exception, partial_text: str = "") -> bool:
        """Record a failure; return False if another attempt is useless and the error must be raised unchanged."""
        target = self._targets[self._index]
        if isinstance(error, TellbackError) or not isinstance(target, str):
            failure = error if isinstance(error, ProviderError) else None
        else:
            failure = self._convert_error(error, target)
            if failure is not None:
                failure.__cause__ = error
        if failure is None:
            if self._failures:
                error.add_note(f"An earlier attempt with {self._targets[0]} failed: {self._failures[0]}")
            return False
        failure.partial_text = partial_text
        self._failures.append(failure)
        return True

    def final_error(self) -> ProviderError:
        """Return the last failure, with all failures in `attempts`."""
        last = self._failures[-1]
        last.attempts = tuple(self._failures)
        if len(self._failures) > 1:
            last.add_note(f"{len(self._failures)} attempts failed; their errors are in `attempts`.")
        return last

    def _should_retry(self) -> bool:
        failure = self._failures[-1]
        if failure.status == 401:
            # The key is also wrong for other models of the same provider.
            while self._index + 1 < len(self._targets) and isinstance(self._targets[self._index + 1], str):
                self._index += 1
            return False
        return (
            failure.retryable
            and isinstance(self._targets[self._index], str)
            and self._attempt_count <= self._retries
            and (failure.retry_after or 0) <= MAX_RETRY_AFTER
        )


class StreamContinuation:
    """The text that the caller has received so far in all attempts."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._earlier_text = ""
        self._withheld_text: str | None = None

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def start_attempt(self) -> None:
        self._earlier_text = self.text
        self._withheld_text = "" if self._earlier_text else None

    def build_request(self, request: ChatRequest) -> ChatRequest:
        """Build the request of this attempt: the original, or one that asks the model to continue."""
        if not self._earlier_text:
            return request
        return replace(
            request,
            messages=(*request.messages, assistant_message(self._earlier_text), user_message(CONTINUE_INSTRUCTION)),
        )

    def filter_delta(self, delta: ReplyDelta) -> Iterator[ReplyDelta]:
        """Yield the delta without text that repeats an earlier attempt.

        The last delta is omitted, since `build_stop` builds another.
        """
        if isinstance(delta, TextDelta):
            text = delta.text
            if self._withheld_text is not None:
                self._withheld_text += text
                if len(self._withheld_text) < len(self._earlier_text) and self._earlier_text.startswith(
                    self._withheld_text
                ):
                    return
                text, self._withheld_text = self._withheld_text.removeprefix(self._earlier_text), None
            if text:
                self._pieces.append(text)
                yield TextDelta(text)
            return
        if isinstance(delta, ToolUseStart | StreamStop):
            if self._withheld_text:  # shorter than the earlier text, so it was not a repetition
                self._pieces.append(self._withheld_text)
                yield TextDelta(self._withheld_text)
            self._withheld_text = None
        if not isinstance(delta, StreamStop):
            yield delta

    def build_stop(self, reply: ChatReply) -> StreamStop:
        """Build the last delta, whose reply has the text of all attempts."""
        if self._earlier_text:
            # The provider's state belongs to the last attempt; the text of earlier attempts precedes it.
            earlier = self.text.removesuffix(reply.text)
            meta = {**reply.meta, EARLIER_TEXT: earlier} if reply.meta else None
            reply = replace(reply, text=self.text, meta=meta)
        return StreamStop(reply.stop_reason, reply.usage, reply)
