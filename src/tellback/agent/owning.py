"""Whose a session is: users may call theirs alike, and none sees another's."""

from __future__ import annotations

from tellback.agent.session import SessionState
from tellback.errors import NotFoundError
from tellback.turn.handle import UserHandle
from tellback.types.jsontext import dump_json
from tellback.types.scope import Scope
from tellback.types.turns import Identity

SessionKey = tuple[Scope | str | None, str]
"""Whose session it is, and its id."""


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
