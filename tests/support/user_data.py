"""Creates a user with data of every kind, and searches for remaining data after deletion."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tellback import Tellback
from tellback.stores import IdempotencyClaim, Store, StoredResponse
from tellback.types.access import Scope
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import Binding, ConversationScope, ExtractionPolicy, UsageRecord
from tellback.user import User


async def create_binding(
    store: Store, scope: Scope, *scopes: ConversationScope, space_ids: tuple[str, ...] = ()
) -> Binding:
    """Create a binding owned by the user."""
    now = utc_now()
    policy = ExtractionPolicy()
    conversation_scopes = scopes or (ConversationScope("chat", scope.user_id),)
    binding = Binding(
        new_id("bind"),
        scope.tenant_id,
        scope.app_id,
        conversation_scopes,
        space_ids,
        ("notes",),
        policy,
        now,
        now,
        True,
        scope.user_id,
    )
    return await store.bindings.create(scope, binding)


async def create_user_data(tb: Tellback, user: User, word: str) -> None:
    """Create data of every kind, with `word` in all texts."""
    conversations, memory, scope = user.conversations, user.memory, user.scope
    conversation = await conversations.create(word, f"{word} title", f"{word} session", {"source": word})
    await conversations.append_user_message(
        conversation.id, f"{word} said", idempotency_key=f"{word}-key", trace_id=f"{word}-trace"
    )
    await conversations.append_assistant_turn(
        conversation.id, [{"type": "text", "text": f"[{word}"}], model=f"{word}-model"
    )
    await conversations.append_system_message(conversation.id, f"{word} behind the scenes", visibility="hidden")
    now = utc_now()
    await tb.store.conversations.save_summary(
        scope, conversation.id, f"{word} in short. " * 400, until_seq=2, turns=1, expected_seq=0, now=now
    )
    await tb.store.conversations.save_summary(
        scope, conversation.id, f"{word} shorter", until_seq=3, turns=1, expected_seq=2, now=now
    )
    await conversations.close(conversation.id)
    space = await memory.create_space(f"{word} space", {"about": word})
    ann = await memory.create_entity(space.id, "PERSON", f"{word} Ann", f"{word} friend", {"k": word})
    anna = await memory.create_entity(space.id, "PERSON", f"{word} Anna")
    first = await memory.add_atom(space.id, f"{word} lives in Rome", (word, "FACT"), entity_ids=[ann.id, anna.id])
    await memory.supersede_atom(first.id, f"{word} lives in Lisbon")
    await memory.archive_atom((await memory.add_atom(space.id, f"{word} archived", (word, "FACT"))).id)
    await memory.delete_atom((await memory.add_atom(space.id, f"{word} deleted", (word, "FACT"))).id)
    await memory.remember_conversation(space.id, conversation.id)
    await memory.merge_entities(ann.id, anna.id)
    deleted_space = await memory.create_space(f"{word} forgotten space")
    await memory.add_atom(deleted_space.id, f"{word} in a deleted space", (word, "FACT"))
    await memory.delete_space(deleted_space.id)
    await create_binding(tb.store, scope, ConversationScope(word, scope.user_id), space_ids=(space.id,))
    [job] = await tb.store.jobs.plan(
        scope, conversation.id, version=word, space_id=space.id, window_length=10_000, now=utc_now()
    )
    usage = UsageRecord(new_id("use"), scope, "extraction", utc_now(), job.id, conversation.id, f"{word}-model")
    await tb.store.jobs.add_usage([usage])
    await tb.keys.create(
        "user", name=f"{word} phone", tenant_id=scope.tenant_id, app_id=scope.app_id, user_id=scope.user_id
    )
    claim = await tb.store.idempotency.begin(scope, f"{word}-key", word, now=now, lease_until=now)
    assert isinstance(claim, IdempotencyClaim)
    answer = StoredResponse(200, word, f"{word} answered".encode(), {"x": word})
    await tb.store.idempotency.finish(scope, f"{word}-key", claim.claim_token, answer, now=now)
    assert (await memory.recall_by_topic(space.id, f"where does {word} live")).hits


def read_rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table of a SQLite file."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: connection.execute(f'SELECT * FROM "{table}"').fetchall() for table in tables}


def count_in_files(path: Path, *words: str) -> dict[str, int]:
    """Count the words in the bytes of the file and of its companion files."""
    pattern = re.compile(b"|".join(re.escape(word.encode()) for word in words))
    found = {file.name: len(pattern.findall(file.read_bytes())) for file in path.parent.glob(f"{path.name}*")}
    return {name: count for name, count in found.items() if count}
