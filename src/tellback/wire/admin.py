"""Usage, erasure, replay and API keys on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from tellback.admin import ErasureReport
from tellback.types.access import ApiKey, ApiKeyRole, NewApiKey
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.wire.base import DatetimeIn, InputModel, WireModel

MAX_BATCH_SIZE = 1_000
MAX_AGE_SECONDS = 365_000 * 86_400
"""Seconds: as long as any length of time may be."""

BatchLimitIn = Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]

MAX_RATE_LIMIT = 1_000_000


class UsageRecordWire(WireModel):
    """What one model call for memory cost."""

    value_type: ClassVar[type[Any] | None] = UsageRecord

    id: str = Field(examples=["use_018f3c0de0a17b2c4d5e6f708192"])
    tenant_id: str
    app_id: str
    user_id: str
    purpose: str = Field(examples=["extraction"])
    created_at: datetime
    job_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = Field(default=None, description="Null where no price is known.")


class UsageTotalWire(WireModel):
    """The calls of one user, purpose and model, added up."""

    value_type: ClassVar[type[Any] | None] = UsageTotal

    tenant_id: str
    app_id: str
    user_id: str
    purpose: str = Field(examples=["extraction"])
    model: str | None = None
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float = Field(description="The sum of what has a price.")
    unpriced_calls: int = Field(description="How many calls have none.")

    @classmethod
    def from_value(cls, value: UsageTotal) -> UsageTotalWire:
        """It for a total, whose scope has names of its own here."""
        scope = value.scope
        scope_fields: dict[str, Any] = {"tenant_id": scope.tenant_id, "app_id": scope.app_id, "user_id": scope.user_id}
        names = ("purpose", "model", "calls", "input_tokens", "output_tokens", "cost_usd", "unpriced_calls")
        return cls(**scope_fields, **{name: getattr(value, name) for name in names})


class ErasedWire(WireModel):
    """What an erasure deleted."""

    deleted: dict[str, int] = Field(examples=[{"messages": 12}], description="How many rows of each table.")
    job_ids: list[str] = Field(default_factory=list)

    @classmethod
    def from_value(cls, value: ErasureReport) -> ErasedWire:
        """It for what an erasure gave."""
        return cls(deleted=dict(value), job_ids=list(value.job_ids))

    def value(self) -> ErasureReport:
        """What the erasure gave."""
        return ErasureReport(self.deleted, tuple(self.job_ids))


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


class ApiKeyWire(WireModel):
    """An API key, without its secret."""

    value_type: ClassVar[type[Any] | None] = ApiKey

    id: str = Field(examples=["key_018f3c0de0a17b2c4d5e6f708192"])
    name: str = Field(examples=["Maya's phone"])
    tenant_id: str
    app_id: str
    role: ApiKeyRole
    created_at: datetime
    user_id: str | None = Field(default=None, description="The user that a key of the role 'user' is fixed to.")
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate_limit: int | None = Field(default=None, description="Requests a minute; null is what the server has for all.")


class NewApiKeyWire(WireModel):
    """A key that was just made, with its secret: nobody can show that again."""

    value_type: ClassVar[type[Any] | None] = NewApiKey

    key: ApiKeyWire
    secret: str = Field(repr=False, description="To be sent as `Authorization: Bearer <secret>`.")


class CreateKey(InputModel):
    """Make a key for your own tenant and app. One of the role 'user' is fixed to `userId`, others take none."""

    role: ApiKeyRole = "app"
    name: str = Field(default="", max_length=200, examples=["Maya's phone"])
    user_id: str | None = Field(default=None, max_length=200, examples=["maya"])
    expires_at: DatetimeIn | None = None
    rate_limit: Annotated[int, Field(ge=1, le=MAX_RATE_LIMIT)] | None = Field(
        default=None, description="Requests a minute; by default what the server has for all."
    )
