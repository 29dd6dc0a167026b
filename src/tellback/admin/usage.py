"""What model calls for memory cost."""

from __future__ import annotations

from datetime import datetime

from tellback.conversations import checks
from tellback.conversations.runtime import Runtime
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.types.scope import Scope

TimeLike = datetime | str | None


async def list_usage(
    runtime: Runtime,
    scope: Scope | None,
    since: TimeLike,
    until: TimeLike,
    job_id: str | None,
    limit: int,
    before: str | None,
    **filters: str | None,
) -> list[UsageRecord]:
    """Call by call, the newest first; of one user or, with None, of all, or `of` a tenant and app."""
    start, end = _parse_period(since, until)
    valid_job_id = checks.validate_optional_text("job_id", job_id, checks.KEY_LENGTH)
    max_records, before_id = (
        checks.validate_count("limit", limit),
        checks.validate_optional_text("before", before, checks.KEY_LENGTH),
    )
    return await runtime.store.jobs.usage(
        scope, job_id=valid_job_id, since=start, until=end, limit=max_records, before=before_id, **filters
    )


async def total_usage(
    runtime: Runtime, scope: Scope | None, since: TimeLike, until: TimeLike, **filters: str | None
) -> list[UsageTotal]:
    """Added up by user, purpose and model."""
    start, end = _parse_period(since, until)
    return await runtime.store.jobs.usage_totals(scope, since=start, until=end, **filters)


def _parse_period(since: TimeLike, until: TimeLike) -> tuple[datetime | None, datetime | None]:
    start = None if since is None else checks.parse_datetime("since", since)
    return start, None if until is None else checks.parse_datetime("until", until)
