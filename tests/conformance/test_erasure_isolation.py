"""Whatever users of overlapping names did, erasing one changes nothing for others, and leaves nothing of that one."""

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


class Life:
    """What one user does, by chance."""

    def __init__(self, rc: Tellback, user: User, chance: random.Random) -> None:
        self.rc, self.user, self.chance = rc, user, chance
        self.talks: list[str] = []
        self.spaces: list[str] = []
        self.atoms: dict[str, str] = {}
        self.entities: dict[str, str] = {}

    def text(self) -> str:
        return " ".join(
            self.chance.choices(["Rome", "Ann", "likes", "tea", "and", "rain"], k=self.chance.randint(1, 40))
        )

    async def talk(self) -> None:
        made = await self.user.conversations.create("chat", self.text(), metadata={"n": self.chance.random()})
        self.talks.append(made.id)

    async def say(self) -> None:
        if not self.talks:
            await self.talk()
        id = self.chance.choice(self.talks)
        await self.user.conversations.append_user_message(id, self.text())
        await self.user.conversations.append_system_message(id, self.text(), visibility="hidden")

    async def space(self) -> None:
        self.spaces.append((await self.user.memory.create_space(self.text()[:50])).id)

    async def remember(self) -> None:
        if not self.spaces:
            await self.space()
        space = self.chance.choice(self.spaces)
        known = [id for id, of in self.entities.items() if of == space]
        about = [self.chance.choice(known)] if known else []
        atom = await self.user.memory.add_atom(space, self.text(), entity_ids=about)
        self.atoms[atom.id] = space

    async def name(self) -> None:
        if not self.spaces:
            await self.space()
        space = self.chance.choice(self.spaces)
        entity = await self.user.memory.create_entity(space, "PERSON", self.text()[:20])
        self.entities[entity.id] = space

    async def change(self) -> None:
        if not self.atoms:
            await self.remember()
        id = self.chance.choice(list(self.atoms))
        match self.chance.randrange(3):
            case 0:
                space = self.atoms[id]
                made = await self.user.memory.supersede_atom(id, self.text())
                self.atoms[made.id] = space
            case 1:
                await self.user.memory.archive_atom(id)
            case _:
                await self.user.memory.delete_atom(id)
        del self.atoms[id]

    async def bind(self) -> None:
        # Never about another alone: such a binding goes with the one it is about.
        about = self.chance.choice([(self.user.scope.user_id,), ("a", "b"), (ANY,), ("a", ANY)])
        scopes = [ConversationScope("chat", user_id) for user_id in about]
        await create_binding(self.rc.store, self.user.scope, *scopes, space_ids=tuple(self.spaces[:1]))

    async def work(self) -> None:
        await self.say()
        await self.space()
        jobs = await self.rc.store.jobs.plan(
            self.user.scope, self.talks[-1], version="v1", space_id=self.spaces[-1], window_length=100, now=utc_now()
        )
        job = jobs[0].id if jobs else None
        usage = UsageRecord(new_id("use"), self.user.scope, "extraction", utc_now(), job, self.talks[-1])
        await self.rc.store.jobs.add_usage([usage])


ACTS: list[Callable[[Life], Coroutine[Any, Any, None]]] = [
    *(Life.talk, Life.say, Life.space, Life.remember, Life.remember, Life.name, Life.change, Life.bind, Life.work)
]


async def export(rc: Tellback, user: User) -> bytes:
    found = await user.admin.export_user_data(include_vectors=True)
    del found["exported_at"]
    return json.dumps(found).encode()


async def check(rc: Tellback, script: list[tuple[int, int]], erased: int, seed: int) -> None:
    number = next(_numbers)  # the store is the same for all examples: each has tenants of its own
    users = [rc.user(user, tenant_id=f"{tenant}{number}", app_id=app) for tenant, app, user in SCOPES]
    chance = random.Random(seed)
    lives = [Life(rc, user, chance) for user in users]
    for who, act in script:
        await ACTS[act](lives[who])
    before = [await export(rc, user) for user in users]
    admin = users[erased].admin
    counts = await admin.delete_user_data(confirm=True)
    for place, user in enumerate(users):
        if place != erased:
            assert await export(rc, user) == before[place]
    left = await admin.export_user_data()
    was = json.loads(before[erased])
    for name, records in left.items():
        if isinstance(records, list):
            assert records == []
            assert counts[name] == len(was[name])
    assert set((await admin.delete_user_data(confirm=True)).values()) == {0}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(st.tuples(st.integers(0, len(SCOPES) - 1), st.integers(0, len(ACTS) - 1)), min_size=8, max_size=40),
    erased=st.integers(0, len(SCOPES) - 1),
    seed=st.integers(0, 2**32),
)
def test_erasing_one_user_changes_nothing_for_others(
    url: str, loop: asyncio.Runner, script: list[tuple[int, int]], erased: int, seed: int
) -> None:
    async def run() -> None:
        async with Tellback(url, worker=False) as rc:
            await check(rc, script, erased, seed)

    loop.run(run())
