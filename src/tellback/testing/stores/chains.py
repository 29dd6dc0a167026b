"""Atoms in two times: chains of those that stood in one place, and what becomes of one."""

from __future__ import annotations

import asyncio

import pytest

from tellback.errors import AtomSupersededError, NotFoundError
from tellback.stores import AtomFilter, Store
from tellback.testing.stores.making import (
    DAY,
    MAYA,
    NOON,
    add_atoms,
    make_atom,
    make_entity,
    make_space,
    read_all_events,
    valid_texts,
)
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Entity,
    MemorySpace,
)
from tellback.types.times import utc_now


class AtomHistoryContract:
    """Superseding, archiving, deleting."""

    async def test_superseding_closes_the_old_atom_where_the_new_one_begins(self, store: Store) -> None:
        space = await make_space(store)
        [rome] = await add_atoms(store, space, make_atom("Rome"))
        later = NOON + 10 * DAY
        paris = await store.memories.supersede(MAYA, rome.id, make_atom("Paris", valid_from=NOON + 5 * DAY), now=later)
        old = await store.memories.atom(MAYA, rome.id)
        assert old is not None
        assert (old.valid_to, old.superseded_at, old.superseded_by) == (NOON + 5 * DAY, later, paris.id)
        assert (paris.supersedes, paris.valid_to, paris.superseded_at) == (rome.id, None, None)
        assert await valid_texts(store, space, NOON + 4 * DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 5 * DAY) == ["Paris"]
        assert await valid_texts(store, space, NOON + 6 * DAY, known_at=later - DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 6 * DAY, known_at=later) == ["Paris"]
        assert await valid_texts(store, space, NOON - DAY) == []
        with pytest.raises(AtomSupersededError) as refused:
            await store.memories.supersede(MAYA, rome.id, make_atom("Oslo"), now=later)
        assert refused.value.superseded_by == paris.id
        found = await store.memories.space(MAYA, space.id)
        assert found is not None
        assert found.atom_count == 2

    async def test_a_correction_that_reaches_back_leaves_one_atom_at_every_moment(self, store: Store) -> None:
        space = await make_space(store)
        [atom] = await add_atoms(store, space, make_atom("0"))
        begins = [0, 10, 20, 5, 15, 2]
        for n, day in enumerate(begins[1:], 1):
            draft = make_atom(str(n), valid_from=NOON + day * DAY)
            atom = await store.memories.supersede(MAYA, atom.id, draft, now=NOON + n * DAY)
        for known in range(len(begins)):
            for day in range(25):
                wanted = [n for n in range(known + 1) if begins[n] <= day][-1]
                at = NOON + day * DAY
                assert await valid_texts(store, space, at, known_at=NOON + known * DAY) == [str(wanted)], (day, known)

    async def test_what_never_held_is_closed_once_and_is_over_at_every_moment(self, store: Store) -> None:
        space = await make_space(store)
        [atom] = await add_atoms(store, space, make_atom("0", valid_from=NOON + 99 * DAY))
        for n in range(1, 40):
            draft = make_atom(str(n), valid_from=NOON + (99 - n) * DAY)
            atom = await store.memories.supersede(MAYA, atom.id, draft, now=NOON + n * DAY)
        changes = await store.memories.changes(MAYA, space.id, after=-1, embedder="")
        assert len(changes.closings) == 39
        for valid_at in (NOON, NOON + 59 * DAY, NOON + 99 * DAY):
            listed = await store.memories.atoms(MAYA, space.id, AtomFilter(AtomStatus.ACTIVE, valid_at))
            assert [atom.text for atom in listed] == ["39"], valid_at
        early = AtomFilter(AtomStatus.ACTIVE, NOON, known_at=NOON + 5 * DAY)
        assert [atom.text for atom in await store.memories.atoms(MAYA, space.id, early)] == ["5"]

    async def test_a_chain_whose_last_atom_is_deleted_goes_on_from_the_one_before(self, store: Store) -> None:
        space = await make_space(store)
        memories = store.memories
        [rome] = await add_atoms(store, space, make_atom("Rome", valid_to=NOON + 20 * DAY))
        read = await memories.changes(MAYA, space.id, after=-1, embedder="")
        paris = await memories.supersede(MAYA, rome.id, make_atom("Paris", valid_from=NOON + 5 * DAY), now=NOON + DAY)
        await memories.set_status(MAYA, paris.id, AtomStatus.DELETED, now=NOON + 2 * DAY)
        again = await memories.atom(MAYA, rome.id)
        assert again is not None
        assert (again.valid_to, again.superseded_at, again.superseded_by) == (rome.valid_to, None, None)
        assert again.updated_at == NOON + 2 * DAY
        assert await valid_texts(store, space, NOON + 6 * DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 6 * DAY, known_at=NOON + DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 20 * DAY) == []
        more = await memories.changes(MAYA, space.id, after=read.version, embedder="")
        assert [row[0] for row in more.atoms] == [rome.id, paris.id]
        assert list(map(tuple, more.closings)) == list(map(tuple, read.closings))
        oslo = await memories.supersede(MAYA, rome.id, make_atom("Oslo", valid_from=NOON + 7 * DAY), now=NOON + 3 * DAY)
        assert await valid_texts(store, space, NOON + 8 * DAY) == ["Oslo"]
        await memories.set_status(MAYA, rome.id, AtomStatus.DELETED, now=NOON + 4 * DAY)
        first = await memories.atom(MAYA, oslo.id)
        assert first is not None
        assert first.supersedes is None
        with pytest.raises(NotFoundError):
            await memories.supersede(MAYA, paris.id, make_atom(), now=NOON + 5 * DAY)

    async def test_those_around_a_deleted_atom_of_a_chain_follow_each_other(self, store: Store) -> None:
        space = await make_space(store)
        memories = store.memories
        [atom] = await add_atoms(store, space, make_atom("0"))
        begins, chain = [0, 10, 4, 20], [atom]
        for n, day in enumerate(begins[1:], 1):
            draft = make_atom(str(n), valid_from=NOON + day * DAY)
            chain.append(await memories.supersede(MAYA, chain[-1].id, draft, now=NOON + n * DAY))
        await memories.set_status(MAYA, chain[2].id, AtomStatus.DELETED, now=NOON + 9 * DAY)
        first, second, last = [await memories.atom(MAYA, chain[n].id) for n in (0, 1, 3)]
        assert first is not None
        assert second is not None
        assert last is not None
        assert (first.valid_to, first.superseded_by, first.superseded_at) == (NOON + 10 * DAY, second.id, NOON + DAY)
        assert (second.valid_to, second.superseded_by) == (NOON + 20 * DAY, last.id)
        assert (second.superseded_at, last.supersedes) == (NOON + 3 * DAY, second.id)
        with pytest.raises(AtomSupersededError) as refused:
            await memories.supersede(MAYA, second.id, make_atom(), now=NOON + 9 * DAY)
        assert refused.value.superseded_by == last.id
        for known in range(len(begins)):
            for day in range(25):
                wanted = [n for n in range(known + 1) if n != 2 and begins[n] <= day][-1]
                at = NOON + day * DAY
                assert await valid_texts(store, space, at, known_at=NOON + known * DAY) == [str(wanted)], (day, known)

    async def test_of_many_who_supersede_one_atom_at_once_one_succeeds(self, store: Store) -> None:
        space = await make_space(store)
        [atom] = await add_atoms(store, space, make_atom())
        work = [store.memories.supersede(MAYA, atom.id, make_atom(str(n)), now=utc_now()) for n in range(8)]
        done = await asyncio.gather(*work, return_exceptions=True)
        assert sum(isinstance(result, Atom) for result in done) == 1
        assert all(isinstance(result, Atom | AtomSupersededError) for result in done)
        assert len(await valid_texts(store, space, utc_now())) == 1

    async def test_status_changes_once_and_what_is_deleted_stays_so(self, store: Store) -> None:
        space = await make_space(store)
        ann = await make_entity(store, space, "Ann")
        [atom] = await add_atoms(store, space, make_atom(entity_ids=(ann.id,)))
        set_status = store.memories.set_status
        archived = await set_status(MAYA, atom.id, AtomStatus.ARCHIVED, now=utc_now())
        version = await store.memories.version(MAYA, space.id)
        assert await set_status(MAYA, atom.id, AtomStatus.ARCHIVED, now=utc_now()) == archived
        assert await store.memories.version(MAYA, space.id) == version
        assert archived.status is AtomStatus.ARCHIVED
        assert (await self._counts(store, space, ann)) == (0, 0)
        await set_status(MAYA, atom.id, AtomStatus.ACTIVE, now=utc_now())
        assert (await self._counts(store, space, ann)) == (1, 1)
        await set_status(MAYA, atom.id, AtomStatus.DELETED, now=utc_now())
        assert (await self._counts(store, space, ann)) == (0, 0)
        for status in AtomStatus:
            with pytest.raises(NotFoundError):
                await set_status(MAYA, atom.id, status, now=utc_now())
        with pytest.raises(NotFoundError):
            await store.memories.supersede(MAYA, atom.id, make_atom(), now=utc_now())
        types = [event.type for event in await read_all_events(store) if event.subject_id == atom.id]
        assert types == ["atom.added", "atom.archived", "atom.restored", "atom.deleted"]

    async def _counts(self, store: Store, space: MemorySpace, entity: Entity) -> tuple[int, int]:
        found, about = await store.memories.space(MAYA, space.id), await store.memories.entity(MAYA, entity.id)
        assert found is not None
        assert about is not None
        return found.atom_count, about.atom_count
