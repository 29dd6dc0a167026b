"""Bindings and extraction jobs on the wire."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from tellback.wire.base import CountIn, IdIn, InputModel, WireModel

MAX_SCOPES = 100
MAX_SPACES = 50

MAX_WAIT_SECONDS = 30.0
"""How many seconds one request may wait for jobs."""


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


class RunExtraction(InputModel):
    """Which conversation to extract, and how: by the bindings that match, or into the space that is named."""

    conversation_id: IdIn
    extraction_version: str | None = Field(default=None, max_length=100, examples=["v2"])
    memory_space_id: IdIn | None = None

    def arguments(self) -> dict[str, Any]:
        """Those of the method, which calls the space otherwise."""
        arguments = super().arguments()
        return {"space_id" if name == "memory_space_id" else name: value for name, value in arguments.items()}


class WaitForExtraction(InputModel):
    """How long to wait."""

    timeout: float = Field(default=MAX_WAIT_SECONDS, ge=0, le=MAX_WAIT_SECONDS, description="Seconds.")


class ExtractionWaited(WireModel):
    """Whether what was closed has become memories."""

    done: bool
