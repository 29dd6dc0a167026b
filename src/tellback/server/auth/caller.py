"""The caller of a request: its principal, the user it acts for, and FastAPI dependencies for both.

The scope always comes from the credential, never from the body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request

from tellback.app import Tellback
from tellback.errors import InvalidArgumentError, NotAllowedError
from tellback.server.settings import ServerSettings
from tellback.types.access import ApiKeyRole
from tellback.user import User

if TYPE_CHECKING:
    from tellback.agent import Agent


@dataclass(frozen=True, slots=True)
class Principal:
    """Whom a credential stands for. `id` names the credential in logs and counts its requests.

    Two tokens of one user stand for the same principal, also if one of them ends later.
    """

    id: str
    tenant_id: str
    app_id: str
    role: ApiKeyRole
    user_id: str | None = None
    rate_limit: int | None = None
    expires_at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """What all requests of a server share."""

    rc: Tellback
    settings: ServerSettings
    agents: Mapping[str, Agent] = field(default_factory=dict)


class Caller:
    """A request's principal, and the user it acts for: the credential's own, or the one `X-Tellback-User` names."""

    def __init__(self, server: ServerContext, principal: Principal, user_id: str | None) -> None:
        self.server = server
        self.principal = principal
        self.user_id = user_id

    @cached_property
    def user(self) -> User:
        """The handle of the user it is about."""
        if self.user_id is None:
            raise InvalidArgumentError(
                "Whose data? This credential is for any user of its app: name one with the header X-Tellback-User."
            )
        return self.user_handle(self.user_id)

    def user_handle(self, user_id: str) -> User:
        """The handle of a user of the credential's tenant and app, if the credential may act for that one."""
        if self.principal.user_id not in (None, user_id):
            raise NotAllowedError(f"This credential is of user {self.principal.user_id!r}, and for no other.")
        return self.server.rc.user(user_id, self.principal.tenant_id, self.principal.app_id)

    @property
    def is_admin(self) -> bool:
        """Whether it has admin rights in its tenant and app."""
        return self.principal.role == "admin"

    def require_admin(self) -> None:
        """Refuse whoever has no admin rights."""
        if not self.is_admin:
            raise NotAllowedError("That needs a credential with the role 'admin'.")

    def resolve_model(self, name: str | None) -> Any:
        """The model to use: the Tellback's own, or another that callers may name."""
        default_model = self.server.rc.model
        if name is None or name == default_model:
            return default_model
        if name not in self.server.settings.models:
            known = [default_model] if isinstance(default_model, str) else []
            allowed = ", ".join([*known, *self.server.settings.models]) or "the server's own, by naming none"
            raise NotAllowedError(f"Model {name!r:.120} is not served here. Models that may be named: {allowed}.")
        return name


async def get_caller(request: Request) -> Caller:
    """The caller of a request, whom the guard has let in."""
    caller: Caller = request.scope["state"]["caller"]
    return caller


async def get_user(request: Request) -> User:
    """The user that a request is about."""
    caller: Caller = request.scope["state"]["caller"]
    return caller.user


async def get_admin(request: Request) -> Caller:
    """A caller with admin rights."""
    caller: Caller = request.scope["state"]["caller"]
    caller.require_admin()
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]
UserDep = Annotated[User, Depends(get_user)]
AdminDep = Annotated[Caller, Depends(get_admin)]
