"""Rows of bindings, jobs and usage to values. Columns come in the order the SQL files list them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tellback.stores.rows import dump_stored_json
from tellback.types.bindings import ANY, Binding, ConversationScope, ExtractionPolicy
from tellback.types.jobs import Job, JobStatus, UsageRecord, UsageTotal
from tellback.types.scope import Scope
from tellback.types.times import from_micros, to_micros


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A binding, and the position in the events from which on it holds."""

    binding: Binding
    since_position: int


def binding_from_row(row: Sequence[Any]) -> BindingRow:
    """A row of `bindings`."""
    binding = Binding(
        id=row[0],
        tenant_id=row[1],
        app_id=row[2],
        created_by=row[3],
        conversation_scope=tuple(ConversationScope(*each) for each in json.loads(row[4])),
        memory_space_ids=tuple(json.loads(row[5])),
        memory_space_names=tuple(json.loads(row[6])),
        extraction_policy=ExtractionPolicy(**json.loads(row[7])),
        enabled=bool(row[8]),
        created_at=from_micros(row[10]),
        updated_at=from_micros(row[11]),
    )
    return BindingRow(binding, row[9])


def binding_values(binding: Binding, since: int) -> dict[str, Any]:
    """A binding to be stored."""
    return {
        "id": binding.id,
        "created_by": binding.created_by,
        "scopes": dump_stored_json([[scope.namespace, scope.user_id] for scope in binding.conversation_scope]),
        "space_ids": dump_stored_json(binding.memory_space_ids),
        "space_names": dump_stored_json(binding.memory_space_names),
        "policy": dump_policy(binding.extraction_policy),
        "enabled": int(binding.enabled),
        "windowed": int(binding.extraction_policy.windowed),
        "about_user": _single_user(binding),
        "since": since,
        "now": to_micros(binding.created_at),
    }


def _single_user(binding: Binding) -> str | None:
    """Whom a binding is about, if that is one user."""
    users = {scope.user_id for scope in binding.conversation_scope}
    return None if len(users) != 1 or ANY in users else users.pop()


def dump_policy(policy: ExtractionPolicy) -> str:
    """A policy to be stored."""
    return dump_stored_json(asdict(policy))


def job_from_row(row: Sequence[Any]) -> Job:
    """A row of `jobs`."""
    return Job(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        kind=row[4],
        status=JobStatus(row[5]),
        conversation_id=row[6],
        binding_id=row[7],
        memory_space_id=row[8],
        extraction_version=row[9],
        from_seq=row[10],
        to_seq=row[11],
        attempts=row[12],
        due_at=from_micros(row[13]),
        created_at=from_micros(row[14]),
        updated_at=from_micros(row[15]),
        finished_at=None if row[16] is None else from_micros(row[16]),
        error=row[17],
        raw_output=row[18],
        result={} if row[19] is None else json.loads(row[19]),
        runs=row[20],
    )


def usage_from_row(row: Sequence[Any]) -> UsageRecord:
    """A row of `usage`."""
    return UsageRecord(
        id=row[0],
        scope=Scope(row[1], row[2], row[3]),
        purpose=row[4],
        job_id=row[5],
        conversation_id=row[6],
        model=row[7],
        provider=row[8],
        input_tokens=row[9],
        output_tokens=row[10],
        cost_usd=row[11],
        created_at=from_micros(row[12]),
    )


def usage_values(record: UsageRecord) -> dict[str, Any]:
    """A call's cost, to be stored."""
    return {
        "id": record.id,
        "purpose": record.purpose,
        "job_id": record.job_id,
        "conversation_id": record.conversation_id,
        "model": record.model,
        "provider": record.provider,
        "input_tokens": record.input_tokens,
        "output_tokens": record.output_tokens,
        "cost_usd": record.cost_usd,
        "created_at": to_micros(record.created_at),
    }


def usage_total_from_row(row: Sequence[Any]) -> UsageTotal:
    """A sum of rows of `usage`."""
    return UsageTotal(
        Scope(row[0], row[1], row[2]), row[3], row[4], row[5], int(row[6]), int(row[7]), float(row[8]), int(row[9])
    )
