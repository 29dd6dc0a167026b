"""What holds for any history: one atom of a chain at every moment, and the same recall on both kinds of store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.errors import AtomSupersededError, NotFoundError
from tests.integration.memory.helpers import DAY, NOON, Clock, assert_same_result, assert_valid_result

HOUR = timedelta(hours=1)
WORDS = ["tea", "boat", "heron", "sofa", "cat", "Malta", "lamp", "kite", "bees", "figs", "rye", "Ann", "Bob"]

days = st.integers(-20, 20)
unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(unhurried, max_examples=25)
@given(
    begins=st.lists(days, min_size=1, max_size=8),
    waits=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    statuses=st.booleans(),
)
def test_at_any_two_times_exactly_one_atom_of_a_chain_holds(
    begins: list[int], waits: list[int], statuses: bool
) -> None:
    async def run() -> None:
        clock = Clock()
        async with Tellback(":memory:", embedder=None, clock=clock) as rc:
            memory = rc.user("maya").memory
            space = await memory.create_space()
            other = await memory.add_atom(space.id, "Something else.", valid_from=NOON - 100 * DAY)
            chain = [await memory.add_atom(space.id, "Lives at 0.", valid_from=NOON + begins[0] * DAY)]
            known = [clock.now]
            for n, day in enumerate(begins[1:], 1):
                clock.advance(waits[n - 1] * HOUR)  # 0: at the same moment
                if statuses:
                    await memory.archive_atom(chain[-1].id)
                    await memory.restore_atom(chain[-1].id)
                at = NOON + day * DAY
                chain.append(await memory.supersede_atom(chain[-1].id, f"Lives at {n}.", valid_from=at))
                known.append(clock.now)
            clock.advance(50 * DAY)
            for known_at in {*known, known[-1] + HOUR, known[0] + HOUR}:
                learned = [n for n in range(len(chain)) if known[n] <= known_at]
                for day in sorted({-21, *begins, *(day + 1 for day in begins), 30}):
                    valid_at = NOON + day * DAY
                    started = [n for n in learned if begins[n] <= day]
                    expected = {other.id} | ({chain[started[-1]].id} if started else set())
                    times = {"valid_at": valid_at, "known_at": known_at}
                    listed = await memory.list_atoms(space.id, **times)  # type: ignore[arg-type]
                    recalled = await memory.recall_by_topic(space.id, "Lives at", 1000, **times)  # type: ignore[arg-type]
                    assert {atom.id for atom in listed} == expected
                    assert {atom.id for atom in recalled.atoms} == expected
                    assert recalled.total_candidates == len(expected)
            now = {atom.id for atom in await memory.list_atoms(space.id)}
            recalled = await memory.recall_by_topic(space.id, "Lives", 1000)
            assert now == {atom.id for atom in recalled.atoms}
            assert len(now) == 2

    asyncio.run(run())


@settings(unhurried, max_examples=30)
@given(
    begins=st.lists(st.integers(-5, 15), min_size=2, max_size=7),
    lengths=st.lists(st.none() | st.integers(1, 20), min_size=7, max_size=7),
    gone=st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True),
    moves=st.booleans(),
)
def test_a_chain_without_what_was_forgotten_is_as_if_that_had_never_been(
    begins: list[int], lengths: list[int | None], gone: list[int], moves: bool
) -> None:
    async def run() -> None:
        clock = Clock()
        async with Tellback(":memory:", embedder=None, clock=clock) as rc:
            memory = rc.user("maya").memory
            one, other = [(await memory.create_space()).id for _ in range(2)]
            left = [n for n in range(len(begins)) if n not in gone]
            ids: dict[str, list[str]] = {one: [], other: []}
            for n, day in enumerate(begins):
                if moves:
                    clock.advance(HOUR)
                for space, chain in ids.items():
                    if space == other and n not in left:
                        continue
                    given: dict[str, Any] = {"text": f"Lives at {n}.", "valid_from": NOON + day * DAY}
                    if (length := lengths[n]) is not None:
                        given["valid_to"] = NOON + (day + length) * DAY
                    if chain:
                        new_atom = await memory.supersede_atom(chain[-1], **given)
                    else:
                        new_atom = await memory.add_atom(space, **given)
                    chain.append(new_atom.id)
                if n == len(begins) // 2:  # held while it changes
                    await memory.recall_by_topic(one, "Lives")
            for n in gone:
                if n < len(begins):
                    await memory.delete_atom(ids[one][n])

            async def told(space: str, **kwargs: Any) -> list[set[str]]:
                listed = await memory.list_atoms(space, **kwargs)
                recalled = await memory.recall_by_topic(space, "Lives at", 1000, **kwargs)
                return [{atom.text for atom in listed}, {atom.text for atom in recalled.atoms}]

            for known_at in (None, *(NOON + hours * HOUR for hours in range(len(begins) + 1))):
                for day in sorted({-6, *begins, *(day - 1 for day in begins), 8, 36}):
                    asked = {"valid_at": NOON + day * DAY, "known_at": known_at}
                    assert await told(one, **asked) == await told(other, **asked), (day, known_at)
            assert await told(one) == await told(other)
            twins: dict[str | None, str | None] = {None: None}
            twins.update(zip((ids[one][n] for n in left), ids[other], strict=True))
            for n, id in zip(left, ids[other], strict=True):
                atom, twin = await memory.get_atom(ids[one][n]), await memory.get_atom(id)
                assert atom is not None
                assert twin is not None
                assert (atom.valid_to, atom.superseded_at) == (twin.valid_to, twin.superseded_at)
                assert (twins[atom.supersedes], twins[atom.superseded_by]) == (twin.supersedes, twin.superseded_by)

    asyncio.run(run())


texts_of_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
atoms = st.fixed_dictionaries(
    {
        "text": texts_of_words,
        "importance": st.integers(1, 5),
        "valid_from": days.map(lambda day: NOON + day * DAY),
        "category": st.sampled_from(["a", "b"]).map(lambda name: {"name": name, "kind": "EPISODE"}),
        "source_conversation_id": st.sampled_from([None, "c1", "c2"]),
    }
)
steps = st.one_of(
    st.tuples(st.just("add"), atoms, st.sampled_from([None, 0, 1])),
    st.tuples(st.just("supersede"), st.integers(0, 20), texts_of_words, days),
    st.tuples(st.sampled_from(["archive", "restore", "delete"]), st.integers(0, 20)),
    st.tuples(st.just("merge"), st.just(0), st.just(1)),
)
questions = st.fixed_dictionaries(
    {"query": texts_of_words},
    optional={
        "valid_at": days.map(lambda day: NOON + day * DAY),
        "known_at": st.integers(0, 40).map(lambda hours: NOON + hours * HOUR),
        "category_names": st.sampled_from([["a"], ["a", "b"]]),
        "min_importance": st.integers(1, 5),
        "include_archived": st.booleans(),
        "neighbours": st.integers(0, 3),
        "now": st.integers(0, 60).map(lambda day: NOON + day * DAY),
    },
)


class Replica:
    """One store, on which the same is done as on the other; numbers stand for ids."""

    def __init__(self, rc: Tellback, user: str, clock: Clock) -> None:
        self.memory = rc.user(user).memory
        self.clock = clock
        self.ids: list[str] = []

    async def begin(self) -> None:
        self.space = (await self.memory.create_space()).id
        self.people = [(await self.memory.create_entity(self.space, "PERSON", name)).id for name in ("Ann", "Bob")]

    async def do(self, step: tuple[Any, ...]) -> None:
        kind, *given = step
        self.clock.advance(HOUR)
        try:
            if kind == "add":
                atom, about = given
                linked = [] if about is None else [self.people[about]]
                self.ids.append((await self.memory.add_atom(self.space, **atom, entity_ids=linked)).id)
            elif kind == "merge":
                await self.memory.merge_entities(*self.people)
            elif given[0] < len(self.ids):
                id = self.ids[given[0]]
                if kind == "supersede":
                    begins = NOON + given[2] * DAY
                    self.ids.append((await self.memory.supersede_atom(id, given[1], valid_from=begins)).id)
                else:
                    await getattr(self.memory, f"{kind}_atom")(id)
        except (AtomSupersededError, NotFoundError):
            pass

    async def answers(self, question: dict[str, Any]) -> list[tuple[str, int, list[Any]]]:
        """What is recalled, in every mode, with numbers for ids."""
        numbers = {id: number for number, id in enumerate(self.ids)}
        query = question["query"]
        common = {key: question[key] for key in ("known_at", "now", "category_names") if key in question}
        results = [
            await self.memory.recall_by_topic(self.space, limit=1000, **question),
            await self.memory.recall_by_topic(self.space, limit=2, **question),
            await self.memory.recall_by_entity(self.space, query.split()[0], 1000, **common),
            await self.memory.recall_timeline(self.space, query=query, limit=1000, **common),
            await self.memory.recall_timeline(self.space, "Ann", limit=3, **common),
        ]
        for result in results:
            assert_valid_result(result)
        return [
            (
                result.mode,
                result.total_candidates,
                [
                    (
                        numbers[hit.atom.id],
                        round(hit.score, 5),
                        hit.atom.text,
                        hit.atom.valid_to,
                        [numbers[atom.id] for atom in hit.context],
                        len(hit.atom.entity_ids),
                    )
                    for hit in result
                ],
            )
            for result in results
        ]


@pytest.mark.parametrize("embedder", ["static", None])
def test_both_kinds_of_store_recall_the_same_in_the_same_order(
    tmp_path: Path, ready_postgres_url: str, embedder: str | None
) -> None:
    with asyncio.Runner() as runner:
        clock = Clock()
        opened = [Tellback(url, embedder=embedder, clock=clock) for url in (str(tmp_path / "a.db"), ready_postgres_url)]
        for rc in opened:
            runner.run(rc.open())
        users = iter(range(10**6))

        @settings(unhurried, max_examples=12)
        @given(history=st.lists(steps, min_size=1, max_size=25), asked=st.lists(questions, min_size=1, max_size=4))
        def check(history: list[Any], asked: list[dict[str, Any]]) -> None:
            name = f"user {next(users)}"

            async def replay(rc: Tellback) -> list[Any]:
                clock.now = NOON
                replica = Replica(rc, name, clock)
                await replica.begin()
                for step in history:
                    await replica.do(step)
                clock.now = NOON + 60 * DAY
                return [await replica.answers(question) for question in asked]

            one, other = (runner.run(replay(rc)) for rc in opened)
            assert one == other

        try:
            check()
        finally:
            for rc in opened:
                runner.run(rc.close())


async def test_what_is_held_is_what_would_be_read_anew_after_an_import(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as rc:
        memory = rc.user("maya").memory
        space = await memory.create_space()
        for part in range(5):  # the larger ones are taken in by a thread
            texts = [f"{WORDS[n % 13]} {WORDS[n * part % 11]} {n}" for n in range(50 + 130 * part)]
            await memory.add_atoms(space.id, [{"text": text, "valid_from": NOON} for text in texts])
            warm = await memory.recall_by_topic(space.id, "a heron on the sofa", 5000)
            async with Tellback(path) as other:
                cold = await other.user("maya").memory.recall_by_topic(space.id, "a heron on the sofa", 5000)
            assert_same_result(warm, cold)
