"""Jobs on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field

from tellback.types.jobs import ExtractionRun, Job, JobStatus
from tellback.types.scope import Scope
from tellback.wire.base import InputModel, WireModel
from tellback.wire.bounds import IdIn
from tellback.wire.names import KeyMapping

MAX_WAIT_SECONDS = 30.0
"""How many seconds one request may wait for jobs."""

JOB_RESULT_KEYS = KeyMapping("left_out", "left_out_facts")
"""What the counts of a job are called."""


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
    def of(cls, value: Job) -> JobWire:
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
    def of(cls, value: ExtractionRun) -> ExtractionRunWire:
        """It for a run."""
        return cls(id=value.id, status=value.status, jobs=[JobWire.of(job) for job in value.jobs])


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
