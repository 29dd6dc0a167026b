"""What model calls for memory cost."""

from __future__ import annotations

from datetime import datetime

from tellback.conversations import checks
from tellback.conversations.runtime import Runtime
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.types.scope import Scope

Moment = datetime | str | None


async def calls(
    runtime: Runtime,
    scope: Scope | None,
    since: Moment,
    until: Moment,
    job_id: str | None,
    limit: int,
    before: str | None,
    **of: str | None,
) -> list[UsageRecord]:
    """Call by call, the newest first; of one user or, with None, of all, or `of` a tenant and app."""
    start, end = _stretch(since, until)
    job = checks.optional_text("job_id", job_id, checks.KEY_LENGTH)
    most, last = checks.count("limit", limit), checks.optional_text("before", before, checks.KEY_LENGTH)
    return await runtime.store.jobs.usage(scope, job_id=job, since=start, until=end, limit=most, before=last, **of)


async def totals(
    runtime: Runtime, scope: Scope | None, since: Moment, until: Moment, **of: str | None
) -> list[UsageTotal]:
    """Added up by user, purpose and model."""
    start, end = _stretch(since, until)
    return await runtime.store.jobs.usage_totals(scope, since=start, until=end, **of)


def _stretch(since: Moment, until: Moment) -> tuple[datetime | None, datetime | None]:
    start = None if since is None else checks.moment("since", since)
    return start, None if until is None else checks.moment("until", until)
