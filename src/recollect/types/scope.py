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
