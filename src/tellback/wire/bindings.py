"""Bindings on the wire: which conversations become memories, and where."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tellback.types.bindings import Binding, ConversationScope, ExtractionPolicy
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import CountIn, IdIn

MAX_SCOPES = 100
MAX_SPACES = 50


class ConversationScopeWire(WireModel):
    """Conversations of a namespace and a user; `*` is any."""

    value_type: ClassVar[type[Any] | None] = ConversationScope

    namespace: str = Field(examples=["daily-checkin"])
    user_id: str = Field(examples=["*"])


class ExtractionPolicyWire(WireModel):
    """When conversations are extracted, and by which version of the prompt."""

    value_type: ClassVar[type[Any] | None] = ExtractionPolicy

    extraction_version: str = "v1"
    on_conversation_closed: bool = True
    windowed: bool = False
    window_turns: int = 0


def _unwrap_single(scopes: Any) -> Any:
    """A single scope stands by itself."""
    return scopes[0] if isinstance(scopes, Sequence) and len(scopes) == 1 else scopes


class BindingWire(WireModel):
    """Conversations of some scopes become memories of some spaces.

    `conversationScope` is one scope, or a list of several. `memorySpaceIds` are spaces of whoever made it
    (`createdBy`); conversations of other users go to their own spaces of the same names.
    """

    value_type: ClassVar[type[Any] | None] = Binding

    id: str = Field(examples=["bind_018f3c0de0a17b2c4d5e6f708192"])
    tenant_id: str
    app_id: str
    conversation_scope: Annotated[ConversationScopeWire | list[ConversationScopeWire], BeforeValidator(_unwrap_single)]
    memory_space_ids: list[str]
    memory_space_names: list[str] = Field(default_factory=list)
    extraction_policy: ExtractionPolicyWire
    enabled: bool = True
    created_by: str | None = None
    created_at: datetime
    updated_at: datetime

    def value(self) -> Binding:
        """The binding."""
        found: Binding = super().value()
        if isinstance(found.conversation_scope, ConversationScope):
            object.__setattr__(found, "conversation_scope", (found.conversation_scope,))
        return found


class ConversationScopeIn(InputModel):
    """Conversations of a namespace and a user; `*`, which is the default, is any."""

    namespace: str = Field(default="*", max_length=200, examples=["daily-checkin"])
    user_id: str = Field(default="*", max_length=200, examples=["*"])


class ExtractionPolicyIn(InputModel):
    """When to extract: when a conversation closes, if not said otherwise."""

    extraction_version: str = Field(default="v1", max_length=100)
    on_conversation_closed: bool = True
    windowed: bool = Field(default=False, description="Extract every `windowTurns` turns while it is open.")
    window_turns: CountIn = 0


class CreateBinding(InputModel):
    """Let conversations become memories from now on."""

    conversation_scope: ConversationScopeIn | Annotated[list[ConversationScopeIn], Field(max_length=MAX_SCOPES)]
    memory_space_ids: list[IdIn] = Field(max_length=MAX_SPACES, description="Spaces of this user.")
    extraction_policy: ExtractionPolicyIn | None = None
    once: bool = Field(default=False, description="Give the user's binding of the same scopes and spaces, if any.")


class UpdateBinding(InputModel):
    """Change when a binding extracts, or pause it. What it is about never changes."""

    extraction_policy: ExtractionPolicyIn | None = None
    enabled: bool | None = None
