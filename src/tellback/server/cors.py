"""Pages of other origins: none, unless they are named."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from tellback.server.settings import ServerSettings

_ALLOWED_HEADERS = (
    *("Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "Last-Event-ID", "traceparent"),
    *("X-Request-Id", "X-Tellback-Conversation", "X-Tellback-Namespace", "X-Tellback-Session"),
    *("X-Tellback-Space", "X-Tellback-User"),
)
_EXPOSED_HEADERS = (
    *("ETag", "Idempotency-Replayed", "Retry-After"),
    *("X-Tellback-Conversation", "X-Tellback-Session", "X-Request-Id"),
)


def add_cors(app: FastAPI, settings: ServerSettings) -> None:
    """Let pages of `cors_origins` ask and read answers. Add it after the guard, so that it stands outside it."""
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=_ALLOWED_HEADERS,
            expose_headers=_EXPOSED_HEADERS,
            max_age=600,
        )
