"""Bindings and extraction jobs on the wire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tellback.types.access import Scope
from tellback.types.jobs import Binding, ConversationScope, ExtractionPolicy, ExtractionRun, Job, JobStatus
from tellback.wire.base import CountIn, IdIn, InputModel, KeyMapping, WireModel

MAX_SCOPES = 100
MAX_SPACES = 50

MAX_WAIT_SECONDS = 30.0
"""How many seconds one request may wait for jobs."""

JOB_RESULT_KEYS = KeyMapping("left_out", "left_out_facts")
"""What the counts of a job are called."""


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


class JobWire(WireModel):
    """The extraction of one window of a conversation into one space."""

    id: str = Field(examples=["job_018f3c0de0a17b2c4d5e6f708192"])
    tenant_id: str
    app_id: str
    user_id: str
    kind_: str = Field(examples=["extract"])
    status: JobStatus
    conversation_id: str
    binding_id: str = Field(description="'direct' where a space was named instead.")
    memory_space_id: str
    extraction_version: str
    from_seq: int
    to_seq: int
    created_at: datetime
    updated_at: datetime
    due_at: datetime
    attempts: int = 0
    runs: int = 0
    finished_at: datetime | None = None
    error: str | None = None
    raw_output: str | None = Field(default=None, description="What the model had said, if it could not be read.")
    result: dict[str, Any] = Field(default_factory=dict, description="Counts of what a job that is done has changed.")

    @classmethod
    def from_value(cls, value: Job) -> JobWire:
        """It for a job."""
        wire = cls.model_validate(value)
        wire.result = JOB_RESULT_KEYS.to_wire(value.result)
        return wire

    def value(self) -> Job:
        """The job."""
        scope_fields = ("tenant_id", "app_id", "user_id")
        fields = {name.rstrip("_"): getattr(self, name) for name in type(self).model_fields if name not in scope_fields}
        fields["result"] = JOB_RESULT_KEYS.from_wire(self.result)
        return Job(scope=Scope(*(getattr(self, name) for name in scope_fields)), **fields)


class ExtractionRunWire(WireModel):
    """What was set going: a job for each binding, space and window; none if nothing was said yet.

    `id` and `status` are those of the first job that is not done, or else of the last one.
    """

    value_type: ClassVar[type[Any] | None] = ExtractionRun

    id: str | None = None
    status: JobStatus
    jobs: list[JobWire]

    @classmethod
    def from_value(cls, value: ExtractionRun) -> ExtractionRunWire:
        """It for a run."""
        return cls(id=value.id, status=value.status, jobs=[JobWire.from_value(job) for job in value.jobs])


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
