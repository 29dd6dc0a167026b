"""What may fail without ending a turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TypeVar

from tellback.errors import EmbeddingError, StoreClosedError, StoreError
from tellback.types.turns import TurnProblem

log = logging.getLogger("tellback.turn")

T = TypeVar("T")


async def try_step(work: Awaitable[T], step: str, problems: list[TurnProblem]) -> T | None:
    """What it gives, or None if the store or the embedder failed, which is noted.

    A Tellback that is not open is no failure but a mistake, and raises.
    """
    try:
        return await work
    except StoreClosedError:
        raise
    except (StoreError, EmbeddingError) as error:
        log.warning("%s failed; the turn goes on without it", step, exc_info=error)
        problems.append(TurnProblem(step, error))
        return None
