"""The `tellback conversations` commands: list, show and close conversations, and wait for their memories."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tellback.cli.options import (
    DEFAULT_TARGET,
    JsonOption,
    LimitOption,
    ModelOption,
    UserTarget,
)
from tellback.cli.output import (
    escape_controls,
    format_count,
    format_minute,
    print_json,
    print_line,
    print_outcome,
    print_pairs,
    print_rows,
    to_json_value,
    to_one_line,
)
from tellback.cli.runner import (
    command_group,
    format_missing_data,
    open_app,
    register_command,
    resolve_model,
    run_async,
    user_of_target,
)
from tellback.errors import require_found

if TYPE_CHECKING:
    from tellback.types.conversations import Conversation, StoredMessage
    from tellback.types.jobs import Job
    from tellback.user import User

POLL_SECONDS = 0.25
MAX_WAIT_SECONDS = 300.0
MAX_ERROR_LENGTH = 160

conversations_app = command_group("List, show and close conversations.", "tellback conversations list --user maya")

ConversationIdArgument = Annotated[
    str, typer.Argument(help="Conversation id, as shown by `tellback conversations list`.", show_default=False)
]


@register_command(conversations_app, "tellback conversations list --user maya --status open", name="list")
async def list_conversations(
    user: User,
    status: Annotated[
        Literal["open", "closed"] | None, typer.Option("--status", help="Only conversations with this status.")
    ] = None,
    namespace: Annotated[str | None, typer.Option("--namespace", help="Only conversations of this namespace.")] = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List a user's conversations, newest first."""
    print_rows(
        await user.conversations.list(namespace, status, limit),
        ("ID", "STATUS", "NAMESPACE", "MESSAGES", "UPDATED", "TITLE"),
        lambda each: (
            *(each.id, each.status, each.namespace, str(each.last_seq)),
            *(format_minute(each.updated_at), each.title or ""),
        ),
        as_json=as_json,
        if_empty=format_missing_data(user, "such conversation" if status or namespace else "conversation"),
        title_column="ID",
        to_json=_conversation_to_json,
    )


@register_command(conversations_app, "tellback conversations show conv_01J9 --user maya")
async def show(
    user: User,
    id: ConversationIdArgument,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Show only the last N messages.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include internal messages, which only the model saw.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a conversation and its messages."""
    found = require_found(await user.conversations.get(id), "conversation", id)
    messages = await user.conversations.messages(id, limit, everything)
    if as_json:
        message_values = [{**to_json_value(each), "text": each.text} for each in messages]
        print_json({**_conversation_to_json(found), "messages": message_values})
        return
    print_pairs(
        [
            ("id", found.id),
            ("title", found.title or ""),
            ("namespace", found.namespace),
            ("status", found.status),
            ("created", format_minute(found.created_at)),
            ("summary", found.rolling_summary or ""),
        ]
    )
    for message in messages:
        print_message(message)


@register_command(conversations_app, "tellback conversations close conv_01J9 --user maya")
def close(
    id: ConversationIdArgument,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Extract the memories now, or let a worker extract them later.")
    ] = True,
    model: ModelOption = None,
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Close a conversation and extract memories from it.

    The model extracts the memories. Without a model, every message becomes a memory, word for word.
    """

    async def close_and_wait() -> tuple[Conversation, bool, str]:
        reader = resolve_model(model).name if wait else None
        async with open_app(target.url, worker=wait, model=reader) as tb:
            found = user_of_target(tb, target)
            closed = await found.conversations.close(id)
            if not wait:
                return closed, False, "A worker or `tellback jobs drain` extracts its memories."
            return closed, *await wait_for_memories(found, id)

    closed, remembered, outcome = run_async(close_and_wait)
    value = {**_conversation_to_json(closed), "remembered": remembered}
    print_outcome(value, f"Closed {closed.id}. {outcome}", as_json=as_json)


async def wait_for_memories(
    user: User, conversation_id: str, max_seconds: float = MAX_WAIT_SECONDS
) -> tuple[bool, str]:
    """Wait until memories are extracted from a closed conversation; return whether they are, and a sentence.

    Does not wait for failed jobs, which are retried later.
    """
    deadline = time.monotonic() + max_seconds
    while not await user.memory.wait_for_extraction(POLL_SECONDS):
        if _failed_jobs(await user.memory.list_jobs(conversation_id)):
            break
        if time.monotonic() > deadline:
            return False, "Memories are still being extracted."
    jobs = await user.memory.list_jobs(conversation_id)
    if failed := _failed_jobs(jobs):
        reason = to_one_line(failed[0].error or "", MAX_ERROR_LENGTH).rstrip(".")
        return False, f"Extracting memories failed ({reason}). Run `tellback jobs list` for details."
    added = sum(int(job.result.get("added", 0)) for job in jobs)
    return True, f"Extracted {format_count(added, 'memory', 'memories')}."


def _failed_jobs(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if job.error is not None and job.status.value != "done"]


def print_message(message: StoredMessage) -> None:
    """Print a message: its role, time, text and tool calls."""
    print_line(f"\n{message.role}, {format_minute(message.created_at)}", style="bold")
    if message.text:
        typer.echo(escape_controls(message.text))
    for call in message.tool_calls:
        print_line(f"→ {call.name} {to_json_value(call.input)}", style="dim")


def _conversation_to_json(conversation: Conversation) -> dict[str, Any]:
    after = conversation.close_after
    found: dict[str, Any] = to_json_value(conversation)
    return {**found, "close_after": None if after is None else after.total_seconds()}
