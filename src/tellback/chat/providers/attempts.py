"""Which model to ask next when one has failed: the same again after a wait, a backup, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tellback.chat.model import Model
from tellback.chat.retry import backoff, worth_waiting
from tellback.errors import ProviderError, TellbackError

Target = str | Model
"""A name for the same provider, or a model object that looks after itself."""


class Attempts:
    """The attempts of one call, and what went wrong with them.

    `read` puts an SDK's exception for a model's name into our words, or gives None if it is not the provider's doing.
    """

    def __init__(
        self, targets: Sequence[Target], retries: int, read: Callable[[Exception, str], ProviderError | None]
    ) -> None:
        self._targets = targets
        self._retries = retries
        self._read = read
        self._index = 0
        self._tries = 0
        self._failures: list[ProviderError] = []

    async def next(self) -> Target | None:
        """Whom to ask now; waits before it names the same one again. None when all have been tried."""
        if self._tries:
            if self._is_worth_another():
                await asyncio.sleep(backoff(self._tries - 1, self._failures[-1].retry_after))
            else:
                self._index += 1
                self._tries = 0
        if self._index >= len(self._targets):
            return None
        self._tries += 1
        return self._targets[self._index]

    def failed(self, error: Exception, partial_text: str = "") -> bool:
        """Take note of a failure; False says that trying again is no use, and the error should be raised as it is."""
        target = self._targets[self._index]
        if isinstance(error, TellbackError) or not isinstance(target, str):
            failure = error if isinstance(error, ProviderError) else None
        else:
            failure = self._read(error, target)
            if failure is not None:
                failure.__cause__ = error
        if failure is None:
            if self._failures:
                error.add_note(f"It is the backup of {self._targets[0]}, which failed first: {self._failures[0]}")
            return False
        failure.partial_text = partial_text
        self._failures.append(failure)
        return True

    def given_up(self) -> ProviderError:
        """The last failure, which knows of the others."""
        last = self._failures[-1]
        last.attempts = tuple(self._failures)
        if len(self._failures) > 1:
            last.add_note(f"{len(self._failures)} attempts failed; they are in .attempts.")
        return last

    def _is_worth_another(self) -> bool:
        failure = self._failures[-1]
        if failure.status == 401:
            # The same key will not open another model of the same provider either.
            while isinstance(self._next_target(), str):
                self._index += 1
            return False
        return (
            failure.retryable
            and isinstance(self._targets[self._index], str)
            and self._tries <= self._retries
            and worth_waiting(failure.retry_after)
        )

    def _next_target(self) -> Target | None:
        return self._targets[self._index + 1] if self._index + 1 < len(self._targets) else None
