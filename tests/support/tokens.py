"""An identity provider for tests: its keys, its JWKS, and tokens of all kinds."""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tellback.server import JwtSettings

ISSUER = "https://login.example.com/"
AUDIENCE = "tellback"

_WRITERS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


@cache
def private_key(algorithm: str = "RS256", number: int = 1) -> Any:
    """Return a private key; each number has a different one."""
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate() if algorithm == "EdDSA" else rsa.generate_private_key(65537, 2048)


def public_pem(algorithm: str = "RS256", number: int = 1) -> bytes:
    """Return the public key as PEM text."""
    pem: bytes = (
        private_key(algorithm, number).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return pem


def jwk(kid: str | None = "one", algorithm: str = "RS256", number: int = 1, **kwargs: Any) -> dict[str, Any]:
    """Return a public key as a JWK."""
    key_data = json.loads(_WRITERS[algorithm].to_jwk(private_key(algorithm, number).public_key()))
    return {**key_data, **({} if kid is None else {"kid": kid}), **kwargs}


def jwks(*keys: dict[str, Any]) -> dict[str, Any]:
    """Return keys as a JWKS; by default the first key."""
    return {"keys": list(keys or [jwk()])}


def settings(**kwargs: Any) -> JwtSettings:
    """Return settings that accept this issuer's tokens."""
    values = {"issuer": ISSUER, "audience": AUDIENCE, **kwargs}
    if "jwks_url" not in values:
        values.setdefault("jwks", jwks())
    return JwtSettings(**values)


def claims(**kwargs: Any) -> dict[str, Any]:
    """Return the claims of a valid token; None omits a claim."""
    now = int(time.time())
    values = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "maya",
        "tenant_id": "acme",
        "iat": now,
        "exp": now + 600,
        **kwargs,
    }
    return {name: value for name, value in values.items() if value is not None}


def token(kid: str | None = "one", algorithm: str = "RS256", number: int = 1, **kwargs: Any) -> str:
    """Return a signed token with these claims."""
    headers = {} if kid is None else {"kid": kid}
    return signed(claims(**kwargs), {"alg": algorithm, **headers}, algorithm, number)


def signed(payload: Any, header: Any, algorithm: str = "RS256", number: int = 1) -> str:
    """Return a correctly signed token with any content, even one that a library would not create."""
    start = f"{_encode_part(payload)}" if header is None else f"{_encode_part(header)}.{_encode_part(payload)}"
    writer = jwt.get_algorithm_by_name(algorithm)
    signature = writer.sign(start.encode(), writer.prepare_key(private_key(algorithm, number)))
    return f"{start}.{_encode_base64(signature)}"


def unsigned(payload: Any, header: Any, signature: bytes = b"") -> str:
    """Return a token with any signature."""
    return f"{_encode_part(header)}.{_encode_part(payload)}.{_encode_base64(signature)}"


def _encode_part(value: Any) -> str:
    return _encode_base64(value if isinstance(value, bytes) else json.dumps(value).encode())


def _encode_base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
