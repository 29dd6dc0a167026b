"""Erasing one user deletes all data of this user and changes nothing for users with similar ids."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ANY, ConversationScope, UsageRecord
from tellback.user import User
from tests.support.user_data import create_binding

SCOPES = [(tenant, app, user) for tenant in "ab" for app in "ab" for user in "ab"]
_numbers = itertools.count()


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


class RandomUser:
    """Random actions of one user."""

    def __init__(self, tb: Tellback, user: User, rng: random.Random) -> None:
        self.tb, self.user, self.rng = tb, user, rng
        self.conversation_ids: list[str] = []
        self.spaces: list[str] = []
        self.atoms: dict[str, str] = {}
        self.entities: dict[str, str] = {}

    def text(self) -> str:
        return " ".join(self.rng.choices(["Rome", "Ann", "likes", "tea", "and", "rain"], k=self.rng.randint(1, 40)))

    async def create_conversation(self) -> None:
        conversation = await self.user.conversations.create("chat", self.text(), metadata={"n": self.rng.random()})
        self.conversation_ids.append(conversation.id)

    async def append_messages(self) -> None:
        if not self.conversation_ids:
            await self.create_conversation()
        id = self.rng.choice(self.conversation_ids)
        await self.user.conversations.append_user_message(id, self.text())
        await self.user.conversations.append_system_message(id, self.text(), visibility="hidden")

    async def create_space(self) -> None:
        self.spaces.append((await self.user.memory.create_space(self.text()[:50])).id)

    async def add_atom(self) -> None:
        if not self.spaces:
            await self.create_space()
        space = self.rng.choice(self.spaces)
        entity_ids = [id for id, entity_space in self.entities.items() if entity_space == space]
        linked_ids = [self.rng.choice(entity_ids)] if entity_ids else []
        atom = await self.user.memory.add_atom(space, self.text(), entity_ids=linked_ids)
        self.atoms[atom.id] = space

    async def create_entity(self) -> None:
        if not self.spaces:
            await self.create_space()
        space = self.rng.choice(self.spaces)
        entity = await self.user.memory.create_entity(space, "PERSON", self.text()[:20])
        self.entities[entity.id] = space

    async def change_atom(self) -> None:
        if not self.atoms:
            await self.add_atom()
        id = self.rng.choice(list(self.atoms))
        match self.rng.randrange(3):
            case 0:
                space = self.atoms[id]
                replacement = await self.user.memory.supersede_atom(id, self.text())
                self.atoms[replacement.id] = space
            case 1:
                await self.user.memory.archive_atom(id)
            case _:
                await self.user.memory.delete_atom(id)
        del self.atoms[id]

    async def create_binding_of_user(self) -> None:
        # No binding covers only one other user: erasing that user would delete the binding.
        user_ids = self.rng.choice([(self.user.scope.user_id,), ("a", "b"), (ANY,), ("a", ANY)])
        scopes = [ConversationScope("chat", user_id) for user_id in user_ids]
        await create_binding(self.tb.store, self.user.scope, *scopes, space_ids=tuple(self.spaces[:1]))

    async def queue_job(self) -> None:
        await self.append_messages()
        await self.create_space()
        jobs = await self.tb.store.jobs.plan(
            self.user.scope,
            self.conversation_ids[-1],
            version="v1",
            space_id=self.spaces[-1],
            window_length=100,
            now=utc_now(),
        )
        job = jobs[0].id if jobs else None
        usage = UsageRecord(new_id("use"), self.user.scope, "extraction", utc_now(), job, self.conversation_ids[-1])
        await self.tb.store.jobs.add_usage([usage])


ACTIONS: list[Callable[[RandomUser], Coroutine[Any, Any, None]]] = [
    *(
        RandomUser.create_conversation,
        RandomUser.append_messages,
        RandomUser.create_space,
        RandomUser.add_atom,
        RandomUser.add_atom,
        RandomUser.create_entity,
        RandomUser.change_atom,
        RandomUser.create_binding_of_user,
        RandomUser.queue_job,
    )
]


async def export(tb: Tellback, user: User) -> bytes:
    found = await user.admin.export_user_data(include_vectors=True)
    del found["exported_at"]
    return json.dumps(found).encode()


async def check(tb: Tellback, script: list[tuple[int, int]], erased: int, seed: int) -> None:
    number = next(_numbers)  # all examples share the store and use separate tenants
    users = [tb.user(user, tenant_id=f"{tenant}{number}", app_id=app) for tenant, app, user in SCOPES]
    rng = random.Random(seed)
    random_users = [RandomUser(tb, user, rng) for user in users]
    for who, action in script:
        await ACTIONS[action](random_users[who])
    before = [await export(tb, user) for user in users]
    admin = users[erased].admin
    counts = await admin.delete_user_data(confirm=True)
    for index, user in enumerate(users):
        if index != erased:
            assert await export(tb, user) == before[index]
    remaining = await admin.export_user_data()
    exported_before = json.loads(before[erased])
    for name, records in remaining.items():
        if isinstance(records, list):
            assert records == []
            assert counts[name] == len(exported_before[name])
    assert set((await admin.delete_user_data(confirm=True)).values()) == {0}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(
        st.tuples(st.integers(0, len(SCOPES) - 1), st.integers(0, len(ACTIONS) - 1)), min_size=8, max_size=40
    ),
    erased=st.integers(0, len(SCOPES) - 1),
    seed=st.integers(0, 2**32),
)
def test_erasing_one_user_changes_nothing_for_others(
    url: str, loop: asyncio.Runner, script: list[tuple[int, int]], erased: int, seed: int
) -> None:
    async def run() -> None:
        async with Tellback(url, worker=False) as tb:
            await check(tb, script, erased, seed)

    loop.run(run())
