"""Import chats as closed conversations with their original times, and extract memories from them."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from typing import Any, Protocol, TypeVar

from tellback import validation
from tellback.concurrency import finish_in_thread
from tellback.errors import ConversationClosedError
from tellback.importers.chats import Format, ImportedChat, ImportProgress, ImportReport
from tellback.importers.export import ChatExport
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import utc_now
from tellback.types.jobs import Binding, Job, JobStatus
from tellback.types.memory import MemorySpace

T = TypeVar("T")

PAGE_SIZE = 200
NEWEST_COUNT = 5
"""How many of the newest conversations to load when looking for new ones from concurrent imports."""

METADATA_KEY = "import"
"""The metadata key of a conversation that identifies the imported chat."""

PROGRESS_SECONDS = 0.5
"""Interval between progress reports while waiting for memories."""

MAX_RETRY_WAIT = timedelta(seconds=30)
"""Stop waiting for a failed job, and for the jobs queued behind it, if its next attempt is further away than this:
then the model is probably unavailable."""

MAX_JOBS = 1_000
_UNFINISHED = ("queued", "running")

BATCH_MESSAGES, BATCH_LENGTH = 500, 500_000
"""Maximum number of messages and characters per append request: servers reject larger requests."""

BLOCK_LENGTH = 100_000
"""Maximum length of one text block; a longer message is stored in several blocks."""

MAX_ATTEMPTS = 5
PROGRESS_INTERVAL = 100
"""The number of found chats between two progress reports."""

SKIPPED_BEFORE_SINCE = "no messages since the given time"
SKIPPED_OVER_LIMIT = "limit reached"

ImportProgressCallback = Callable[[ImportProgress], Any]


class ImportConversations(Protocol):
    """The methods of `user.conversations` that an import calls."""

    async def find_or_create(
        self, namespace: str, session_id: str, *, title: str | None, metadata: Mapping[str, Any]
    ) -> Conversation: ...

    async def list(self, namespace: str, *, limit: int, before: Conversation | None) -> builtins.list[Conversation]: ...

    async def messages(
        self, id: str, *, include_internal: bool, include_hidden: bool
    ) -> builtins.list[StoredMessage]: ...

    async def append_messages(self, id: str, messages: Sequence[Mapping[str, Any]]) -> builtins.list[StoredMessage]: ...

    async def close(self, id: str) -> Conversation: ...


class ImportMemory(Protocol):
    """The methods of `user.memory` that an import calls."""

    async def create_space(self, name: str, *, once: bool) -> MemorySpace: ...

    async def list_bindings(self) -> list[Binding]: ...

    async def create_binding(
        self, conversation_scope: Mapping[str, str], memory_space_ids: Iterable[str], *, once: bool
    ) -> Binding: ...

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]: ...

    async def wait_for_extraction(self, timeout: float | None = None) -> bool: ...  # noqa: ASYNC109


class ImportUser(Protocol):
    """A user's handle, local or of a server."""

    @property
    def conversations(self) -> ImportConversations: ...

    @property
    def memory(self) -> ImportMemory: ...


class WorkCancelled(Exception):
    """The caller has cancelled the work."""


class ImportedConversations:
    """The conversations of a namespace, by their imported chat."""

    def __init__(self, conversations: ImportConversations, namespace: str) -> None:
        self._conversations = conversations
        self._namespace = namespace
        self._by_session: defaultdict[str, dict[str, Conversation]] = defaultdict(dict)
        self._ids: set[str] = set()

    async def refresh(self, page_size: int = NEWEST_COUNT) -> None:
        """Load the conversations created since the last call, and update the ones on the same pages."""
        before = None
        while True:
            conversations = await self._conversations.list(self._namespace, limit=page_size, before=before)
            new_count = sum(conversation.id not in self._ids for conversation in conversations)
            for conversation in conversations:
                self.add(conversation)
            if new_count < page_size:
                return
            before, page_size = conversations[-1], PAGE_SIZE

    def add(self, conversation: Conversation) -> None:
        self._ids.add(conversation.id)
        if conversation.session_id is not None:
            self._by_session[conversation.session_id][conversation.id] = conversation

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def conversations_of(self, chat: ImportedChat) -> list[Conversation]:
        """Return the conversations of a chat: several if it had new messages in a later import."""
        return list(self._by_session.get(chat.session_id, {}).values())

    def is_complete(self, chat: ImportedChat) -> bool:
        """Whether one closed conversation contains the whole chat. If not, several may: see `missing_messages`."""
        return any(_holds_whole_chat(part, chat.digest) for part in self.conversations_of(chat))

    async def missing_messages(self, chat: ImportedChat) -> list[int]:
        """Return the indices of the chat's messages that none of its conversations contains."""
        stored = {
            message.idempotency_key
            for part in self.conversations_of(chat)
            for message in await self._conversations.messages(part.id, include_internal=True, include_hidden=True)
        }
        return [index for index, key in enumerate(chat.keys) if key not in stored]


def _holds_whole_chat(part: Conversation, digest: str) -> bool:
    details = part.metadata.get(METADATA_KEY)
    if part.is_open or not isinstance(details, Mapping) or details.get("digest") != digest:
        return False
    messages = details.get("messages")
    return isinstance(messages, int) and part.last_seq >= messages


@dataclass(frozen=True, slots=True)
class ExtractionCounts:
    """The number of extracted memories, failed jobs and unfinished jobs."""

    memories: int = 0
    failed: int = 0
    waiting: int = 0


async def ensure_binding(memory: ImportMemory, namespace: str, space: str) -> None:
    """Bind the namespace to the space, so that memories are extracted, unless a binding does so already."""
    memory_space = await memory.create_space(space, once=True)
    user_id = memory_space.scope.user_id
    for binding in await memory.list_bindings():
        is_own = binding.created_by == user_id
        covers_space = (
            memory_space.id in binding.memory_space_ids if is_own else memory_space.name in binding.memory_space_names
        )
        if covers_space and binding.matches(namespace, user_id):
            return
    await memory.create_binding({"namespace": namespace, "user_id": user_id}, [memory_space.id], once=True)


async def wait_for_memories(
    memory: ImportMemory, conversation_ids: Sequence[str], on_progress: Callable[[ImportProgress], Any]
) -> ExtractionCounts:
    """Wait for the extraction jobs of these conversations, and for those left over from an earlier import.

    Does not wait for jobs with a long retry delay, nor for the jobs queued behind them.
    """
    started, awaited = utc_now(), dict.fromkeys(conversation_ids)
    if conversation_ids:
        on_progress(ImportProgress("remembering", 0, len(conversation_ids)))
    done = False
    while not done:
        done = await memory.wait_for_extraction(PROGRESS_SECONDS)
        now = utc_now()
        unfinished = [job for status in _UNFINISHED for job in await memory.list_jobs(status=status, limit=MAX_JOBS)]
        blocked_spaces = {
            job.memory_space_id for job in unfinished if job.attempts and job.due_at > now + MAX_RETRY_WAIT
        }
        due = {
            job.conversation_id for job in unfinished if job.due_at <= now and job.memory_space_id not in blocked_spaces
        }
        awaited.update(dict.fromkeys(job.conversation_id for job in unfinished if job.due_at <= now))
        done = (done or bool(blocked_spaces)) and not due
        if awaited:
            on_progress(ImportProgress("remembering", len(awaited) - len(due), len(awaited)))
    return await _count_results(memory, awaited, started, set(conversation_ids))


async def _count_results(
    memory: ImportMemory, ids: Iterable[str], started: datetime, new_ids: set[str]
) -> ExtractionCounts:
    memories = failed = waiting = 0
    for id in ids:
        for job in await memory.list_jobs(conversation_id=id, limit=MAX_JOBS):
            if id in new_ids or job.finished_at is None or job.finished_at >= started:
                counts = (job.result.get(name) for name in ("added", "superseded"))
                memories += sum(count for count in counts if isinstance(count, int))
                failed += job.status is JobStatus.FAILED
                waiting += not job.status.is_finished
    return ExtractionCounts(memories, failed, waiting)


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
    """Import the chats of a ChatGPT or Claude export (a zip, its folder or one of its files), or of JSON Lines.

    Each chat becomes a closed conversation of the namespace, oldest first, with the original message times. With
    `extract`, the namespace is bound to the space, so memories are extracted. With `wait`, the call waits for them;
    this requires a running worker, which Tellback starts unless it has `worker=False`.

    Importing again, also after an interruption, adds only missing messages. New messages of a chat go to another
    conversation, because closed conversations stay closed. `since` selects chats with a message at or after that
    time, and `limit` is the maximum number of new chats. `dry_run` changes nothing and reports what would be
    imported. `user` is a local handle or one of `TellbackClient`. Raises `ImportFormatError` for an unreadable
    export, before anything is imported.

    >>> import asyncio, pathlib, tempfile
    >>> from tellback import Tellback
    >>> async def main():
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         file = pathlib.Path(folder, "chats.jsonl")
    ...         file.write_text('{"role": "user", "content": "I moved to Lisbon.", "created_at": "2024-03-01"}')
    ...         async with Tellback(":memory:") as tb:
    ...             return await import_chats(tb.user("maya"), file)
    >>> print(asyncio.run(main()))
    Imported 1 chat with 1 message. Extracted 1 memory.
    """
    since_time = None if since is None else validation.parse_datetime("since", since)
    max_chats = None if limit is None else validation.validate_count("limit", limit)
    name = validation.validate_name("namespace", namespace)
    report_progress = on_progress or (lambda progress: None)
    loop, is_cancelled = asyncio.get_running_loop(), threading.Event()

    def on_chat_found(count: int) -> None:
        if is_cancelled.is_set():
            raise WorkCancelled
        if count % PROGRESS_INTERVAL == 0:
            loop.call_soon_threadsafe(report_progress, ImportProgress("reading", count, count))

    export = await finish_in_thread(
        partial(ChatExport, source, format, on_chat_found), is_cancelled.set, ChatExport.close
    )
    with closing(export):
        if extract and not dry_run and export.entries:
            await ensure_binding(user.memory, name, space)
        run = _ImportRun(user, name, export, report_progress, dry_run)
        await run.run(since_time, max_chats)
    extraction = ExtractionCounts()
    if extract and wait and not dry_run:
        extraction = await wait_for_memories(user.memory, run.conversation_ids, report_progress)
    return run.report(extraction)


class _ImportRun:
    """One import of an export."""

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
        self._counts: Counter[str] = Counter()  # keys: field names of the report
        self.conversation_ids: list[str] = []

    async def run(self, since: datetime | None, limit: int | None) -> None:
        await self._imported.refresh(PAGE_SIZE)
        entries = self._export.entries
        if since is not None:
            entries = [entry for entry in entries if entry.ended_at is not None and entry.ended_at >= since]
        if len(entries) < len(self._export.entries):
            self._skipped[SKIPPED_BEFORE_SINCE] += len(self._export.entries) - len(entries)
        for index, entry in enumerate(entries):
            if limit is not None and self._counts["chats"] >= limit:
                self._skipped[SKIPPED_OVER_LIMIT] += len(entries) - index
                break
            await self._import_chat(await finish_in_thread(partial(self._export.read, entry)))
            self._on_progress(ImportProgress("importing", index + 1, len(entries), self._counts["messages"]))

    def report(self, extraction: ExtractionCounts) -> ImportReport:
        return ImportReport(
            format=self._export.format,
            **self._counts,
            skipped=dict(self._skipped),
            left_out=dict(self._left_out),
            memories=extraction.memories,
            failed_jobs=extraction.failed,
            waiting_jobs=extraction.waiting,
            dry_run=self._dry_run,
        )

    async def _import_chat(self, chat: ImportedChat) -> None:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                await self._attempt_import(chat)
                return
            except ConversationClosedError:  # a concurrent import has just finished this chat: retry
                if attempt == MAX_ATTEMPTS:
                    raise
                await self._imported.refresh()

    async def _attempt_import(self, chat: ImportedChat) -> None:
        if self._imported.is_complete(chat):
            self._counts["already_there"] += 1
            return
        existing = self._imported.conversations_of(chat)
        missing = await self._imported.missing_messages(chat) if existing else list(range(len(chat.messages)))
        is_unfinished = any(part.is_open for part in existing)
        if not missing and not is_unfinished:
            self._counts["already_there"] += 1
            return
        if not self._dry_run:
            known_ids = {part.id for part in existing}
            conversation, missing = await self._open_conversation(chat, missing)
            if not missing and conversation.id not in known_ids:
                if conversation.last_seq == 0:
                    await self._conversations.close(conversation.id)
                self._counts["already_there"] += 1
                return
            for batch in _message_batches(chat, missing):
                await self._conversations.append_messages(conversation.id, batch)
            self._imported.add(await self._conversations.close(conversation.id))
            self.conversation_ids.append(conversation.id)
        self._counts["chats"] += 1
        self._counts["messages"] += len(missing)
        self._counts["continued"] += any(not part.is_open for part in existing)
        self._left_out.update(chat.left_out)

    async def _open_conversation(self, chat: ImportedChat, missing: list[int]) -> tuple[Conversation, list[int]]:
        """Return an open conversation for the chat, and the messages that no conversation of the chat contains yet."""
        details = {
            "source": chat.source,
            "id": chat.id,
            "created_at": None if chat.began_at is None else chat.began_at.isoformat(),
            "digest": chat.digest,
            "messages": len(missing),
        }
        conversation = await self._conversations.find_or_create(
            self._namespace, chat.session_id, title=chat.title, metadata={METADATA_KEY: details}
        )
        if conversation.id not in self._imported:
            # A concurrent import may have filled and closed a conversation since `missing` was read. While this one is
            # open, no other grows, so one more read is enough. Refresh before `add`, because a refresh stops at known
            # conversations.
            await self._imported.refresh()
            self._imported.add(conversation)
            if len(self._imported.conversations_of(chat)) > 1:
                missing = await self._imported.missing_messages(chat)
        return conversation, missing


def _message_batches(chat: ImportedChat, indices: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages with these indices in batches that a server accepts."""
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
