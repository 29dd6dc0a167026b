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
from tellback.importing.known import PAGE, Known, metadata_of
from tellback.importing.reading import Entry, Export
from tellback.importing.remembering import Remembered, bind, remember
from tellback.importing.threads import in_thread
from tellback.importing.values import Format, ImportedChat, ImportProgress, ImportReport
from tellback.types.conversations import Conversation

BATCH_MESSAGES, BATCH_LENGTH = 500, 500_000
"""How many messages, and characters of them, are stored at once: a server takes no larger requests."""

BLOCK_LENGTH = 100_000
"""How long one text of a message may be; a longer one is stored in several."""

ATTEMPTS = 5
SEARCHED = 100
"""After how many chats that were found to tell so."""

BEFORE_SINCE = "nothing was said in it since the given time"
OVER_LIMIT = "the limit was reached"

Told = Callable[[ImportProgress], Any]


async def import_chats(
    user: ImportUser,
    source: str | PathLike[str],
    *,
    format: Format = "auto",
    namespace: str = "imported",
    space: str = "default",
    extract: bool = True,
    on_progress: Told | None = None,
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
    begin = None if since is None else checks.moment("since", since)
    most = None if limit is None else checks.count("limit", limit)
    name = checks.name("namespace", namespace)
    tell = on_progress or (lambda progress: None)
    loop = asyncio.get_running_loop()

    def search(goes_on: Callable[[], None]) -> Export:
        def told(count: int) -> None:
            goes_on()
            if count % SEARCHED == 0:
                loop.call_soon_threadsafe(tell, ImportProgress("reading", count, count))

        return Export(source, format, told)

    export = await in_thread(search, Export.close)
    with export:
        if extract and not dry_run and export.entries:
            await bind(user.memory, name, space)
        job = _Import(user, name, export, tell, dry_run)
        await job.run(begin, most)
    made = Remembered()
    if extract and wait and not dry_run:
        made = await remember(user.memory, job.ids, tell)
    return job.report(made)


class _Import:
    """One run over an export."""

    def __init__(self, user: ImportUser, namespace: str, export: Export, tell: Told, dry_run: bool) -> None:
        self._conversations = user.conversations
        self._namespace = namespace
        self._export = export
        self._tell = tell
        self._dry_run = dry_run
        self._known = Known(user.conversations, namespace)
        self._skipped: Counter[str] = Counter(export.skipped)
        self._left_out: Counter[str] = Counter()
        self._chats = self._messages = self._continued = self._already = 0
        self.ids: list[str] = []

    async def run(self, since: datetime | None, limit: int | None) -> None:
        """Import what is wanted and missing."""
        await self._known.refresh(PAGE)
        wanted = [entry for entry in self._export.entries if _is_since(entry, since)]
        if len(wanted) < len(self._export.entries):
            self._skipped[BEFORE_SINCE] += len(self._export.entries) - len(wanted)
        for place, entry in enumerate(wanted):
            if limit is not None and self._chats >= limit:
                self._skipped[OVER_LIMIT] += len(wanted) - place
                break
            await self._take(await in_thread(partial(self._read, entry)))
            self._tell(ImportProgress("importing", place + 1, len(wanted), self._messages))

    def report(self, made: Remembered) -> ImportReport:
        """What came of it."""
        return ImportReport(
            format=self._export.format,
            chats=self._chats,
            messages=self._messages,
            continued=self._continued,
            already_there=self._already,
            skipped=dict(self._skipped),
            left_out=dict(self._left_out),
            memories=made.memories,
            failed_jobs=made.failed,
            waiting_jobs=made.waiting,
            dry_run=self._dry_run,
        )

    def _read(self, entry: Entry, goes_on: Callable[[], None]) -> ImportedChat:
        return self._export.read(entry)

    async def _take(self, chat: ImportedChat) -> None:
        for attempt in range(ATTEMPTS):
            try:
                await self._try(chat)
            except ConversationClosedError:
                # Another import has just finished the same chat: look again at what is there.
                if attempt == ATTEMPTS - 1:
                    raise
                await self._known.refresh()
            else:
                return

    async def _try(self, chat: ImportedChat) -> None:
        if self._known.has_all(chat):
            self._already += 1
            return
        parts = self._known.parts(chat)
        missing = await self._known.new_in(chat) if parts else list(range(len(chat.messages)))
        unfinished = any(part.is_open for part in parts)
        if not missing and not unfinished:
            self._already += 1
            return
        if not self._dry_run:
            conversation = await self._conversation(chat, len(missing))
            if conversation is None:
                self._already += 1
                return
            for batch in _batches(chat, missing):
                await self._conversations.append_messages(conversation.id, batch)
            self._known.add(await self._conversations.close(conversation.id))
            self.ids.append(conversation.id)
        self._chats += 1
        self._messages += len(missing)
        self._continued += any(not part.is_open for part in parts)
        self._left_out.update(chat.left_out)

    async def _conversation(self, chat: ImportedChat, messages: int) -> Conversation | None:
        """An open one for the chat; None if another import has brought it in meanwhile."""
        before = len(self._known.parts(chat))
        found = await self._conversations.find_or_create(
            self._namespace, chat.session_id, title=chat.title, metadata=metadata_of(chat, messages)
        )
        if found.id in self._known:
            return found
        # The search ends at what is known, so this one must not be yet.
        await self._known.refresh()
        self._known.add(found)
        others = [part for part in self._known.parts(chat) if part.id != found.id]
        if len(others) <= before or await self._known.new_in(chat):
            return found
        if found.last_seq == 0:
            await self._conversations.close(found.id)
        return None


def _is_since(entry: Entry, since: datetime | None) -> bool:
    return since is None or (entry.ended_at is not None and entry.ended_at >= since)


def _batches(chat: ImportedChat, places: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
    """The messages of these places as they are stored, in parts that a server takes."""
    keys, length = chat.keys, 0
    batch: list[dict[str, Any]] = []
    for place in places:
        size = len(chat.messages[place].text)
        if batch and (len(batch) == BATCH_MESSAGES or length + size > BATCH_LENGTH):
            yield batch
            batch, length = [], 0
        batch.append(_stored(chat, place, keys[place]))
        length += size
    if batch:
        yield batch


def _stored(chat: ImportedChat, place: int, key: str) -> dict[str, Any]:
    message = chat.messages[place]
    text = message.text
    pieces = [text[start : start + BLOCK_LENGTH] for start in range(0, len(text), BLOCK_LENGTH)]
    given = {
        "role": message.role,
        "content": text if len(pieces) == 1 else [{"type": "text", "text": piece} for piece in pieces],
        "created_at": message.created_at,
        "visibility": message.visibility,
        "model": message.model,
        "provider": message.provider,
        "idempotency_key": key,
    }
    return {name: value for name, value in given.items() if value is not None}
