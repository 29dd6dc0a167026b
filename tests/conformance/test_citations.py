"""A new citation of an atom is visible immediately, in a cached space and in a large one."""

from __future__ import annotations

import pytest

from tellback import Tellback
from tellback.stores import AddedCitation, Reconciliation
from tellback.types.ids import utc_now
from tellback.types.memory import Citation


@pytest.mark.parametrize("memory_atoms", [50_000, 0], ids=["cached", "large"])
async def test_a_recalled_atom_has_its_new_citations(url: str, memory_atoms: int) -> None:
    async with Tellback(url, embedder=None, memory_atoms=memory_atoms, worker=False) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space()
        atom = await maya.memory.add_atom(space.id, "Likes tea.", source_conversation_id="conv_1")
        second_citation = Citation("conv_2", ("msg_3",))
        assert (await maya.memory.recall_by_topic(space.id, "tea")).atoms == [atom]
        reconciliation = Reconciliation(changes=(AddedCitation(atom.id, second_citation),))
        memories = tb.store.memories
        version = await memories.version(maya.scope, space.id)
        assert await memories.reconcile(
            maya.scope, space.id, reconciliation, expected_version=version, end=None, now=utc_now()
        )
        for found in (
            (await maya.memory.recall_by_topic(space.id, "tea")).atoms,
            (await maya.memory.recall_timeline(space.id, query="tea")).atoms,
            await maya.memory.list_atoms(space.id),
            [await maya.memory.get_atom(atom.id)],
        ):
            assert [each.other_sources for each in found if each is not None] == [(second_citation,)]
