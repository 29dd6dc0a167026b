"""Patterns of a user's recurring episodes, on every store."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tellback import Atom, ConfigurationError, InvalidArgumentError, Tellback
from tellback.memory import PatternMining
from tellback.stores import AtomFilter
from tellback.types.ids import utc_now
from tellback.types.memory import AtomStatus, CategoryKind
from tellback.user import User

MONDAY = datetime(2026, 1, 5, 8, tzinfo=UTC)
RUN_CATEGORY = ("running", "EPISODE")


async def add_run_episodes(
    user: User, space_id: str, weeks: range, category: tuple[str, str] = RUN_CATEGORY
) -> list[Atom]:
    """Add episodes of a user who goes running on Mondays, and other episodes."""
    atoms = []
    for week in weeks:
        day = MONDAY + timedelta(weeks=week)
        conversation = await user.conversations.create("chat")
        message = await user.conversations.append_user_message(conversation.id, "I went running in the park.")
        atoms.append(
            await user.memory.add_atom(
                space_id,
                "User went running in the park.",
                category,
                valid_from=day,
                source_conversation_id=conversation.id,
                source_message_ids=[message.id],
            )
        )
        await user.memory.add_atom(space_id, f"User paid bill number {week * 37 + 11}.", category, valid_from=day)
    return atoms


async def patterns(user: User, space_id: str) -> list[Atom]:
    atoms = await user.memory.list_atoms(space_id)
    return [atom for atom in atoms if atom.category.kind is CategoryKind.PATTERN and "running" in atom.text]


async def test_recurring_episodes_become_a_pattern_that_cites_them(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    episodes = await add_run_episodes(user, space.id, range(4))
    assert await tb.mine_patterns() > 0
    [pattern] = await patterns(user, space.id)
    assert "Monday" in pattern.text
    assert pattern.valid_from == MONDAY
    assert {each.conversation_id for each in pattern.citations} == {atom.source_conversation_id for atom in episodes}
    assert await tb.mine_patterns() == 0
    new_episodes = await add_run_episodes(user, space.id, range(4, 6))
    assert await tb.mine_patterns() > 0
    [updated_pattern] = await patterns(user, space.id)
    assert len(updated_pattern.citations) == 6
    assert new_episodes[-1].source_conversation_id in {each.conversation_id for each in updated_pattern.citations}
    hits = await user.memory.recall_by_topic(space.id, "how often do I go running?")
    assert updated_pattern.id in {atom.id for atom in hits.atoms}
    await user.memory.delete_atom(updated_pattern.id)
    await tb.mine_patterns()
    assert [atom for atom in await patterns(user, space.id) if atom.superseded_by is None] == []


async def test_two_episodes_and_excluded_categories_form_no_pattern(url: str) -> None:
    async with Tellback(url, patterns=PatternMining(exclude=("medical",))) as tb:
        user = tb.user("maya")
        space = await user.memory.create_space("daily")
        await add_run_episodes(user, space.id, range(2))
        await add_run_episodes(user, space.id, range(10, 16), ("medical", "EPISODE"))
        await tb.mine_patterns()
        assert await patterns(user, space.id) == []


async def test_atoms_are_listed_by_their_kind(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    kinds = [*CategoryKind][:4]
    for kind in (*kinds, *kinds):
        await user.memory.add_atom(space.id, f"A {kind}.", (f"as {kind}", kind))

    async def listed(kind: CategoryKind | None, **kwargs: Any) -> list[CategoryKind]:
        atom_filter = AtomFilter(AtomStatus.ACTIVE, utc_now(), kind=kind, **kwargs)
        return [atom.category.kind for atom in await tb.store.memories.atoms(user.scope, space.id, atom_filter)]

    assert await listed(CategoryKind.EPISODE) == [CategoryKind.EPISODE] * 2
    assert await listed(CategoryKind.EPISODE, limit=1) == [CategoryKind.EPISODE]
    assert await listed(CategoryKind.EPISODE, categories=("as FACT", "as EPISODE")) == [CategoryKind.EPISODE] * 2
    assert await listed(CategoryKind.PATTERN) == []
    assert len(await listed(None)) == 8


async def test_applications_cannot_write_patterns(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    with pytest.raises(InvalidArgumentError, match="reserved for pattern mining"):
        await user.memory.add_atom(space.id, "User always runs.", ("pattern", "PATTERN"))
    atom = await user.memory.add_atom(space.id, "User runs.")
    with pytest.raises(InvalidArgumentError, match="reserved for pattern mining"):
        await user.memory.supersede_atom(atom.id, "User always runs.", ("pattern", "PATTERN"))


async def test_a_pattern_can_only_be_superseded_by_another_category_and_does_not_return(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    await add_run_episodes(user, space.id, range(4))
    await tb.mine_patterns()
    [pattern] = await patterns(user, space.id)
    with pytest.raises(InvalidArgumentError, match="reserved for pattern mining"):
        await user.memory.supersede_atom(pattern.id, "User robs banks on Mondays.")
    fact = await user.memory.supersede_atom(pattern.id, "User was running for a marathon.", ("sport", "FACT"))
    assert await tb.mine_patterns() == 0
    await add_run_episodes(user, space.id, range(4, 6))
    assert await tb.mine_patterns() == 0
    assert await patterns(user, space.id) == []
    await user.memory.delete_atom(fact.id)
    assert await tb.mine_patterns() > 0
    [pattern_after] = await patterns(user, space.id)
    assert len(pattern_after.citations) == 6


async def test_a_pattern_with_too_few_episodes_is_archived_until_there_are_enough(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    episodes = await add_run_episodes(user, space.id, range(3))
    await tb.mine_patterns()
    [pattern] = await patterns(user, space.id)
    await user.memory.archive_atom(episodes[0].id)
    await user.memory.delete_atom(episodes[1].id)
    assert await tb.mine_patterns() == 1
    assert await patterns(user, space.id) == []
    assert [atom.id for atom in await user.memory.list_atoms(space.id, status="ARCHIVED", category="pattern")] == [
        pattern.id
    ]
    assert await tb.mine_patterns() == 0
    await user.memory.restore_atom(episodes[0].id)
    await add_run_episodes(user, space.id, range(3, 4))
    assert await tb.mine_patterns() > 0
    [pattern_after] = await patterns(user, space.id)
    assert pattern_after.id == pattern.id
    assert len(pattern_after.citations) == 4
    for atom in await user.memory.list_atoms(space.id, category="running"):
        await user.memory.delete_atom(atom.id)
    assert await tb.mine_patterns() == 2  # the pattern of the bills is archived, too
    assert await patterns(user, space.id) == []


async def test_patterns_of_a_newly_excluded_category_are_removed(tb: Tellback) -> None:
    user = tb.user("maya")
    space = await user.memory.create_space("daily")
    await add_run_episodes(user, space.id, range(3), ("Medical", "EPISODE"))
    await tb.mine_patterns()
    assert len(await patterns(user, space.id)) == 1
    miner = tb._memory.pattern_miner(PatternMining(exclude=("mEdical",)))
    assert await miner.mine_all() > 0
    assert await patterns(user, space.id) == []
    assert await miner.mine_all() == 0


async def test_patterns_are_mined_periodically(url: str) -> None:
    async with Tellback(url, patterns=PatternMining(every=timedelta(seconds=0.2))) as tb:
        user = tb.user("maya")
        space = await user.memory.create_space("daily")
        await add_run_episodes(user, space.id, range(3))
        async with asyncio.timeout(40):
            async for event in tb.events.subscribe(types=["atom.added"]):
                if event.data["kind"] == "PATTERN":
                    break
        assert len(await patterns(user, space.id)) == 1


async def test_stale_conversations_and_summaries_are_handled_periodically(url: str) -> None:
    async with Tellback(url, close_stale_after=0.3) as tb:
        user = tb.user("maya")
        conversation = await user.conversations.create("chat")
        await user.conversations.append_turn(conversation.id, "Hello.", {"content": "Hi."})
        async with asyncio.timeout(40):
            async for _ in tb.events.subscribe(types=["conversation.closed"]):
                break
        closed = await user.conversations.get(conversation.id)
        assert closed is not None
        assert not closed.is_open


async def test_an_outdated_summary_is_refreshed(url: str) -> None:
    async with Tellback(url, worker=False, summary_every=3) as tb:
        user = tb.user("maya")
        conversation = await user.conversations.create("chat")
        for number in range(4):
            await user.conversations.append_turn(conversation.id, f"My number is {number}.", {"content": "Noted."})
        assert (await user.conversations.raw_turns(conversation.id))[-1].text == "Noted."
        await tb._summaries.refresh_due()
        updated = await user.conversations.get(conversation.id)
        assert updated is not None
        assert (updated.rolling_summary_until_seq, updated.summarized_turns) == (8, 4)


@pytest.mark.parametrize(
    "wrong", [{"at_least": 1}, {"exclude": "medical"}, {"every": timedelta(0)}, {"every": 3}, {"at_least": "3"}]
)
def test_invalid_mining_options_raise_configuration_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        PatternMining(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError):
        Tellback(":memory:", patterns="weekly")  # type: ignore[arg-type]
