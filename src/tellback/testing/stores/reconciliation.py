"""The contract of `reconcile`: all changes of an extraction in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tellback.errors import AtomSupersededError, JobLostError, NotFoundError
from tellback.stores import (
    AddedCitation,
    AtomChange,
    AtomDraft,
    AtomFilter,
    EntityDraft,
    JobEnd,
    Reconciliation,
    Replacement,
    SpaceSearch,
    Store,
)
from tellback.stores.engine import UNBOUNDED
from tellback.stores.rows import ATOM
from tellback.testing.stores.factories import (
    DAY,
    MAYA,
    NOON,
    OTHER_SCOPES,
    add_atoms,
    assert_not_found,
    claim_available_job,
    claim_job,
    dispatch_all,
    make_atom,
    make_binding,
    make_closed_conversation,
    make_entity,
    make_space,
    present,
    read_all_events,
    valid_texts,
)
from tellback.types.ids import new_id
from tellback.types.jobs import Job, JobStatus
from tellback.types.memory import Atom, AtomStatus, Citation, EntityType, MemorySpace

FIRST, AGAIN = Citation("conv_1", ("msg_1",)), Citation("conv_2", ("msg_5", "msg_6"))


async def reconcile(
    store: Store,
    space: MemorySpace,
    *changes: AtomChange,
    end: JobEnd | None = None,
    version: int | None = None,
    entities: Sequence[EntityDraft] = (),
    aliases: dict[str, tuple[str, ...]] | None = None,
) -> list[Atom] | None:
    """Change a space at its current version, or at a given one."""
    expected = await store.memories.version(space.scope, space.id) if version is None else version
    reconciliation = Reconciliation(tuple(entities), aliases or {}, changes)
    return await store.memories.reconcile(
        space.scope, space.id, reconciliation, expected_version=expected, end=end, now=NOON
    )


async def make_running_job(store: Store) -> tuple[MemorySpace, Job]:
    """Create a space, and a running job for it."""
    space = await make_space(store)
    await make_binding(store, space)
    await make_closed_conversation(store)
    await dispatch_all(store)
    return space, await claim_available_job(store)


def make_cited_atom(text: str = "Lives in Rome") -> AtomDraft:
    """Build an atom with one citation."""
    return make_atom(text, source_conversation_id="conv_1", source_message_ids=("msg_1",))


class ReconcileContract:
    """Tests of `MemoryStore.known_atoms` and `MemoryStore.reconcile`."""

    async def test_a_reconciliation_applies_all_changes_in_order(self, store: Store) -> None:
        space, job = await make_running_job(store)
        ann = await make_entity(store, space, "Ann")
        [rome, tea] = await add_atoms(store, space, make_atom("Rome"), make_cited_atom("Tea"))
        bob = EntityDraft(new_id("ent"), EntityType.PERSON, "Bob")
        oslo = make_atom("Oslo", entity_ids=(bob.id,), valid_from=NOON + DAY)
        changed = await reconcile(
            store,
            space,
            Replacement(rome.id, oslo),
            AddedCitation(tea.id, AGAIN),
            make_atom("Has a cat", entity_ids=(ann.id, bob.id)),
            entities=[bob],
            aliases={ann.id: ("Annie",), bob.id: ("Bobby",)},
            end=JobEnd(job.id, job.runs, {"added": 2}),
        )
        assert changed is not None
        assert [atom.text for atom in changed] == ["Oslo", "Tea", "Has a cat"]
        assert [await store.memories.atom(MAYA, atom.id) for atom in changed] == changed
        assert changed[0].supersedes == rome.id
        assert changed[1].citations == (FIRST, AGAIN)
        for name, id in (("annie", ann.id), ("bobby", bob.id), ("Bob", bob.id)):
            assert [entity.id for entity in await store.memories.find_entities(MAYA, space.id, name)] == [id]
        done = present(await store.jobs.get(MAYA, job.id))
        assert (done.status, done.result) == (JobStatus.DONE, {"added": 2})
        events = [
            event.type for event in await read_all_events(store) if event.type.startswith(("atom.", "extraction.c"))
        ]
        assert events[-5:] == ["atom.added", "atom.superseded", "atom.cited", "atom.added", "extraction.completed"]
        found = present(await store.memories.space(MAYA, space.id))
        assert found.atom_count == 4

    async def test_a_failing_change_rolls_back_all_changes_and_the_jobs_end(self, store: Store) -> None:
        space, job = await make_running_job(store)
        [rome, paris] = await add_atoms(store, space, make_atom("Rome"), make_atom("Paris"))
        await store.memories.supersede(MAYA, rome.id, make_atom("Oslo"), now=NOON)
        bob = EntityDraft(new_id("ent"), EntityType.PERSON, "Bob")
        before = await self._read_all(store, space)
        events = len(await read_all_events(store))
        failing: list[tuple[AtomChange, type[Exception]]] = [
            (make_atom(entity_ids=("ent_unknown",)), NotFoundError),
            (Replacement(rome.id, make_atom()), AtomSupersededError),
            (Replacement("atom_unknown", make_atom()), NotFoundError),
            (AddedCitation("atom_unknown", AGAIN), NotFoundError),
        ]
        for change, error in failing:
            with pytest.raises(error):
                await reconcile(
                    store,
                    space,
                    make_atom("Good"),
                    AddedCitation(paris.id, AGAIN),
                    change,
                    make_atom("Late"),
                    entities=[bob],
                    end=JobEnd(job.id, job.runs),
                )
            assert await self._read_all(store, space) == before
        assert await store.memories.entities(MAYA, space.id) == []
        assert len(await read_all_events(store)) == events
        assert await store.jobs.get(MAYA, job.id) == job

    async def test_a_changed_space_is_not_reconciled(self, store: Store) -> None:
        space, job = await make_running_job(store)
        version = await store.memories.version(MAYA, space.id)
        await add_atoms(store, space, make_atom("Quicker"))
        for stale_version in (version, version + 2):
            end = JobEnd(job.id, job.runs)
            assert await reconcile(store, space, make_atom("Slow"), version=stale_version, end=end) is None
        assert await valid_texts(store, space, NOON) == ["Quicker"]
        assert await store.memories.version(MAYA, space.id) == version + 1
        assert await store.jobs.get(MAYA, job.id) == job

    async def test_concurrent_reconciliations_of_a_version_succeed_once(self, store: Store, second: Store) -> None:
        space = await make_space(store)
        version = await store.memories.version(MAYA, space.id)
        work = [reconcile((store, second)[n % 2], space, make_atom(str(n)), version=version) for n in range(12)]
        done = [result for result in await asyncio.gather(*work) if result is not None]
        assert len(done) == 1
        assert await valid_texts(store, space, NOON) == [done[0][0].text]

    async def test_an_attempt_that_lost_its_job_changes_nothing(self, store: Store) -> None:
        space, job = await make_running_job(store)
        taken = present(await claim_job(store, after=3600, lease=7200))
        with pytest.raises(JobLostError):
            await reconcile(store, space, make_atom("Late"), end=JobEnd(job.id, job.runs))
        with pytest.raises(JobLostError):
            await reconcile(store, space, make_atom("Late"), end=JobEnd("job_unknown", 1))
        assert await valid_texts(store, space, NOON) == []
        assert await reconcile(store, space, make_atom("Now"), end=JobEnd(job.id, taken.runs)) is not None
        with pytest.raises(JobLostError):
            await reconcile(store, space, make_atom("Twice"), end=JobEnd(job.id, taken.runs))
        assert await valid_texts(store, space, NOON) == ["Now"]

    async def test_citations_are_merged_by_conversation_without_duplicates(
        self, store: Store, space: MemorySpace
    ) -> None:
        [atom] = await add_atoms(store, space, make_cited_atom())
        for _ in range(2):
            await reconcile(store, space, AddedCitation(atom.id, AGAIN))
            await reconcile(store, space, AddedCitation(atom.id, Citation("conv_1", ("msg_1", "msg_2"))))
            await reconcile(store, space, AddedCitation(atom.id, Citation("conv_2", ("msg_6", "msg_7"))))
        found = present(await store.memories.atom(MAYA, atom.id))
        assert (found.source_conversation_id, found.source_message_ids) == ("conv_1", ("msg_1", "msg_2"))
        assert found.other_sources == (Citation("conv_2", ("msg_5", "msg_6", "msg_7")),)
        events = await read_all_events(store, "atom.cited")
        assert [event.data["conversation_id"] for event in events] == ["conv_2", "conv_1", "conv_2"]

    async def test_an_atom_without_a_conversation_keeps_its_cited_messages(self, store: Store) -> None:
        space = await make_space(store)
        [bare, loose] = await add_atoms(store, space, make_atom(), make_atom(source_message_ids=("msg_0",)))
        for atom, messages, others in ((bare, ("msg_1",), ()), (loose, ("msg_0",), (FIRST,))):
            await reconcile(store, space, AddedCitation(atom.id, FIRST))
            found = present(await store.memories.atom(MAYA, atom.id))
            assert (found.citations, found.source_message_ids, found.other_sources) == ((FIRST,), messages, others)

    async def test_added_citations_are_visible_to_every_read_method(self, store: Store, space: MemorySpace) -> None:
        [rome] = await add_atoms(store, space, make_cited_atom("Rome"))
        await reconcile(store, space, AddedCitation(rome.id, AGAIN))
        memories = store.memories
        await self._check_all_reads(store, space, rome.id)
        await memories.set_status(MAYA, rome.id, AtomStatus.ARCHIVED, now=NOON)
        restored = await memories.set_status(MAYA, rome.id, AtomStatus.ACTIVE, now=NOON)
        assert restored.other_sources == (AGAIN,)
        await memories.supersede(MAYA, rome.id, make_atom("Oslo", valid_from=NOON + DAY), now=NOON)
        await self._check_all_reads(store, space, rome.id)
        [drafted] = await add_atoms(store, space, make_atom("Paris", other_sources=(AGAIN,), origin="o"))
        assert (await memories.atoms_by_origin(MAYA, space.id, ["o"]))["o"].other_sources == (AGAIN,)
        await self._check_all_reads(store, space, drafted.id)

    async def test_changes_include_added_citations(self, store: Store, space: MemorySpace) -> None:
        [rome, _] = await add_atoms(store, space, make_cited_atom("Rome"), make_cited_atom("Tea"))
        read = await store.memories.changes(MAYA, space.id, after=-1, embedder="")
        await reconcile(store, space, AddedCitation(rome.id, AGAIN))
        more = await store.memories.changes(MAYA, space.id, after=read.version, embedder="")
        assert [ATOM.read(row).citations for row in more.atoms] == [(FIRST, AGAIN)]

    async def test_an_atom_added_in_the_same_call_can_be_superseded_and_cited(self, store: Store) -> None:
        space = await make_space(store)
        rome, oslo = make_atom("Rome"), make_atom("Oslo", valid_from=NOON + DAY)
        present(await reconcile(store, space, rome, Replacement(rome.id, oslo), AddedCitation(oslo.id, AGAIN)))
        assert await valid_texts(store, space, NOON) == ["Rome"]
        assert await valid_texts(store, space, NOON + DAY) == ["Oslo"]
        found = present(await store.memories.atom(MAYA, oslo.id))
        assert (found.supersedes, found.citations) == (rome.id, (AGAIN,))

    async def test_atoms_of_another_space_cannot_be_changed(self, store: Store) -> None:
        space, other = await make_space(store), await make_space(store, name="other")
        theirs = await make_space(store, OTHER_SCOPES[0])
        for foreign in (other, theirs):
            [atom] = await add_atoms(store, foreign, make_atom("Rome"))
            ann = await make_entity(store, foreign, "Ann")
            version = await store.memories.version(foreign.scope, foreign.id)
            await assert_not_found(
                reconcile(store, space, Replacement(atom.id, make_atom())),
                reconcile(store, space, AddedCitation(atom.id, AGAIN)),
                reconcile(store, space, aliases={ann.id: ("Annie",)}),
                reconcile(store, space, make_atom(entity_ids=(ann.id,))),
            )
            assert await store.memories.version(foreign.scope, foreign.id) == version
        wanted = Reconciliation(changes=(make_atom(),))
        await assert_not_found(
            store.memories.reconcile(MAYA, theirs.id, wanted, expected_version=0, end=None, now=NOON)
        )

    async def test_known_atoms_match_slots_or_cite_the_conversation(self, store: Store) -> None:
        space, other = await make_space(store), await make_space(store, name="other")
        drafts = [
            make_atom("Rome", slot="user: home", value="rome"),
            replace(make_cited_atom("Tea"), slot="user: drink", value="tea"),
            make_atom("Cat", other_sources=(Citation("conv_9", ()), FIRST)),
            make_atom("Dog", source_conversation_id="convX1", other_sources=(Citation("conv_12", ("conv_1",)),)),
            make_atom("Nothing", slot="user: HOME"),
        ]
        atoms = await add_atoms(store, space, *drafts)
        await add_atoms(store, other, make_atom("Elsewhere", slot="user: home"), make_cited_atom())
        known = store.memories.known_atoms
        found = await known(MAYA, space.id, slots=["user: home", "none", "user: home"], conversation_id="conv_1")
        assert [(each.atom.text, each.slot, each.value) for each in found] == [
            ("Rome", "user: home", "rome"),
            ("Tea", "user: drink", "tea"),
            ("Cat", None, None),
        ]
        assert [each.atom for each in found] == atoms[:3]
        await store.memories.set_status(MAYA, atoms[0].id, AtomStatus.DELETED, now=NOON)
        [gone] = await known(MAYA, space.id, slots=["user: home"], conversation_id=None)
        assert gone.atom.status is AtomStatus.DELETED
        assert await known(MAYA, space.id, slots=[], conversation_id=None) == []
        for scope, id in ((MAYA, "ms_unknown"), (OTHER_SCOPES[0], space.id)):
            await assert_not_found(known(scope, id, slots=[], conversation_id="conv_1"))

    async def _read_all(self, store: Store, space: MemorySpace) -> object:
        changes = await store.memories.changes(MAYA, space.id, after=-1, embedder="")
        return changes.version, [ATOM.read(row) for row in changes.atoms], len(changes.validity_ends)

    async def _check_all_reads(self, store: Store, space: MemorySpace, id: str) -> None:
        """Check that every read method returns the added citation."""
        memories = store.memories
        read = [await memories.atom(MAYA, id)]
        read += await memories.atoms(MAYA, space.id, AtomFilter(AtomStatus.ACTIVE, NOON))
        read += [known.atom for known in await memories.known_atoms(MAYA, space.id, slots=[], conversation_id="conv_2")]
        changes = [await memories.changes(MAYA, space.id, after=-1, embedder="")]
        if memories.can_search:
            every = SpaceSearch(99, UNBOUNDED, UNBOUNDED, -UNBOUNDED, -UNBOUNDED, UNBOUNDED)
            changes.append(await memories.search_atoms(MAYA, space.id, every))
        read += [ATOM.read(row) for change in changes for row in change.atoms]
        found = [atom for atom in read if atom is not None and atom.id == id]
        assert len(found) == 3 + len(changes)
        assert {atom.other_sources for atom in found} == {(AGAIN,)}
