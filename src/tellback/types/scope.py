"""Whose data it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scope:
    """The user whose rows may be seen and changed: every row carries it, every statement filters on it.

    >>> Scope("acme", "support", "maya").user_id
    'maya'
    """

    tenant_id: str
    app_id: str
    user_id: str


class Scoped:
    """Something that belongs to a user: its `scope` in parts."""

    __slots__ = ()

    scope: Scope

    @property
    def tenant_id(self) -> str:
        """The tenant it belongs to."""
        return self.scope.tenant_id

    @property
    def app_id(self) -> str:
        """The app it belongs to."""
        return self.scope.app_id

    @property
    def user_id(self) -> str:
        """The user it belongs to."""
        return self.scope.user_id
