"""The shared parts of an opened Tellback: store, jobs, model and clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from tellback.chat import Model
from tellback.jobs import Jobs
from tellback.stores import Store
from tellback.types.access import Scope
from tellback.types.ids import utc_now


@dataclass(slots=True)
class Runtime:
    """The store, the jobs, the default model, the clock and settings."""

    store: Store
    jobs: Jobs
    model: str | Model | None = None
    clock: Callable[[], datetime] = utc_now
    summary_every: int | None = 20
    worker: bool = True
    window_length: int = 24_000
    bound_spaces: dict[tuple[Scope, str, str], str] = field(default_factory=dict)
    """Cache: the id of the space that a namespace of a user is bound to, by scope, namespace and space name."""
