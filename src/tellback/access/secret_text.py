"""The secrets of API keys as text: `rk_`, the key's id, and what nobody can guess."""

from __future__ import annotations

import hashlib
import re
import secrets

from tellback.types.ids import new_id

_PREFIX = "key"
_BYTES = 32
_SECRET = re.compile(r"rk_([0-9a-f]{28})_([A-Za-z0-9_-]{43})")


def new_secret() -> tuple[str, str, str]:
    """A new key's id, its secret text, and the digest to keep of it."""
    id, unguessable = new_id(_PREFIX), secrets.token_urlsafe(_BYTES)
    return id, f"rk_{id.removeprefix(f'{_PREFIX}_')}_{unguessable}", digest(unguessable)


def read_secret(text: object) -> tuple[str, str] | None:
    """The id of the key that a text claims to be, and the digest of its secret part; None if it is no such text.

    >>> id, secret, kept = new_secret()
    >>> read_secret(secret) == (id, kept)
    True
    >>> read_secret("letmein") is None
    True
    """
    found = _SECRET.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else (f"{_PREFIX}_{found[1]}", digest(found[2]))


def digest(unguessable: str) -> str:
    """What is kept of a secret. It has 256 bits of chance, so nothing slower is needed to hide it."""
    return hashlib.sha256(unguessable.encode()).hexdigest()
