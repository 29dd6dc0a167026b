"""Tellback: `run_turn` on a file, and appends: one by one from several tasks, in batches, and beside bare SQLite."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import persist_batches
import protocol
from persist_batches import Seen, per_operation, said
from protocol import expect

from tellback import Tellback
from tellback.chat import ChatRequest, ModelBase
from tellback.types import ChatReply, ReplyDelta

TAIL = 30
"""What `run_turn` sends by default."""
TASKS = 8
BATCH = 100
seen = Seen()
ANSWER = ChatReply(text=persist_batches.ANSWER)


class InstantModel(ModelBase):
    model = "instant"
    provider = "bench"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        seen.model_called(request.messages)
        return ANSWER

    def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        raise NotImplementedError


model = InstantModel()


class Keeper:
    async def open(self, path: Path) -> None:
        self._rc = Tellback(path, summary_every=None)
        await self._rc.open()
        self.conversations = self._rc.user("maya").conversations

    async def close(self) -> None:
        await self._rc.close()

    async def fill(self, texts: Sequence[str]) -> str:
        conversation = await self.conversations.create("chat")
        await self.conversations.append_messages(conversation.id, alternating(texts))
        return conversation.id

    async def turn(self, id: str, text: str) -> str:
        return (await self.conversations.run_turn(id, model=model, user_text=text)).text

    async def stored(self, id: str) -> list[str]:
        messages = await self.conversations.messages(id)
        expect("seqs", [message.seq for message in messages], [*range(1, len(messages) + 1)])
        return [message.text for message in messages]

    def window(self, length: int) -> int:
        return min(length + 1, TAIL)

    def text(self, message: Any) -> str:
        return str(message.content)


def alternating(texts: Sequence[str]) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]


async def single_appends(path: Path, count: int) -> dict[str, float]:
    """Each waits until its message is committed; several tasks do so at once."""
    each = -(-count // TASKS)
    texts = [[said(task * each + index) for index in range(each)] for task in range(TASKS)]
    keeper = Keeper()
    await keeper.open(path)
    id = await keeper.fill([])
    append = keeper.conversations.append_user_message

    async def append_all(mine: Sequence[str]) -> None:
        for text in mine:
            await append(id, text)

    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    await asyncio.gather(*map(append_all, texts))
    await protocol.settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    kept = await _reopened(keeper, path, id)
    for mine in texts:
        wanted = set(mine)
        expect("a task's messages, in order", [text for text in kept if text in wanted], mine)
    expect("messages on disk", len(kept), each * TASKS)
    return per_operation(each * TASKS, cpu, wall)


async def batched_appends(path: Path, count: int) -> dict[str, float]:
    batches = -(-count // BATCH)
    texts = [said(index) for index in range(batches * BATCH)]
    messages = alternating(texts)
    keeper = Keeper()
    await keeper.open(path)
    id = await keeper.fill([])
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    for start in range(0, len(messages), BATCH):
        await keeper.conversations.append_messages(id, messages[start : start + BATCH])
    await protocol.settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    expect("messages on disk", await _reopened(keeper, path, id), texts)
    return per_operation(len(texts), cpu, wall)


async def raw_commits(path: Path, count: int) -> dict[str, float]:
    """What SQLite does by itself: a row like Tellback's per transaction, in a bare table of the same key."""
    columns, row = await _message_row(path.with_name(f"{path.name}-model"))
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = NORMAL").fetchall()
    key = "PRIMARY KEY (conversation_id, seq)"
    connection.execute(f"CREATE TABLE messages ({', '.join(columns)}, {key}) WITHOUT ROWID")
    insert = f"INSERT INTO messages VALUES ({', '.join('?' * len(columns))})"
    seq, content = columns.index("seq"), row[columns.index("content")]
    rows = []
    for index in range(count):
        values = list(row)
        values[seq] = index + 1
        values[columns.index("id")] = f"{row[columns.index('id')][:-8]}{index:08d}"
        values[columns.index("content")] = content.replace(said(0), said(index))
        rows.append(values)

    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    for values in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(insert, values)
        connection.execute("COMMIT")
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    connection.close()
    reopened = sqlite3.connect(path)
    expect("rows on disk", reopened.execute("SELECT count(*) FROM messages").fetchone()[0], count)
    reopened.close()
    return per_operation(count, cpu, wall)


async def _message_row(path: Path) -> tuple[list[str], Sequence[Any]]:
    """A row as Tellback stores it, and its columns, so that both write the same."""
    keeper = Keeper()
    await keeper.open(path)
    await keeper.conversations.append_user_message(await keeper.fill([]), said(0))
    await keeper.close()
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT * FROM messages")
    row: Sequence[Any] = found.fetchone()
    connection.close()
    return [column[0] for column in found.description], row


async def _reopened(keeper: Keeper, path: Path, id: str) -> list[str]:
    await keeper.close()
    await keeper.open(path)
    texts = await keeper.stored(id)
    await keeper.close()
    return texts


if __name__ == "__main__":
    persist_batches.serve(
        Keeper(),
        seen,
        ["tellback"],
        {"append_single": single_appends, "append_batched": batched_appends, "append_raw": raw_commits},
    )
