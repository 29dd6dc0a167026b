"""Code of the application's own that runs around a response."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tellback.agent.response import Response
from tellback.agent.session import SessionState
from tellback.errors import InvalidArgumentError
from tellback.types import Message

log = logging.getLogger("tellback.agent")


@dataclass(frozen=True, slots=True)
class BeforeResponse:
    """What `before_response` is given: the session, the messages to answer, and the context."""

    session: SessionState
    history: tuple[Message, ...]
    context: Any


BeforeHook = Callable[[BeforeResponse], Any]
"""May be async; what it gives, a mapping or None, changes the context of this turn. If it raises, the turn ends."""
AfterHook = Callable[[Response], Any]
"""May be async; what it gives is ignored. The answer is given by then, so what it raises is only logged."""


async def run_before_hook(hook: BeforeHook | None, event: BeforeResponse) -> Mapping[str, Any] | None:
    """Run the hook before a response."""
    if hook is None:
        return None
    changes = hook(event)
    if inspect.isawaitable(changes):
        changes = await changes
    if not isinstance(changes, Mapping | None):
        raise InvalidArgumentError(f"before_response gives a mapping of context values or None, not {changes!r:.80}.")
    return changes


async def run_after_hook(hook: AfterHook | None, response: Response) -> None:
    """Run the hook after a response."""
    if hook is None:
        return
    try:
        result = hook(response)
        if inspect.isawaitable(result):
            await result
    except Exception:
        log.exception("after_response failed; the response stands")
