"""Which model to ask next when one has failed: the same again after a wait, a backup, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tellback.chat.model import Model
from tellback.chat.retry import backoff, is_acceptable_wait
from tellback.errors import ProviderError, TellbackError

RetryTarget = str | Model
"""A name for the same provider, or a model object that looks after itself."""


class RetryAttempts:
    """The attempts of one call, and what went wrong with them.

    `read` puts an SDK's exception for a model's name into our words, or gives None if it is not the provider's doing.
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
        """Whom to ask now; waits before it names the same one again. None when all have been tried."""
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
        """Take note of a failure; False says that trying again is no use, and the error should be raised as it is."""
        target = self._targets[self._index]
        if isinstance(error, TellbackError) or not isinstance(target, str):
            failure = error if isinstance(error, ProviderError) else None
        else:
            failure = self._convert_error(error, target)
            if failure is not None:
                failure.__cause__ = error
        if failure is None:
            if self._failures:
                error.add_note(f"It is the backup of {self._targets[0]}, which failed first: {self._failures[0]}")
            return False
        failure.partial_text = partial_text
        self._failures.append(failure)
        return True

    def final_error(self) -> ProviderError:
        """The last failure, which knows of the others."""
        last = self._failures[-1]
        last.attempts = tuple(self._failures)
        if len(self._failures) > 1:
            last.add_note(f"{len(self._failures)} attempts failed; they are in .attempts.")
        return last

    def _should_retry(self) -> bool:
        failure = self._failures[-1]
        if failure.status == 401:
            # The same key will not open another model of the same provider either.
            while isinstance(self._following_target(), str):
                self._index += 1
            return False
        return (
            failure.retryable
            and isinstance(self._targets[self._index], str)
            and self._attempt_count <= self._retries
            and is_acceptable_wait(failure.retry_after)
        )

    def _following_target(self) -> RetryTarget | None:
        return self._targets[self._index + 1] if self._index + 1 < len(self._targets) else None
