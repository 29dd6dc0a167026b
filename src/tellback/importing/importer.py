"""Bringing chats in: each becomes a closed conversation at its own time, and memories are made of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import Any

from tellback.conversations import checks
from tellback.errors import ConversationClosedError
from tellback.importing.handles import ImportUser
from tellback.importing.known import PAGE_SIZE, ImportedConversations, build_metadata
from tellback.importing.reading import ChatExport, ExportEntry
from tellback.importing.remembering import ExtractionCounts, ensure_binding, wait_for_memories
from tellback.importing.threads import run_in_thread
from tellback.importing.values import Format, ImportedChat, ImportProgress, ImportReport
from tellback.types.conversations import Conversation

BATCH_MESSAGES, BATCH_LENGTH = 500, 500_000
"""How many messages, and characters of them, are stored at once: a server takes no larger requests."""

BLOCK_LENGTH = 100_000
"""How long one text of a message may be; a longer one is stored in several."""

MAX_ATTEMPTS = 5
PROGRESS_INTERVAL = 100
"""After how many chats that were found to tell so."""

SKIPPED_BEFORE_SINCE = "nothing was said in it since the given time"
SKIPPED_OVER_LIMIT = "the limit was reached"

ImportProgressCallback = Callable[[ImportProgress], Any]


async def import_chats(
    user: ImportUser,
    source: str | PathLike[str],
    *,
    format: Format = "auto",
    namespace: str = "imported",
    space: str = "default",
    extract: bool = True,
    on_progress: ImportProgressCallback | None = None,
    since: datetime | str | None = None,
    limit: int | None = None,
    wait: bool = True,
    dry_run: bool = False,
) -> ImportReport:
    """Bring in the chats of an export of ChatGPT or Claude (a zip, its folder or a file of it), or of plain JSON lines.

    Each chat becomes a closed conversation of the namespace, the oldest first, each message at the time it was said.
    With `extract`, a binding from the namespace to the space is there, so that memories are made of them, and with
    `wait` these are waited for; someone must be running jobs, as Tellback does unless it has `worker=False`.

    Doing it again, also after it was cut off, adds only what is missing. A chat that has grown goes on in another
    conversation, since closed ones stay closed. `since` takes chats in which something was said at that time or later,
    `limit` so many that are not there yet. `dry_run` changes nothing, and reports what would be done. `user` is a
    handle of this process or of `TellbackClient`. Raises `ImportFormatError`, before anything is imported, for what
    cannot be read.

    >>> import asyncio, pathlib, tempfile
    >>> from tellback import Tellback
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         file = pathlib.Path(folder, "chats.jsonl")
    ...         file.write_text('{"role": "user", "content": "I moved to Lisbon.", "created_at": "2024-03-01"}')
    ...         async with Tellback(":memory:") as rc:
    ...             return await import_chats(rc.user("maya"), file)
    >>> print(asyncio.run(main()))
    1 chat with 1 message imported. 1 memory made.
    """
    since_time = None if since is None else checks.parse_datetime("since", since)
    max_chats = None if limit is None else checks.validate_count("limit", limit)
    name = checks.validate_name("namespace", namespace)
    report_progress = on_progress or (lambda progress: None)
    loop = asyncio.get_running_loop()

    def open_export(check_cancelled: Callable[[], None]) -> ChatExport:
        def on_chat_found(count: int) -> None:
            check_cancelled()
            if count % PROGRESS_INTERVAL == 0:
                loop.call_soon_threadsafe(report_progress, ImportProgress("reading", count, count))

        return ChatExport(source, format, on_chat_found)

    export = await run_in_thread(open_export, ChatExport.close)
    with export:
        if extract and not dry_run and export.entries:
            await ensure_binding(user.memory, name, space)
        run = _ImportRun(user, name, export, report_progress, dry_run)
        await run.run(since_time, max_chats)
    extraction = ExtractionCounts()
    if extract and wait and not dry_run:
        extraction = await wait_for_memories(user.memory, run.conversation_ids, report_progress)
    return run.report(extraction)


class _ImportRun:
    """One run over an export."""

    def __init__(
        self, user: ImportUser, namespace: str, export: ChatExport, on_progress: ImportProgressCallback, dry_run: bool
    ) -> None:
        self._conversations = user.conversations
        self._namespace = namespace
        self._export = export
        self._on_progress = on_progress
        self._dry_run = dry_run
        self._imported = ImportedConversations(user.conversations, namespace)
        self._skipped: Counter[str] = Counter(export.skipped)
        self._left_out: Counter[str] = Counter()
        self._chats = self._messages = self._continued = self._already_there = 0
        self.conversation_ids: list[str] = []

    async def run(self, since: datetime | None, limit: int | None) -> None:
        """Import what is wanted and missing."""
        await self._imported.refresh(PAGE_SIZE)
        wanted = [entry for entry in self._export.entries if _is_since(entry, since)]
        if len(wanted) < len(self._export.entries):
            self._skipped[SKIPPED_BEFORE_SINCE] += len(self._export.entries) - len(wanted)
        for index, entry in enumerate(wanted):
            if limit is not None and self._chats >= limit:
                self._skipped[SKIPPED_OVER_LIMIT] += len(wanted) - index
                break
            await self._import_chat(await run_in_thread(partial(self._read_entry, entry)))
            self._on_progress(ImportProgress("importing", index + 1, len(wanted), self._messages))

    def report(self, extraction: ExtractionCounts) -> ImportReport:
        """What came of it."""
        return ImportReport(
            format=self._export.format,
            chats=self._chats,
            messages=self._messages,
            continued=self._continued,
            already_there=self._already_there,
            skipped=dict(self._skipped),
            left_out=dict(self._left_out),
            memories=extraction.memories,
            failed_jobs=extraction.failed,
            waiting_jobs=extraction.waiting,
            dry_run=self._dry_run,
        )

    def _read_entry(self, entry: ExportEntry, check_cancelled: Callable[[], None]) -> ImportedChat:
        return self._export.read(entry)

    async def _import_chat(self, chat: ImportedChat) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._attempt_import(chat)
            except ConversationClosedError:
                # Another import has just finished the same chat: look again at what is there.
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                await self._imported.refresh()
            else:
                return

    async def _attempt_import(self, chat: ImportedChat) -> None:
        if self._imported.is_complete(chat):
            self._already_there += 1
            return
        existing = self._imported.conversations_of(chat)
        missing = await self._imported.missing_messages(chat) if existing else list(range(len(chat.messages)))
        is_unfinished = any(part.is_open for part in existing)
        if not missing and not is_unfinished:
            self._already_there += 1
            return
        if not self._dry_run:
            conversation = await self._open_conversation(chat, len(missing))
            if conversation is None:
                self._already_there += 1
                return
            for batch in _message_batches(chat, missing):
                await self._conversations.append_messages(conversation.id, batch)
            self._imported.add(await self._conversations.close(conversation.id))
            self.conversation_ids.append(conversation.id)
        self._chats += 1
        self._messages += len(missing)
        self._continued += any(not part.is_open for part in existing)
        self._left_out.update(chat.left_out)

    async def _open_conversation(self, chat: ImportedChat, message_count: int) -> Conversation | None:
        """An open one for the chat; None if another import has brought it in meanwhile."""
        known_count = len(self._imported.conversations_of(chat))
        conversation = await self._conversations.find_or_create(
            self._namespace, chat.session_id, title=chat.title, metadata=build_metadata(chat, message_count)
        )
        if conversation.id in self._imported:
            return conversation
        # The search ends at what is known, so this one must not be yet.
        await self._imported.refresh()
        self._imported.add(conversation)
        others = [part for part in self._imported.conversations_of(chat) if part.id != conversation.id]
        if len(others) <= known_count or await self._imported.missing_messages(chat):
            return conversation
        if conversation.last_seq == 0:
            await self._conversations.close(conversation.id)
        return None


def _is_since(entry: ExportEntry, since: datetime | None) -> bool:
    return since is None or (entry.ended_at is not None and entry.ended_at >= since)


def _message_batches(chat: ImportedChat, indices: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The messages of these places as they are stored, in parts that a server takes."""
    keys, length = chat.keys, 0
    batch: list[dict[str, Any]] = []
    for index in indices:
        size = len(chat.messages[index].text)
        if batch and (len(batch) == BATCH_MESSAGES or length + size > BATCH_LENGTH):
            yield batch
            batch, length = [], 0
        batch.append(_to_message(chat, index, keys[index]))
        length += size
    if batch:
        yield batch


def _to_message(chat: ImportedChat, index: int, key: str) -> dict[str, Any]:
    message = chat.messages[index]
    text = message.text
    pieces = [text[start : start + BLOCK_LENGTH] for start in range(0, len(text), BLOCK_LENGTH)]
    fields = {
        "role": message.role,
        "content": text if len(pieces) == 1 else [{"type": "text", "text": piece} for piece in pieces],
        "created_at": message.created_at,
        "visibility": message.visibility,
        "model": message.model,
        "provider": message.provider,
        "idempotency_key": key,
    }
    return {name: value for name, value in fields.items() if value is not None}
