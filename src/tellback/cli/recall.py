"""`tellback recall` and `tellback timeline`: what memory answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli import times
from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    AppOption,
    JsonOption,
    LimitOption,
    SpaceOption,
    TenantOption,
    UrlOption,
    UserOption,
)
from tellback.cli.printing import print_json, print_line, print_table
from tellback.cli.running import UserTarget, resolve_space, run_for_user
from tellback.cli.showing import (
    format_category,
    format_source,
    format_validity,
    hit_to_json,
    print_hits,
    print_score_parts,
)

if TYPE_CHECKING:
    from tellback.types.memory import RecallResult
    from tellback.user import User as Handle

CategoriesOption = Annotated[
    list[str] | None, typer.Option("--category", "-c", help="Memories of this category alone.")
]


def recall(
    topic: Annotated[
        str | None, typer.Argument(help="A question, or words: what it is about.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="All about a person, place or thing, by name or id.")
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at", parser=times.parse_period_start, metavar=times.TIME_METAVAR, help="What held at that moment."
        ),
    ] = None,
    category: CategoriesOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each score is made of.")] = False,
    space: SpaceOption = None,
    limit: LimitOption = 10,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Recall what is remembered on a topic or about an entity, with scores and where it was said.

    Words such as "last May" in a question are understood. With --entity the newest come first.
    """
    if (topic is None) == (entity is None):
        raise typer.BadParameter('name a topic ("where does she live?"), or --entity Lena: one of the two.')

    async def load(handle: Handle) -> RecallResult:
        found = await resolve_space(handle, space)
        if entity is not None:
            return await handle.memory.recall_by_entity(found.id, entity, limit, category, valid_at=at)
        assert topic is not None
        return await handle.memory.recall_by_topic(found.id, topic, limit, category, valid_at=at)

    result = run_for_user(UserTarget(url, user, tenant, app_id), load)
    if as_json:
        print_json(_result_to_json(result))
    elif not result.hits:
        print_line("Nothing is remembered of that.", stderr=True)
    else:
        print_hits(result.hits)
        if explain:
            print_line("\nWhat the scores are made of, in log-odds:")
            print_score_parts(result.hits)


def timeline(
    query: Annotated[str | None, typer.Argument(help="A topic; without one, everything.", show_default=False)] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="About a person, place or thing, by name or id.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", parser=times.parse_period_start, metavar=times.TIME_METAVAR, help="From then on."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--to", parser=times.parse_period_end, metavar=times.TIME_METAVAR, help="Until then."),
    ] = None,
    current: Annotated[bool, typer.Option("--current", help="Leave out what is over.")] = False,
    category: CategoriesOption = None,
    space: SpaceOption = None,
    limit: LimitOption = 20,
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Show how things changed: what held when, the oldest first, also what is over."""
    if since is not None and until is not None and since > until:
        raise typer.BadParameter(f"--from ({since:%Y-%m-%d %H:%M}) is later than --to ({until:%Y-%m-%d %H:%M}).")

    async def load(handle: Handle) -> RecallResult:
        found = await resolve_space(handle, space)
        return await handle.memory.recall_timeline(
            found.id, entity, query, since, until, limit, not current, category_names=category
        )

    result = run_for_user(UserTarget(url, user, tenant, app_id), load)
    if as_json:
        print_json(_result_to_json(result))
    elif not result.hits:
        print_line("Nothing is remembered of that time.", stderr=True)
    else:
        rows = [
            (format_validity(hit.atom), format_category(hit.atom), hit.atom.id, format_source(hit.atom), hit.atom.text)
            for hit in result.hits
        ]
        print_table(("HOLDS", "CATEGORY", "ID", "SAID IN", "TEXT"), rows)


def _result_to_json(result: RecallResult) -> dict[str, object]:
    return {
        "mode": result.mode.value,
        "total_candidates": result.total_candidates,
        "latency_ms": result.latency_ms,
        "hits": [hit_to_json(hit) for hit in result.hits],
    }
