"""Usage, erasure, replay and API keys on the wire."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tellback.types.access import ApiKeyRole
from tellback.wire.base import DatetimeIn, InputModel, WireModel

MAX_BATCH_SIZE = 1_000
MAX_AGE_SECONDS = 365_000 * 86_400
"""Seconds: as long as any length of time may be."""

BatchLimitIn = Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]

MAX_RATE_LIMIT = 1_000_000


class DeleteUserData(InputModel):
    """Delete all that is kept of a user, for good. `confirm` must be true."""

    user_id: str | None = Field(default=None, max_length=200, description="The credential's own user, if not given.")
    confirm: Literal[True] = Field(description="That it is meant.")


class CloseEveryonesStale(InputModel):
    """Close everyone's conversations in which nothing happened for so long."""

    older_than: float = Field(ge=0, le=MAX_AGE_SECONDS, examples=[3600], description="Seconds.")
    limit: BatchLimitIn = Field(default=200, description="How many conversations to look at in this request.")
    cursor: str | None = Field(default=None, max_length=1_000, description="nextCursor of the answer before.")


class StaleClosed(WireModel):
    """What was closed. With `nextCursor`, there are more to look at: pass it as `cursor`."""

    conversation_ids: list[str] = Field(default_factory=list)
    next_cursor: str | None = None


class ReplayConversations(InputModel):
    """Extract everyone's conversations again, the oldest first."""

    namespace: str | None = Field(default=None, max_length=200, description="Of all namespaces, if not given.")
    extraction_version: str | None = Field(default=None, max_length=100)
    limit: BatchLimitIn = Field(default=100, description="How many conversations to queue in this request.")
    cursor: str | None = Field(default=None, max_length=1_000, description="nextCursor of the answer before.")


class Replayed(WireModel):
    """What was queued. With `nextCursor`, there are more conversations: pass it as `cursor`."""

    conversations: int = Field(description="How many were looked at.")
    jobs: int = Field(description="How many jobs wait or run for them now.")
    skipped: int = Field(description="How many no binding matches.")
    next_cursor: str | None = None


class CreateKey(InputModel):
    """Make a key for your own tenant and app. One of the role 'user' is fixed to `userId`, others take none."""

    role: ApiKeyRole = "app"
    name: str = Field(default="", max_length=200, examples=["Maya's phone"])
    user_id: str | None = Field(default=None, max_length=200, examples=["maya"])
    expires_at: DatetimeIn | None = None
    rate_limit: Annotated[int, Field(ge=1, le=MAX_RATE_LIMIT)] | None = Field(
        default=None, description="Requests a minute; by default what the server has for all."
    )
