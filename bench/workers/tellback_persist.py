"""Tellback: `run_turn` on a file, and appends: single ones from several tasks, batches, and plain SQLite."""

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
from persist_batches import CallLog, numbered_text, per_operation
from protocol import expect

from tellback import Tellback
from tellback.chat import ChatRequest, ModelBase
from tellback.types import ChatReply, ReplyDelta

TAIL = 30
"""The number of messages that `run_turn` sends by default."""
TASKS = 8
BATCH = 100
call_log = CallLog()
ANSWER = ChatReply(text=persist_batches.ANSWER)


class InstantModel(ModelBase):
    model = "instant"
    provider = "bench"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        call_log.record_call(request.messages)
        return ANSWER

    def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        raise NotImplementedError


model = InstantModel()


class ConversationStore:
    async def open(self, path: Path) -> None:
        self._tb = Tellback(path, summary_every=None)
        await self._tb.open()
        self.conversations = self._tb.user("maya").conversations

    async def close(self) -> None:
        await self._tb.close()

    async def fill(self, texts: Sequence[str]) -> str:
        conversation = await self.conversations.create("chat")
        await self.conversations.append_messages(conversation.id, to_messages(texts))
        return conversation.id

    async def turn(self, id: str, text: str) -> str:
        return (await self.conversations.run_turn(id, model=model, user_text=text)).text

    async def load_texts(self, id: str) -> list[str]:
        messages = await self.conversations.messages(id)
        expect("seqs", [message.seq for message in messages], [*range(1, len(messages) + 1)])
        return [message.text for message in messages]

    def window(self, length: int) -> int:
        return min(length + 1, TAIL)

    def text(self, message: Any) -> str:
        return str(message.content)


def to_messages(texts: Sequence[str]) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]


async def single_appends(path: Path, count: int) -> dict[str, float]:
    """Append from several concurrent tasks, each of which waits for its commits."""
    count_per_task = -(-count // TASKS)
    texts = [[numbered_text(task * count_per_task + index) for index in range(count_per_task)] for task in range(TASKS)]
    store = ConversationStore()
    await store.open(path)
    id = await store.fill([])
    append = store.conversations.append_user_message

    async def append_all(task_texts: Sequence[str]) -> None:
        for text in task_texts:
            await append(id, text)

    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    await asyncio.gather(*map(append_all, texts))
    await protocol.settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    stored_texts = await _reload_texts(store, path, id)
    for task_texts in texts:
        expected_texts = set(task_texts)
        expect("a task's messages, in order", [text for text in stored_texts if text in expected_texts], task_texts)
    expect("messages on disk", len(stored_texts), count_per_task * TASKS)
    return per_operation(count_per_task * TASKS, cpu, wall)


async def batched_appends(path: Path, count: int) -> dict[str, float]:
    batches = -(-count // BATCH)
    texts = [numbered_text(index) for index in range(batches * BATCH)]
    messages = to_messages(texts)
    store = ConversationStore()
    await store.open(path)
    id = await store.fill([])
    gc.collect()
    wall = time.perf_counter()
    cpu = time.process_time()
    for start in range(0, len(messages), BATCH):
        await store.conversations.append_messages(id, messages[start : start + BATCH])
    await protocol.settle()
    cpu = time.process_time() - cpu
    wall = time.perf_counter() - wall

    expect("messages on disk", await _reload_texts(store, path, id), texts)
    return per_operation(len(texts), cpu, wall)


async def raw_commits(path: Path, count: int) -> dict[str, float]:
    """Measure plain SQLite: one row like Tellback's per transaction, in a table with the same key."""
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
        values[columns.index("content")] = content.replace(numbered_text(0), numbered_text(index))
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
    """Return a row as Tellback stores it, and its columns, so that both write the same data."""
    store = ConversationStore()
    await store.open(path)
    await store.conversations.append_user_message(await store.fill([]), numbered_text(0))
    await store.close()
    connection = sqlite3.connect(path)
    cursor = connection.execute("SELECT * FROM messages")
    row: Sequence[Any] = cursor.fetchone()
    connection.close()
    return [column[0] for column in cursor.description], row


async def _reload_texts(store: ConversationStore, path: Path, id: str) -> list[str]:
    await store.close()
    await store.open(path)
    texts = await store.load_texts(id)
    await store.close()
    return texts


if __name__ == "__main__":
    persist_batches.serve(
        ConversationStore(),
        call_log,
        ["tellback"],
        {"append_single": single_appends, "append_batched": batched_appends, "append_raw": raw_commits},
    )
