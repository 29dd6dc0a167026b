"""API keys on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tellback.types.access import ApiKey, NewApiKey, Role
from tellback.wire.base import Input, Wire
from tellback.wire.bounds import MomentIn

MOST_A_MINUTE = 1_000_000


class ApiKeyWire(Wire):
    """An API key, without its secret."""

    kind: ClassVar[type[Any] | None] = ApiKey

    id: str = Field(examples=["key_018f3c0de0a17b2c4d5e6f708192"])
    name: str = Field(examples=["Maya's phone"])
    tenant_id: str
    app_id: str
    role: Role
    created_at: datetime
    user_id: str | None = Field(default=None, description="The user that a key of the role 'user' is fixed to.")
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate_limit: int | None = Field(default=None, description="Requests a minute; null is what the server has for all.")


class NewApiKeyWire(Wire):
    """A key that was just made, with its secret: nobody can show that again."""

    kind: ClassVar[type[Any] | None] = NewApiKey

    key: ApiKeyWire
    secret: str = Field(repr=False, description="To be sent as `Authorization: Bearer <secret>`.")


class CreateKey(Input):
    """Make a key for your own tenant and app. One of the role 'user' is fixed to `userId`, others take none."""

    role: Role = "app"
    name: str = Field(default="", max_length=200, examples=["Maya's phone"])
    user_id: str | None = Field(default=None, max_length=200, examples=["maya"])
    expires_at: MomentIn | None = None
    rate_limit: Annotated[int, Field(ge=1, le=MOST_A_MINUTE)] | None = Field(
        default=None, description="Requests a minute; by default what the server has for all."
    )
