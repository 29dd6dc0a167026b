"""The contract of memory: spaces, atoms and their bitemporal history, entities, and the changes of a space."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from tellback.errors import AtomSupersededError, InvalidArgumentError, NotFoundError
from tellback.stores import AtomFilter, EntityDraft, SpaceSearch, Store
from tellback.stores.engine import UNBOUNDED
from tellback.testing.stores.factories import (
    DAY,
    MAYA,
    NOON,
    OTHER_SCOPES,
    add_atoms,
    assert_not_found,
    make_atom,
    make_entity,
    make_space,
    present,
    read_all_events,
    read_event_types,
    valid_texts,
)
from tellback.types.ids import new_id, to_micros, utc_now
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Entity,
    EntityStatus,
    EntityType,
    MemorySpace,
)

HALF_VECTOR = bytes.fromhex("003c00c0")
"""1 and -2 in half-precision."""


class MemoryContract:
    """Tests of `MemoryStore`."""

    async def test_a_space_is_returned_as_created(self, store: Store) -> None:
        made = await make_space(store, name="Ünïcode 🦜")
        assert await store.memories.space(MAYA, made.id) == made
        assert (made.name, made.metadata, made.atom_count) == ("Ünïcode 🦜", {"k": ["v", None]}, 0)
        again = await make_space(store, name="Ünïcode 🦜")
        other = await make_space(store, name="other")
        assert await store.memories.spaces(MAYA) == [made, again, other]
        assert await store.memories.spaces(MAYA, name="other") == [other]
        assert await store.memories.space(MAYA, "ms_unknown") is None

    async def test_create_space_reuses_an_existing_space_even_concurrently(self, store: Store) -> None:
        now = utc_now()
        spaces = [MemorySpace(new_id("ms"), MAYA, "notes", now, now) for _ in range(8)]
        made = await asyncio.gather(
            *(store.memories.create_space(MAYA, space, reuse_existing=True) for space in spaces)
        )
        assert len({space.id for space in made}) == 1
        assert await store.memories.spaces(MAYA, name="notes") == made[:1]

    async def test_a_deleted_space_and_its_contents_are_unknown(self, store: Store, space: MemorySpace) -> None:
        [atom] = await add_atoms(store, space, make_atom())
        ann = await make_entity(store, space, "Ann")
        memories = store.memories
        await memories.delete_space(MAYA, space.id, now=utc_now())
        assert await memories.space(MAYA, space.id) is None
        assert await memories.spaces(MAYA) == []
        assert await memories.atom(MAYA, atom.id) is None
        assert await memories.entity(MAYA, ann.id) is None
        await assert_not_found(
            memories.delete_space(MAYA, space.id, now=utc_now()),
            add_atoms(store, space, make_atom()),
            valid_texts(store, space, NOON),
            memories.supersede(MAYA, atom.id, make_atom(), now=utc_now()),
            memories.set_status(MAYA, atom.id, AtomStatus.ARCHIVED, now=utc_now()),
            memories.entities(MAYA, space.id),
            memories.find_entities(MAYA, space.id, "Ann"),
            memories.merge(MAYA, ann.id, ann.id, now=utc_now()),
            memories.changes(MAYA, space.id, after=-1, embedder="e"),
            memories.save_vectors(MAYA, space.id, "e", [(1, HALF_VECTOR)], now=utc_now()),
        )

    async def test_an_atom_is_returned_as_added(self, store: Store, space: MemorySpace) -> None:
        ann = await make_entity(store, space, "Ann")
        draft = make_atom(
            "Née à Zürich 🦜\n2nd line",
            category=Category("Å", CategoryKind.PREFERENCE),
            importance=5,
            confidence=0.25,
            valid_to=NOON + DAY,
            source_conversation_id="conv_1",
            source_message_ids=("msg_1", "msg_2"),
            entity_ids=(ann.id,),
            embedder="e",
            vector=HALF_VECTOR,
        )
        moment = datetime(2026, 3, 2, 3, 4, 5, 678901, tzinfo=UTC)
        [atom] = await add_atoms(store, space, draft, now=moment)
        assert await store.memories.atom(MAYA, atom.id) == atom
        assert (atom.text, atom.category, atom.importance) == (draft.text, draft.category, 5)
        assert (atom.created_at, atom.valid_from, atom.valid_to) == (moment, NOON, NOON + DAY)
        assert (atom.source_message_ids, atom.entity_ids) == (("msg_1", "msg_2"), (ann.id,))
        found = present(await store.memories.space(MAYA, space.id))
        assert found.atom_count == 1
        assert await store.memories.atom(MAYA, "atom_unknown") is None

    async def test_adding_is_all_or_nothing(self, store: Store, space: MemorySpace) -> None:
        with pytest.raises(NotFoundError):
            await add_atoms(store, space, make_atom(), make_atom(entity_ids=("ent_unknown",)))
        assert await valid_texts(store, space, NOON) == []
        assert (await store.memories.changes(MAYA, space.id, after=-1, embedder="")).last_seq == 0

    async def test_an_origin_is_added_once_even_concurrently(self, store: Store, space: MemorySpace) -> None:
        tasks = [add_atoms(store, space, make_atom("first", origin="m1"), make_atom(f"{n}")) for n in range(10)]
        added = await asyncio.gather(*tasks)
        assert len({atoms[0].id for atoms in added}) == 1
        assert len(await valid_texts(store, space, NOON)) == 11
        changes = await store.memories.changes(MAYA, space.id, after=-1, embedder="")
        assert [row["seq"] for row in changes.atoms] == list(range(1, 12))
        first = added[0][0]
        assert await store.memories.atoms_by_origin(MAYA, space.id, ["m1", "m2"]) == {"m1": first}
        assert await store.memories.atoms_by_origin(MAYA, (await make_space(store)).id, ["m1"]) == {}

    async def test_atoms_are_listed_newest_first_and_filtered(self, store: Store) -> None:
        space = await make_space(store)
        names = ["a", "b", "a", "c", "b"]
        drafts = [make_atom(str(n), category=Category(name, CategoryKind.FACT)) for n, name in enumerate(names)]
        atoms = await add_atoms(store, space, *drafts)
        await store.memories.set_status(MAYA, atoms[2].id, AtomStatus.ARCHIVED, now=utc_now())

        async def list_texts(**options: Any) -> list[str]:
            wanted = AtomFilter(**{"status": AtomStatus.ACTIVE, "valid_at": utc_now(), **options})
            return [atom.text for atom in await store.memories.atoms(MAYA, space.id, wanted)]

        assert await list_texts() == ["4", "3", "1", "0"]
        assert await list_texts(limit=2) == ["4", "3"]
        assert await list_texts(limit=2, before=atoms[3].id) == ["1", "0"]
        assert await list_texts(categories=("b", "c")) == ["4", "3", "1"]
        assert await list_texts(categories=("b", "c"), limit=2, before=atoms[4].id) == ["3", "1"]
        assert await list_texts(categories=("none",)) == []
        assert await list_texts(status=AtomStatus.ARCHIVED) == ["2"]
        assert await list_texts(limit=0) == []
        with pytest.raises(NotFoundError):
            await list_texts(before="atom_unknown")

    async def test_entities_are_found_by_name_or_alias_ignoring_case_and_accents(self, store: Store) -> None:
        space = await make_space(store)
        jose = await make_entity(store, space, "José  María", "Pepe", "JOSE MARIA")
        assert jose.aliases == ("Pepe",)
        draft = EntityDraft(new_id("ent"), EntityType.PLACE, "Pepe", "a bar", {"stars": 4})
        bar = await store.memories.create_entity(MAYA, space.id, draft, now=utc_now())
        named = store.memories.find_entities
        assert await named(MAYA, space.id, " jose MARÍA") == [jose]
        assert await named(MAYA, space.id, "PEPE") == [bar, jose]
        assert await named(MAYA, space.id, "pepe", type=EntityType.PERSON) == [jose]
        assert await named(MAYA, space.id, "pep") == []
        assert await store.memories.entities(MAYA, space.id) == [jose, bar]
        assert await store.memories.entities(MAYA, space.id, type=EntityType.PLACE) == [bar]
        assert await store.memories.entities(MAYA, space.id, limit=1) == [jose]
        assert await store.memories.entities(MAYA, space.id, after=jose.id, limit=2) == [bar]
        assert await store.memories.entities(MAYA, space.id, after=bar.id) == []
        assert await store.memories.entity(MAYA, bar.id) == bar
        assert (bar.description, bar.attributes) == ("a bar", {"stars": 4})

    async def test_an_entity_has_an_atom_count_and_seen_times(self, store: Store, space: MemorySpace) -> None:
        ann = await make_entity(store, space, "Ann")
        for day in (3, 1, 2):
            await add_atoms(store, space, make_atom(valid_from=NOON + day * DAY, entity_ids=(ann.id,)))
        seen = present(await store.memories.entity(MAYA, ann.id))
        assert (seen.atom_count, seen.first_seen_at, seen.last_seen_at) == (3, NOON + DAY, NOON + 3 * DAY)

    async def test_merging_moves_atoms_and_names_follows_merges_and_can_be_repeated(self, store: Store) -> None:
        space = await make_space(store)
        acme, corp, inc = [await make_entity(store, space, name) for name in ("Acme", "Acme Corp", "ACME Inc")]
        one, both = await add_atoms(
            store,
            space,
            make_atom("one", entity_ids=(corp.id,)),
            make_atom("both", valid_from=NOON + DAY, entity_ids=(corp.id, acme.id)),
        )
        merge = store.memories.merge
        await merge(MAYA, inc.id, corp.id, now=utc_now())
        merged = await merge(MAYA, acme.id, corp.id, now=utc_now())
        assert merged.id == acme.id
        assert (merged.aliases, merged.atom_count) == (("ACME Inc", "Acme Corp"), 2)
        assert (merged.first_seen_at, merged.last_seen_at) == (NOON, NOON + DAY)
        for alias, canonical in ((acme, inc), (inc, acme), (corp, corp), (acme, corp)):
            assert await merge(MAYA, canonical.id, alias.id, now=utc_now()) == merged
        for atom in (one, both):
            found = present(await store.memories.atom(MAYA, atom.id))
            assert found.entity_ids == (acme.id,)
        gone = present(await store.memories.entity(MAYA, corp.id))
        assert (gone.status, gone.merged_into, gone.atom_count) == (EntityStatus.MERGED, inc.id, 0)
        for name in ("acme", "ACME CORP", "acme inc"):
            assert await store.memories.find_entities(MAYA, space.id, name) == [merged]
        [late] = await add_atoms(store, space, make_atom("late", entity_ids=(corp.id,)))
        assert late.entity_ids == (acme.id,)
        events = [event.subject_id for event in await read_all_events(store) if event.type == "entity.merged"]
        assert events == [corp.id, inc.id]
        elsewhere = await make_entity(store, await make_space(store), "Acme")
        with pytest.raises(InvalidArgumentError):
            await merge(MAYA, acme.id, elsewhere.id, now=utc_now())
        await assert_not_found(
            merge(MAYA, acme.id, "ent_unknown", now=utc_now()),
            add_atoms(store, space, make_atom(entity_ids=(elsewhere.id,))),
        )

    async def test_changes_continue_from_a_version_without_gaps(self, store: Store, space: MemorySpace) -> None:
        ann = await make_entity(store, space, "Ann")
        memories = store.memories
        first, second = await add_atoms(
            store, space, make_atom("first", embedder="e", vector=HALF_VECTOR), make_atom("second")
        )
        read = await memories.changes(MAYA, space.id, after=-1, embedder="e")
        assert [row["id"] for row in read.atoms] == [first.id, second.id]
        assert [(seq, bytes(vector)) for seq, vector in read.vectors] == [(1, HALF_VECTOR)]
        assert [entity.id for entity in read.entities] == [ann.id]
        assert (await memories.changes(MAYA, space.id, after=-1, embedder="other")).vectors == []
        nothing = await memories.changes(MAYA, space.id, after=read.version, embedder="e")
        assert (nothing.version, len(nothing.atoms), len(nothing.vectors)) == (read.version, 0, 0)

        third = await memories.supersede(MAYA, first.id, make_atom("third", entity_ids=(ann.id,)), now=NOON)
        await memories.save_vectors(MAYA, space.id, "e", [(2, HALF_VECTOR)], now=utc_now())
        more = await memories.changes(MAYA, space.id, after=read.version, embedder="e")
        assert [row["id"] for row in more.atoms] == [first.id, third.id]
        assert [seq for seq, _, _ in more.validity_ends] == [1]
        assert [vector[0] for vector in more.vectors] == [2]
        assert [entity.atom_count for entity in more.entities] == [1]
        await memories.set_status(MAYA, second.id, AtomStatus.DELETED, now=utc_now())
        last = await memories.changes(MAYA, space.id, after=more.version, embedder="e")
        assert [row["id"] for row in last.atoms] == [second.id]
        large = await memories.changes(MAYA, space.id, after=-1, embedder="e", max_atoms=2)
        assert (large.last_seq, len(large.atoms)) == (3, 0)

    async def test_rows_of_changes_can_be_unpacked_in_column_order(self, store: Store, space: MemorySpace) -> None:
        memories = store.memories
        _, rome = await add_atoms(
            store, space, make_atom("Likes tea"), make_atom("Rome", embedder="e", vector=HALF_VECTOR)
        )
        before = await memories.version(MAYA, space.id)
        known_at, valid_to = NOON + 9 * DAY, NOON + 5 * DAY
        await memories.supersede(MAYA, rome.id, make_atom("Paris", valid_from=valid_to), now=known_at)
        changes = [await memories.changes(MAYA, space.id, after=after, embedder="e") for after in (-1, before)]
        for row in [row for change in changes for row in change.atoms]:
            assert [*row] == [row[name] for name in row.keys()]  # noqa: SIM118 - a row is not a mapping
        if memories.can_search:
            every = SpaceSearch(99, UNBOUNDED, UNBOUNDED, -UNBOUNDED, -UNBOUNDED, UNBOUNDED, embedder="e")
            changes.append(await memories.search_atoms(MAYA, space.id, every))
        for change in changes:
            [(seq, end_known_at, end)] = change.validity_ends
            assert (seq, end_known_at, end) == (2, to_micros(known_at), to_micros(valid_to))
        [(seq, vector)] = changes[0].vectors
        assert (seq, bytes(vector)) == (2, HALF_VECTOR)

    async def test_a_reader_with_concurrent_writers_sees_every_atom_once_in_order(
        self, store: Store, second: Store
    ) -> None:
        space = await make_space(store)
        seen: list[int] = []

        async def write(store: Store, name: str) -> None:
            for n in range(15):
                await add_atoms(store, space, make_atom(f"{name} {n}"))

        async def follow() -> None:
            version = -1
            while len(seen) < 60:
                changes = await second.memories.changes(MAYA, space.id, after=version, embedder="")
                new = [row["seq"] for row in changes.atoms if row["seq"] > len(seen)]
                assert new == list(range(len(seen) + 1, len(seen) + 1 + len(new)))
                seen.extend(new)
                version = changes.version
                await asyncio.sleep(0.001)

        writers = [write(opening, f"{n}") for n, opening in enumerate((store, second, store, second))]
        async with asyncio.timeout(30):
            await asyncio.gather(follow(), *writers)

    async def test_atoms_without_a_vector_are_listed_newest_first(self, store: Store) -> None:
        space = await make_space(store)
        atoms = await add_atoms(
            store, space, *[make_atom(str(n), embedder="old", vector=HALF_VECTOR) for n in range(5)]
        )
        await store.memories.set_status(MAYA, atoms[3].id, AtomStatus.DELETED, now=utc_now())
        to_embed = store.memories.atoms_without_vector

        async def missing(embedder: str, before: int | None = None, limit: int = 9) -> Sequence[tuple[int, str]]:
            return await to_embed(MAYA, space.id, embedder=embedder, before=before, limit=limit)

        assert await missing("old") == []
        assert await missing("new") == [(5, "4"), (3, "2"), (2, "1"), (1, "0")]
        assert await missing("new", before=3, limit=1) == [(2, "1")]
        await store.memories.save_vectors(MAYA, space.id, "new", [(5, HALF_VECTOR), (2, HALF_VECTOR)], now=utc_now())
        assert await missing("new") == [(3, "2"), (1, "0")]
        assert (MAYA, space.id) in await store.memories.all_spaces(after="", limit=100)

    async def test_vectors_of_several_embedders_coexist_until_deleted(self, store: Store) -> None:
        space = await make_space(store)
        memories = store.memories
        await add_atoms(store, space, *[make_atom(str(n), embedder="old", vector=HALF_VECTOR) for n in range(3)])
        read = await memories.changes(MAYA, space.id, after=-1, embedder="old")

        async def kept(embedder: str, after: int = -1) -> dict[int, bytes]:
            found = await memories.changes(MAYA, space.id, after=after, embedder=embedder)
            return {seq: bytes(vector) for seq, vector in found.vectors}

        await memories.save_vectors(MAYA, space.id, "new", [(1, HALF_VECTOR * 2), (3, HALF_VECTOR * 2)], now=utc_now())
        assert await kept("old") == {1: HALF_VECTOR, 2: HALF_VECTOR, 3: HALF_VECTOR}
        assert await kept("old", after=read.version) == {}
        assert await kept("new", after=read.version) == {1: HALF_VECTOR * 2, 3: HALF_VECTOR * 2}
        await memories.save_vectors(MAYA, space.id, "new", [(3, HALF_VECTOR)], now=utc_now())
        assert await kept("new") == {1: HALF_VECTOR * 2, 3: HALF_VECTOR}
        assert await memories.atoms_without_vector(MAYA, space.id, embedder="old", before=None, limit=9) == []
        await memories.delete_other_vectors(MAYA, space.id, embedder="new")
        assert (await kept("old"), len(await kept("new"))) == ({}, 2)

    async def test_memory_of_another_scope_is_unknown(self, store: Store, space: MemorySpace) -> None:
        [atom] = await add_atoms(store, space, make_atom("private", embedder="e", vector=HALF_VECTOR))
        ann = await make_entity(store, space, "Ann")
        memories = store.memories
        for other in OTHER_SCOPES:
            assert await memories.space(other, space.id) is None
            assert await memories.spaces(other) == []
            assert await memories.atom(other, atom.id) is None
            assert await memories.entity(other, ann.id) is None
            assert await memories.atoms_without_vector(other, space.id, embedder="x", before=None, limit=9) == []
            theirs = await make_space(store, other)
            await assert_not_found(
                memories.delete_space(other, space.id, now=utc_now()),
                memories.add(other, space.id, [make_atom()], now=utc_now()),
                memories.atoms(other, space.id, AtomFilter(AtomStatus.ACTIVE, utc_now())),
                memories.atoms(other, theirs.id, AtomFilter(AtomStatus.ACTIVE, utc_now(), before=atom.id)),
                memories.supersede(other, atom.id, make_atom(), now=utc_now()),
                memories.set_status(other, atom.id, AtomStatus.DELETED, now=utc_now()),
                memories.create_entity(other, space.id, EntityDraft("ent_x", EntityType.PLACE, "x"), now=utc_now()),
                memories.entities(other, space.id),
                memories.find_entities(other, space.id, "Ann"),
                memories.merge(other, ann.id, ann.id, now=utc_now()),
                memories.changes(other, space.id, after=-1, embedder="e"),
                memories.atoms_by_origin(other, space.id, ["m1"]),
                memories.save_vectors(other, space.id, "e", [(1, HALF_VECTOR)], now=utc_now()),
                memories.delete_other_vectors(other, space.id, embedder="none"),
                memories.add(other, theirs.id, [make_atom(entity_ids=(ann.id,))], now=utc_now()),
            )
        assert await memories.atom(MAYA, atom.id) == atom
        assert await memories.entity(MAYA, ann.id) == ann
        assert await memories.atoms_without_vector(MAYA, space.id, embedder="e", before=None, limit=9) == []

    async def test_every_change_writes_an_event_in_order(self, store: Store, space: MemorySpace) -> None:
        [atom] = await add_atoms(store, space, make_atom())
        new = await store.memories.supersede(MAYA, atom.id, make_atom(), now=utc_now())
        ann = await make_entity(store, space, "Ann")
        await store.memories.delete_space(MAYA, space.id, now=utc_now())
        events = await read_all_events(store)
        assert [(event.type, event.subject_id) for event in events] == [
            ("space.created", space.id),
            ("atom.added", atom.id),
            ("atom.added", new.id),
            ("atom.superseded", atom.id),
            ("entity.created", ann.id),
            ("space.deleted", space.id),
        ]
        assert all(first.position < second.position for first, second in pairwise(events))
        assert events[3].data == {"space_id": space.id, "superseded_by": new.id}


class AtomHistoryContract:
    """Tests of superseding, archiving and deleting atoms."""

    async def test_superseding_ends_the_old_atom_at_the_start_of_the_new_one(self, store: Store) -> None:
        space = await make_space(store)
        [rome] = await add_atoms(store, space, make_atom("Rome"))
        later = NOON + 10 * DAY
        paris = await store.memories.supersede(MAYA, rome.id, make_atom("Paris", valid_from=NOON + 5 * DAY), now=later)
        old = present(await store.memories.atom(MAYA, rome.id))
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
        found = present(await store.memories.space(MAYA, space.id))
        assert found.atom_count == 2

    async def test_after_a_retroactive_correction_one_atom_is_valid_at_any_time(self, store: Store) -> None:
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

    async def test_an_atom_that_was_never_valid_is_ended_once_and_never_listed_as_valid(self, store: Store) -> None:
        space = await make_space(store)
        [atom] = await add_atoms(store, space, make_atom("0", valid_from=NOON + 99 * DAY))
        for n in range(1, 40):
            draft = make_atom(str(n), valid_from=NOON + (99 - n) * DAY)
            atom = await store.memories.supersede(MAYA, atom.id, draft, now=NOON + n * DAY)
        changes = await store.memories.changes(MAYA, space.id, after=-1, embedder="")
        assert len(changes.validity_ends) == 39
        for valid_at in (NOON, NOON + 59 * DAY, NOON + 99 * DAY):
            atoms = await store.memories.atoms(MAYA, space.id, AtomFilter(AtomStatus.ACTIVE, valid_at))
            assert [atom.text for atom in atoms] == ["39"], valid_at
        early = AtomFilter(AtomStatus.ACTIVE, NOON, known_at=NOON + 5 * DAY)
        assert [atom.text for atom in await store.memories.atoms(MAYA, space.id, early)] == ["5"]

    async def test_deleting_the_last_atom_of_a_chain_restores_the_previous_one(self, store: Store) -> None:
        space = await make_space(store)
        memories = store.memories
        [rome] = await add_atoms(store, space, make_atom("Rome", valid_to=NOON + 20 * DAY))
        read = await memories.changes(MAYA, space.id, after=-1, embedder="")
        paris = await memories.supersede(MAYA, rome.id, make_atom("Paris", valid_from=NOON + 5 * DAY), now=NOON + DAY)
        await memories.set_status(MAYA, paris.id, AtomStatus.DELETED, now=NOON + 2 * DAY)
        again = present(await memories.atom(MAYA, rome.id))
        assert (again.valid_to, again.superseded_at, again.superseded_by) == (rome.valid_to, None, None)
        assert again.updated_at == NOON + 2 * DAY
        assert await valid_texts(store, space, NOON + 6 * DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 6 * DAY, known_at=NOON + DAY) == ["Rome"]
        assert await valid_texts(store, space, NOON + 20 * DAY) == []
        more = await memories.changes(MAYA, space.id, after=read.version, embedder="")
        assert [row["id"] for row in more.atoms] == [rome.id, paris.id]
        assert list(map(tuple, more.validity_ends)) == list(map(tuple, read.validity_ends))
        oslo = await memories.supersede(MAYA, rome.id, make_atom("Oslo", valid_from=NOON + 7 * DAY), now=NOON + 3 * DAY)
        assert await valid_texts(store, space, NOON + 8 * DAY) == ["Oslo"]
        await memories.set_status(MAYA, rome.id, AtomStatus.DELETED, now=NOON + 4 * DAY)
        first = present(await memories.atom(MAYA, oslo.id))
        assert first.supersedes is None
        with pytest.raises(NotFoundError):
            await memories.supersede(MAYA, paris.id, make_atom(), now=NOON + 5 * DAY)

    async def test_deleting_a_middle_atom_links_its_neighbours(self, store: Store) -> None:
        space = await make_space(store)
        memories = store.memories
        [atom] = await add_atoms(store, space, make_atom("0"))
        begins, chain = [0, 10, 4, 20], [atom]
        for n, day in enumerate(begins[1:], 1):
            draft = make_atom(str(n), valid_from=NOON + day * DAY)
            chain.append(await memories.supersede(MAYA, chain[-1].id, draft, now=NOON + n * DAY))
        await memories.set_status(MAYA, chain[2].id, AtomStatus.DELETED, now=NOON + 9 * DAY)
        first, second, last = [present(await memories.atom(MAYA, chain[n].id)) for n in (0, 1, 3)]
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

    async def test_concurrent_superseding_of_one_atom_succeeds_once(self, store: Store, space: MemorySpace) -> None:
        [atom] = await add_atoms(store, space, make_atom())
        work = [store.memories.supersede(MAYA, atom.id, make_atom(str(n)), now=utc_now()) for n in range(8)]
        done = await asyncio.gather(*work, return_exceptions=True)
        assert sum(isinstance(result, Atom) for result in done) == 1
        assert all(isinstance(result, Atom | AtomSupersededError) for result in done)
        assert len(await valid_texts(store, space, utc_now())) == 1

    async def test_status_changes_once_and_deletion_is_final(self, store: Store, space: MemorySpace) -> None:
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
        await assert_not_found(
            *(set_status(MAYA, atom.id, status, now=utc_now()) for status in AtomStatus),
            store.memories.supersede(MAYA, atom.id, make_atom(), now=utc_now()),
        )
        types = await read_event_types(store, atom.id)
        assert types == ["atom.added", "atom.archived", "atom.restored", "atom.deleted"]

    async def _counts(self, store: Store, space: MemorySpace, entity: Entity) -> tuple[int, int]:
        found = present(await store.memories.space(MAYA, space.id))
        about = present(await store.memories.entity(MAYA, entity.id))
        return found.atom_count, about.atom_count
