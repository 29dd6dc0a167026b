"""API keys on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tellback.types.access import ApiKey, ApiKeyRole, NewApiKey
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import DatetimeIn

MAX_RATE_LIMIT = 1_000_000


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
