"""How a worker goes about its jobs."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tellback.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How many jobs a worker runs at once, and how long it waits for what; times are in seconds.

    A job is leased for `lease`, which is prolonged every `heartbeat` while it runs; the job of a worker that died is
    another's when the lease is over, at the latest. A job that takes longer than `timeout` fails. A failed job is
    tried again after `first_delay`, then three times as long each time, at most `longest_delay`, until it was begun
    `attempts` times. `poll` is how often to look for what nobody has announced, `grace` how long jobs may go on when
    the worker stops, and `window_length` how many characters of a conversation make one job.

    >>> WorkerOptions(concurrency=4).concurrency
    4
    """

    concurrency: int = 2
    lease: float = 60.0
    heartbeat: float = 20.0
    timeout: float = 900.0
    attempts: int = 8
    first_delay: float = 2.0
    longest_delay: float = 900.0
    poll: float = 5.0
    grace: float = 10.0
    window_length: int = 24_000

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} is more than 0, not {getattr(self, name)!r}.")
        if self.heartbeat >= self.lease:
            raise ConfigurationError(
                f"A lease of {self.lease:g} seconds is over before the heartbeat at {self.heartbeat:g}: shorten that."
            )

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after attempt number `attempt` has failed, up to a quarter more or less than the rule.

        >>> 1.5 <= WorkerOptions().backoff(1) <= 2.5
        True
        """
        delay = min(self.first_delay * 3.0 ** min(attempt - 1, 30), self.longest_delay)
        return min(delay * random.uniform(0.75, 1.25), self.longest_delay)


DEFAULT_OPTIONS = WorkerOptions()
