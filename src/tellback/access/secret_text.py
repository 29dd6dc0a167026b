"""The secrets of API keys as text: `rk_`, the key's id, and what nobody can guess."""

from __future__ import annotations

import hashlib
import re
import secrets

from tellback.types.ids import new_id

_ID_PREFIX = "key"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(r"rk_([0-9a-f]{28})_([A-Za-z0-9_-]{43})")


def generate_secret() -> tuple[str, str, str]:
    """A new key's id, its secret text, and the digest to keep of it."""
    id, token = new_id(_ID_PREFIX), secrets.token_urlsafe(_SECRET_BYTES)
    return id, f"rk_{id.removeprefix(f'{_ID_PREFIX}_')}_{token}", digest_token(token)


def parse_secret(text: object) -> tuple[str, str] | None:
    """The id of the key that a text claims to be, and the digest of its secret part; None if it is no such text.

    >>> id, secret, kept = generate_secret()
    >>> parse_secret(secret) == (id, kept)
    True
    >>> parse_secret("letmein") is None
    True
    """
    match = _SECRET_PATTERN.fullmatch(text) if isinstance(text, str) else None
    return None if match is None else (f"{_ID_PREFIX}_{match[1]}", digest_token(match[2]))


def digest_token(token: str) -> str:
    """What is kept of a secret. It has 256 bits of chance, so nothing slower is needed to hide it."""
    return hashlib.sha256(token.encode()).hexdigest()
