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


async def call_before(hook: BeforeHook | None, upcoming: BeforeResponse) -> Mapping[str, Any] | None:
    """Run the hook before a response."""
    if hook is None:
        return None
    given = hook(upcoming)
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, Mapping | None):
        raise InvalidArgumentError(f"before_response gives a mapping of context values or None, not {given!r:.80}.")
    return given


async def call_after(hook: AfterHook | None, response: Response) -> None:
    """Run the hook after a response."""
    if hook is None:
        return
    try:
        given = hook(response)
        if inspect.isawaitable(given):
            await given
    except Exception:
        log.exception("after_response failed; the response stands")
