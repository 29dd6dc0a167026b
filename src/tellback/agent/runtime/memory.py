"""The user of a turn: whose memory is used, and who owns the session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

from tellback.agent.sessions.session import SessionState
from tellback.errors import ConfigurationError, InvalidArgumentError, NotFoundError
from tellback.tools import Tool
from tellback.turns.chat import CHAT_CLOSE_AFTER, NamespaceMemory
from tellback.turns.types import UserHandle
from tellback.types.access import Scope
from tellback.types.conversations import Identity
from tellback.types.ids import slug
from tellback.types.jsontext import dump_json

MemorySource = Any
"""A user's handle, a `Tellback`, or a function of the session that gives a handle."""

SessionKey = tuple[Scope | str | None, str]
"""Whose session it is, and its id."""


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
    close_after: timedelta | float | None = CHAT_CLOSE_AFTER

    def namespace_of(self, agent: str) -> str:
        """The namespace of that agent's conversations."""
        return self.namespace or slug(agent) or "agent"


async def resolve_memory_user(memory: MemorySource, session: SessionState, requested: Any) -> UserHandle | None:
    """The user whose memory a session is about, or None for an agent without one."""
    if memory is None:
        if requested is not None:
            raise InvalidArgumentError("user is for agents with a memory: pass Agent(memory=...).")
        return None
    if requested is not None and not isinstance(requested, str):
        return _validate_user_handle(requested)
    if hasattr(memory, "user") and not hasattr(memory, "scope"):
        name = requested or session.metadata.get("user_id")
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(
                "whose memory is it? The agent's memory has many users: pass respond(..., user=...), or"
                " create_session(metadata={'user_id': ...})."
            )
        return _validate_user_handle(memory.user(name))
    if requested is not None:
        raise InvalidArgumentError("user names one of many: this agent's memory is one user's.")
    if callable(memory):
        found = cast("Callable[[SessionState], Any]", memory)(session)
        return _validate_user_handle(await found if inspect.isawaitable(found) else found)
    return _validate_user_handle(memory)


def _validate_user_handle(handle: Any) -> UserHandle:
    if not hasattr(handle, "conversations") or not hasattr(handle, "working_context"):
        raise ConfigurationError(
            f"memory is a user's handle such as rc.user('maya'), a Tellback, or a function that gives a handle, not"
            f" {handle!r:.80}."
        )
    if not hasattr(type(handle), "chat_stream") or hasattr(handle, "_target"):
        raise ConfigurationError("an agent needs the asynchronous handle: open Tellback with `async with`.")
    return cast("UserHandle", handle)


async def build_memory_tools(user: UserHandle, namespace: str, options: MemoryOptions) -> list[Tool]:
    """The tools by which the model looks into the user's memory."""
    if not options.tools and not options.write:
        return []
    from tellback.memory.tools import memory_tools  # only those who remember pay for it

    space_id = await NamespaceMemory(user, namespace, options.space, exclusive=True).space_id()
    tools = memory_tools(user.memory, space_id, write=options.write)
    return tools if options.tools else tools[3:]


def format_owner(key: SessionKey) -> str:
    """Whose session it is, as a session says it."""
    owner = key[0]
    if isinstance(owner, Scope):
        return dump_json([owner.tenant_id, owner.app_id, owner.user_id])
    return owner or ""


def get_user_id(key: SessionKey) -> str | None:
    """The id of the user whose session it is, if that is known."""
    return key[0].user_id if isinstance(key[0], Scope) else key[0]


def validate_owner(session: SessionState, key: SessionKey) -> None:
    """A session that another user began, or that was created for another one, is not there for this one."""
    user_id, intended_user_id = get_user_id(key), session.metadata.get("user_id")
    is_other_user = user_id is not None and isinstance(intended_user_id, str) and intended_user_id not in ("", user_id)
    if is_other_user or (session.owner and session.owner != format_owner(key)):
        raise NotFoundError("session", session.id, "Users need ids of their own.")


def build_session_key(user: UserHandle | None, sender: Identity | None, session: SessionState) -> SessionKey:
    """What a session is known by in this process."""
    return (user.scope if user is not None else None if sender is None else sender.user_id), session.id
