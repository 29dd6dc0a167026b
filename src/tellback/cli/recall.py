"""`tellback recall` and `tellback timeline`: what memory answers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli import times
from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, App, AsJson, Limit, Space, Tenant, Url, User
from tellback.cli.printing import say, show_json, show_table
from tellback.cli.running import Whose, ask, space_of
from tellback.cli.showing import cited, held, kind_of, plain_hit, show_explanations, show_hits

if TYPE_CHECKING:
    from tellback.types.memory import RecallResult
    from tellback.user import User as Handle

Categories = Annotated[list[str] | None, typer.Option("--category", "-c", help="Memories of this category alone.")]


def recall(
    topic: Annotated[
        str | None, typer.Argument(help="A question, or words: what it is about.", show_default=False)
    ] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="All about a person, place or thing, by name or id.")
    ] = None,
    at: Annotated[
        datetime | None,
        typer.Option("--at", parser=times.beginning, metavar=times.METAVAR, help="What held at that moment."),
    ] = None,
    category: Categories = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each score is made of.")] = False,
    space: Space = None,
    limit: Limit = 10,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Recall what is remembered on a topic or about an entity, with scores and where it was said.

    Words such as "last May" in a question are understood. With --entity the newest come first.
    """
    if (topic is None) == (entity is None):
        raise typer.BadParameter('name a topic ("where does she live?"), or --entity Lena: one of the two.')

    async def work(handle: Handle) -> RecallResult:
        found = await space_of(handle, space)
        if entity is not None:
            return await handle.memory.recall_by_entity(found.id, entity, limit, category, valid_at=at)
        assert topic is not None
        return await handle.memory.recall_by_topic(found.id, topic, limit, category, valid_at=at)

    result = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json(_plain(result))
    elif not result.hits:
        say("Nothing is remembered of that.", stderr=True)
    else:
        show_hits(result.hits)
        if explain:
            say("\nWhat the scores are made of, in log-odds:")
            show_explanations(result.hits)


def timeline(
    query: Annotated[str | None, typer.Argument(help="A topic; without one, everything.", show_default=False)] = None,
    entity: Annotated[
        str | None, typer.Option("--entity", "-e", help="About a person, place or thing, by name or id.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option("--from", parser=times.beginning, metavar=times.METAVAR, help="From then on."),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option("--to", parser=times.end, metavar=times.METAVAR, help="Until then.")
    ] = None,
    current: Annotated[bool, typer.Option("--current", help="Leave out what is over.")] = False,
    category: Categories = None,
    space: Space = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Show how things changed: what held when, the oldest first, also what is over."""
    if since is not None and until is not None and since > until:
        raise typer.BadParameter(f"--from ({since:%Y-%m-%d %H:%M}) is later than --to ({until:%Y-%m-%d %H:%M}).")

    async def work(handle: Handle) -> RecallResult:
        found = await space_of(handle, space)
        return await handle.memory.recall_timeline(
            found.id, entity, query, since, until, limit, not current, category_names=category
        )

    result = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json(_plain(result))
    elif not result.hits:
        say("Nothing is remembered of that time.", stderr=True)
    else:
        rows = [(held(hit.atom), kind_of(hit.atom), hit.atom.id, cited(hit.atom), hit.atom.text) for hit in result.hits]
        show_table(("HOLDS", "CATEGORY", "ID", "SAID IN", "TEXT"), rows)


def _plain(result: RecallResult) -> dict[str, object]:
    return {
        "mode": result.mode.value,
        "total_candidates": result.total_candidates,
        "latency_ms": result.latency_ms,
        "hits": [plain_hit(hit) for hit in result.hits],
    }
