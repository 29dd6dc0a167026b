"""Whose a session is: users may call theirs alike, and none sees another's."""

from __future__ import annotations

from tellback.agent.session import SessionState
from tellback.errors import NotFoundError
from tellback.turn.handle import UserHandle
from tellback.types.jsontext import dump_json
from tellback.types.scope import Scope
from tellback.types.turns import Identity

Key = tuple[Scope | str | None, str]
"""Whose session it is, and its id."""


def owner_of(key: Key) -> str:
    """Whose session it is, as a session says it."""
    whose = key[0]
    if isinstance(whose, Scope):
        return dump_json([whose.tenant_id, whose.app_id, whose.user_id])
    return whose or ""


def user_id_of(key: Key) -> str | None:
    """The id of the user whose session it is, if that is known."""
    return key[0].user_id if isinstance(key[0], Scope) else key[0]


def refuse_foreign(session: SessionState, key: Key) -> None:
    """A session that another user began, or that was created for another one, is not there for this one."""
    user_id, meant = user_id_of(key), session.metadata.get("user_id")
    is_anothers = user_id is not None and isinstance(meant, str) and meant not in ("", user_id)
    if is_anothers or (session.owner and session.owner != owner_of(key)):
        raise NotFoundError("session", session.id, "Users need ids of their own.")


def key_of(user: UserHandle | None, sender: Identity | None, session: SessionState) -> Key:
    """What a session is known by in this process."""
    return (user.scope if user is not None else None if sender is None else sender.user_id), session.id
