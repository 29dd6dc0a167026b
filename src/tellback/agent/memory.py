"""The memory an agent's conversations are kept in."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from tellback.agent.session import SessionState
from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.tools import Tool
from tellback.turn.chatting import CLOSE_AFTER
from tellback.turn.handle import UserHandle
from tellback.turn.remembering import Remembering
from tellback.types.names import slug

MemorySource = Any
"""A user's handle, a `Tellback`, or a function of the session that gives a handle."""


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How an agent remembers.

    Its conversations are of `namespace` (by default the agent's name) and become memories of `space` when they close,
    which they do `close_after` the last message. `recall` holds arguments of `working_context.build`. With `tools` the
    model can look into the memory itself, and with `write` also remember and forget on request.

    >>> MemoryOptions(space="travel").tools
    True
    """

    namespace: str | None = None
    space: str = "default"
    recall: Mapping[str, Any] = field(default_factory=dict)
    tools: bool = True
    write: bool = False
    close_after: timedelta | float | None = CLOSE_AFTER

    def namespace_of(self, agent: str) -> str:
        """The namespace of that agent's conversations."""
        return self.namespace or slug(agent) or "agent"


async def user_of(memory: MemorySource, session: SessionState, named: Any) -> UserHandle | None:
    """The user whose memory a session is about, or None for an agent without one."""
    if memory is None:
        if named is not None:
            raise InvalidArgumentError("user is for agents with a memory: pass Agent(memory=...).")
        return None
    if named is not None and not isinstance(named, str):
        return _handle(named)
    if hasattr(memory, "user") and not hasattr(memory, "scope"):
        name = named or session.metadata.get("user_id")
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(
                "whose memory is it? The agent's memory has many users: pass respond(..., user=...), or"
                " create_session(metadata={'user_id': ...})."
            )
        return _handle(memory.user(name))
    if named is not None:
        raise InvalidArgumentError("user names one of many: this agent's memory is one user's.")
    if callable(memory):
        found = cast("Callable[[SessionState], Any]", memory)(session)
        return _handle(await found if inspect.isawaitable(found) else found)
    return _handle(memory)


def _handle(found: Any) -> UserHandle:
    if not hasattr(found, "conversations") or not hasattr(found, "working_context"):
        raise ConfigurationError(
            f"memory is a user's handle such as rc.user('maya'), a Tellback, or a function that gives a handle, not"
            f" {found!r:.80}."
        )
    if not hasattr(type(found), "chat_stream") or hasattr(found, "_target"):
        raise ConfigurationError("an agent needs the asynchronous handle: open Tellback with `async with`.")
    return cast("UserHandle", found)


async def tools_of(user: UserHandle, namespace: str, options: MemoryOptions) -> list[Tool]:
    """The tools by which the model looks into the user's memory."""
    if not options.tools and not options.write:
        return []
    from tellback.memory.tools import memory_tools  # only those who remember pay for it

    space_id = await Remembering(user, namespace, options.space, only=True).space_id()
    made = memory_tools(user.memory, space_id, write=options.write)
    return made if options.tools else made[3:]
