"""Properties of any history: one valid atom of a chain at any time, and the same recall on all stores."""

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
no_deadline = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(no_deadline, max_examples=25)
@given(
    start_days=st.lists(days, min_size=1, max_size=8),
    wait_hours=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    statuses=st.booleans(),
)
def test_one_atom_of_a_chain_is_valid_at_any_valid_time_and_known_time(
    start_days: list[int], wait_hours: list[int], statuses: bool
) -> None:
    async def run() -> None:
        clock = Clock()
        async with Tellback(":memory:", embedder=None, clock=clock) as tb:
            memory = tb.user("maya").memory
            space = await memory.create_space()
            other = await memory.add_atom(space.id, "Something else.", valid_from=NOON - 100 * DAY)
            chain = [await memory.add_atom(space.id, "Lives at 0.", valid_from=NOON + start_days[0] * DAY)]
            known_times = [clock.now]
            for n, day in enumerate(start_days[1:], 1):
                clock.advance(wait_hours[n - 1] * HOUR)  # 0 hours: both at the same time
                if statuses:
                    await memory.archive_atom(chain[-1].id)
                    await memory.restore_atom(chain[-1].id)
                moment = NOON + day * DAY
                chain.append(await memory.supersede_atom(chain[-1].id, f"Lives at {n}.", valid_from=moment))
                known_times.append(clock.now)
            clock.advance(50 * DAY)
            for known_at in {*known_times, known_times[-1] + HOUR, known_times[0] + HOUR}:
                learned = [n for n in range(len(chain)) if known_times[n] <= known_at]
                for day in sorted({-21, *start_days, *(day + 1 for day in start_days), 30}):
                    valid_at = NOON + day * DAY
                    started = [n for n in learned if start_days[n] <= day]
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


@settings(no_deadline, max_examples=30)
@given(
    start_days=st.lists(st.integers(-5, 15), min_size=2, max_size=7),
    lengths=st.lists(st.none() | st.integers(1, 20), min_size=7, max_size=7),
    deleted_numbers=st.lists(st.integers(0, 6), min_size=1, max_size=6, unique=True),
    is_clock_moving=st.booleans(),
)
def test_a_chain_without_deleted_atoms_equals_one_that_never_had_them(
    start_days: list[int], lengths: list[int | None], deleted_numbers: list[int], is_clock_moving: bool
) -> None:
    async def run() -> None:
        clock = Clock()
        async with Tellback(":memory:", embedder=None, clock=clock) as tb:
            memory = tb.user("maya").memory
            full_space, expected_space = [(await memory.create_space()).id for _ in range(2)]
            remaining_numbers = [n for n in range(len(start_days)) if n not in deleted_numbers]
            ids: dict[str, list[str]] = {full_space: [], expected_space: []}
            for n, day in enumerate(start_days):
                if is_clock_moving:
                    clock.advance(HOUR)
                for space, chain in ids.items():
                    if space == expected_space and n not in remaining_numbers:
                        continue
                    fields: dict[str, Any] = {"text": f"Lives at {n}.", "valid_from": NOON + day * DAY}
                    if (length := lengths[n]) is not None:
                        fields["valid_to"] = NOON + (day + length) * DAY
                    if chain:
                        new_atom = await memory.supersede_atom(chain[-1], **fields)
                    else:
                        new_atom = await memory.add_atom(space, **fields)
                    chain.append(new_atom.id)
                if n == len(start_days) // 2:  # cached while it changes
                    await memory.recall_by_topic(full_space, "Lives")
            for n in deleted_numbers:
                if n < len(start_days):
                    await memory.delete_atom(ids[full_space][n])

            async def visible_texts(space: str, **kwargs: Any) -> list[set[str]]:
                listed = await memory.list_atoms(space, **kwargs)
                recalled = await memory.recall_by_topic(space, "Lives at", 1000, **kwargs)
                return [{atom.text for atom in listed}, {atom.text for atom in recalled.atoms}]

            for known_at in (None, *(NOON + hours * HOUR for hours in range(len(start_days) + 1))):
                for day in sorted({-6, *start_days, *(day - 1 for day in start_days), 8, 36}):
                    times = {"valid_at": NOON + day * DAY, "known_at": known_at}
                    assert await visible_texts(full_space, **times) == await visible_texts(expected_space, **times), (
                        day,
                        known_at,
                    )
            assert await visible_texts(full_space) == await visible_texts(expected_space)
            twin_ids: dict[str | None, str | None] = {None: None}
            twin_ids.update(zip((ids[full_space][n] for n in remaining_numbers), ids[expected_space], strict=True))
            for n, id in zip(remaining_numbers, ids[expected_space], strict=True):
                atom, twin = await memory.get_atom(ids[full_space][n]), await memory.get_atom(id)
                assert atom is not None
                assert twin is not None
                assert (atom.valid_to, atom.superseded_at) == (twin.valid_to, twin.superseded_at)
                assert (twin_ids[atom.supersedes], twin_ids[atom.superseded_by]) == (
                    twin.supersedes,
                    twin.superseded_by,
                )

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
    """One of two stores on which the same operations run; numbers replace ids."""

    def __init__(self, tb: Tellback, user: str, clock: Clock) -> None:
        self.memory = tb.user(user).memory
        self.clock = clock
        self.ids: list[str] = []

    async def create_space(self) -> None:
        self.space = (await self.memory.create_space()).id
        self.people = [(await self.memory.create_entity(self.space, "PERSON", name)).id for name in ("Ann", "Bob")]

    async def apply_step(self, step: tuple[Any, ...]) -> None:
        kind, *step_args = step
        self.clock.advance(HOUR)
        try:
            if kind == "add":
                atom, person_number = step_args
                linked = [] if person_number is None else [self.people[person_number]]
                self.ids.append((await self.memory.add_atom(self.space, **atom, entity_ids=linked)).id)
            elif kind == "merge":
                await self.memory.merge_entities(*self.people)
            elif step_args[0] < len(self.ids):
                id = self.ids[step_args[0]]
                if kind == "supersede":
                    valid_from = NOON + step_args[2] * DAY
                    self.ids.append((await self.memory.supersede_atom(id, step_args[1], valid_from=valid_from)).id)
                else:
                    await getattr(self.memory, f"{kind}_atom")(id)
        except (AtomSupersededError, NotFoundError):
            pass

    async def answers(self, question: dict[str, Any]) -> list[tuple[str, int, list[Any]]]:
        """Return the results of every recall mode, with numbers instead of ids."""
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
def test_all_stores_recall_the_same_in_the_same_order(
    tmp_path: Path, ready_postgres_url: str, embedder: str | None
) -> None:
    with asyncio.Runner() as runner:
        clock = Clock()
        tellbacks = [
            Tellback(url, embedder=embedder, clock=clock) for url in (str(tmp_path / "a.db"), ready_postgres_url)
        ]
        for tb in tellbacks:
            runner.run(tb.open())
        users = iter(range(10**6))

        @settings(no_deadline, max_examples=12)
        @given(
            history=st.lists(steps, min_size=1, max_size=25), question_list=st.lists(questions, min_size=1, max_size=4)
        )
        def check(history: list[Any], question_list: list[dict[str, Any]]) -> None:
            name = f"user {next(users)}"

            async def replay(tb: Tellback) -> list[Any]:
                clock.now = NOON
                replica = Replica(tb, name, clock)
                await replica.create_space()
                for step in history:
                    await replica.apply_step(step)
                clock.now = NOON + 60 * DAY
                return [await replica.answers(question) for question in question_list]

            sqlite_answers, postgres_answers = (runner.run(replay(tb)) for tb in tellbacks)
            assert sqlite_answers == postgres_answers

        try:
            check()
        finally:
            for tb in tellbacks:
                runner.run(tb.close())


async def test_a_cached_space_equals_a_newly_loaded_one_after_an_import(tmp_path: Path) -> None:
    path = tmp_path / "tellback.db"
    async with Tellback(path) as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        for part in range(5):  # larger changes are applied in a thread
            texts = [f"{WORDS[n % 13]} {WORDS[n * part % 11]} {n}" for n in range(50 + 130 * part)]
            await memory.add_atoms(space.id, [{"text": text, "valid_from": NOON} for text in texts])
            warm = await memory.recall_by_topic(space.id, "a heron on the sofa", 5000)
            async with Tellback(path) as other:
                cold = await other.user("maya").memory.recall_by_topic(space.id, "a heron on the sofa", 5000)
            assert_same_result(warm, cold)
