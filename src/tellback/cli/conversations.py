"""`tellback conversations`: what was said."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    App,
    AsJson,
    Limit,
    Model,
    Tenant,
    Url,
    User,
    command,
    examples,
)
from tellback.cli.printing import minute, plain, safe, say, show_json, show_pairs, show_table
from tellback.cli.running import Whose, ask, handle, nothing_of, opened, run
from tellback.errors import NotFoundError

if TYPE_CHECKING:
    from tellback.types.conversations import Conversation, StoredMessage
    from tellback.user import User as Handle

app = typer.Typer(
    no_args_is_help=True,
    help="List, show and close conversations.",
    epilog=examples("tellback conversations list --user maya"),
)

Id = Annotated[
    str, typer.Argument(help="The conversation's id, as `tellback conversations list` shows it.", show_default=False)
]


class Status(StrEnum):
    """Whether a conversation goes on."""

    OPEN = "open"
    CLOSED = "closed"


@command(app, "tellback conversations list --user maya --status open", name="list")
def list_conversations(
    status: Annotated[Status | None, typer.Option("--status", help="Those that are open, or closed.")] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Those of this namespace alone.")] = None,
    limit: Limit = 20,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """List a user's conversations, the newest first."""

    async def work(user: Handle) -> tuple[list[Conversation], str]:
        found = await user.conversations.list(namespace, None if status is None else status.value, limit)
        return found, nothing_of(user, "such conversation" if status or namespace else "conversation")

    found, nothing = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json([_plain(each) for each in found])
    elif not found:
        say(nothing, stderr=True)
    else:
        rows = [
            (each.id, each.status, each.namespace, str(each.last_seq), minute(each.updated_at), each.title or "")
            for each in found
        ]
        show_table(("ID", "STATUS", "NAMESPACE", "MESSAGES", "CHANGED", "TITLE"), rows, head="ID")


@command(app, "tellback conversations show conv_01J9 --user maya")
def show(
    id: Id,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="The last so many messages.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also messages that only the model saw.")] = False,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Show a conversation and what was said in it."""

    async def work(user: Handle) -> tuple[Conversation, list[StoredMessage]]:
        found = await user.conversations.get(id)
        if found is None:
            raise NotFoundError("conversation", id)
        return found, await user.conversations.messages(id, limit, everything)

    found, messages = ask(Whose(url, user, tenant, app_id), work)
    if as_json:
        show_json({**_plain(found), "messages": [{**plain(each), "text": each.text} for each in messages]})
        return
    show_pairs(
        [
            ("id", found.id),
            ("title", found.title or ""),
            ("namespace", found.namespace),
            ("status", found.status),
            ("begun", minute(found.created_at)),
            ("summary", found.rolling_summary or ""),
        ]
    )
    for message in messages:
        show_message(message)


@command(app, "tellback conversations close conv_01J9 --user maya")
def close(
    id: Id,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Make the memories now, or leave that to a worker.")
    ] = True,
    model: Model = None,
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Close a conversation, which is when it becomes memories.

    The model reads it. Without one it is remembered word for word.
    """
    whose = Whose(url, user, tenant, app_id)

    async def work() -> tuple[Conversation, bool, str]:
        from tellback.cli.models import reading
        from tellback.cli.remembering import made_of

        async with opened(url, worker=wait, **(reading(model) if wait else {})) as rc:
            found = handle(rc, whose)
            closed = await found.conversations.close(id)
            if not wait:
                return closed, False, "a worker makes its memories, or tellback jobs drain."
            return closed, *await made_of(found, id)

    closed, remembered, told = run(work)
    if as_json:
        show_json({**_plain(closed), "remembered": remembered})
    else:
        say(f"{closed.id} is closed: {told}")


def show_message(message: StoredMessage) -> None:
    """Print a message: who, when and what, and which tools it calls."""
    say(f"\n{message.role}, {minute(message.created_at)}", style="bold")
    if message.text:
        typer.echo(safe(message.text))
    for call in message.tool_calls:
        say(f"→ {call.name} {plain(call.input)}", style="dim")


def _plain(conversation: Conversation) -> dict[str, Any]:
    after = conversation.close_after
    found: dict[str, Any] = plain(conversation)
    return {**found, "close_after": None if after is None else after.total_seconds()}
