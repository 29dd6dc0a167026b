"""A cached space that is kept up to date gives the same results as a newly loaded one, after any sequence of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, multiple, rule, run_state_machine_as_test

from tellback import Tellback
from tellback.errors import AtomSupersededError, ConversationClosedError, NotFoundError
from tellback.memory.memory import Memory
from tests.integration.memory.helpers import (
    DAY,
    NOON,
    Clock,
    HashEmbedder,
    assert_same_result,
    assert_valid_result,
    embedding_error,
)

WORDS = ["tea", "boat", "heron", "sofa", "cat", "Malta", "lamp", "kite", "bees", "figs", "rye", "Ann", "Bob"]
NAMES = ["Ann", "Bob", "Dr. Weber", "Old Bob"]

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
days = st.integers(-9, 9).map(lambda day: NOON + day * DAY)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def machine(path: Path, runner: asyncio.Runner) -> type[RuleBasedStateMachine]:
    class CachedSpaceMachine(RuleBasedStateMachine):
        """One Tellback stays open and recalls between changes; others are opened for comparison."""

        atoms = Bundle("atoms")
        entities = Bundle("entities")
        conversation_ids = Bundle("conversation_ids")

        def __init__(self) -> None:
            super().__init__()
            self.clock = Clock()
            self.embedder = HashEmbedder()
            self.tb = Tellback(path, embedder=self.embedder, clock=self.clock)
            runner.run(self.tb.open())
            self.user = self.tb.user("maya")
            self.space = runner.run(self.user.memory.create_space()).id

        def teardown(self) -> None:
            runner.run(self.tb.close())

        def run(self, awaitable: Any) -> Any:
            self.clock.advance()
            try:
                return runner.run(awaitable)
            except (AtomSupersededError, ConversationClosedError, NotFoundError):
                return None

        async def run_in_other_opening(self, operation: Any) -> Any:
            """Run an operation in another Tellback on the same file."""
            async with Tellback(path, embedder=self.embedder, clock=self.clock) as other:
                return await operation(other.user("maya").memory)

        def write(self, in_other_opening: bool, operation: Any) -> Any:
            return self.run(self.run_in_other_opening(operation) if in_other_opening else operation(self.user.memory))

        @rule(target=entities, name=st.sampled_from(NAMES), alias=st.sampled_from(NAMES))
        def create_entity(self, name: str, alias: str) -> Any:
            return self.run(self.user.memory.create_entity(self.space, "PERSON", name, aliases=[alias])).id

        @rule(
            target=atoms,
            text=words,
            valid_from=days,
            entity_ids=st.lists(entities, max_size=2),
            in_other_opening=st.booleans(),
        )
        def add(self, text: str, valid_from: Any, entity_ids: list[str], in_other_opening: bool) -> Any:
            def operation(memory: Memory) -> Any:
                return memory.add_atom(
                    self.space, text, valid_from=valid_from, entity_ids=entity_ids, source_conversation_id="c"
                )

            return self.write(in_other_opening, operation).id

        @rule(target=atoms, texts_with_times=st.lists(st.tuples(words, days), min_size=1, max_size=6))
        def add_many(self, texts_with_times: list[tuple[str, Any]]) -> Any:
            kind = {"name": "turn", "kind": "EPISODE"}
            atom_drafts = [
                {"text": f"Ann: {text}", "valid_from": valid_from, "source_conversation_id": "c", "category": kind}
                for text, valid_from in texts_with_times
            ]
            return multiple(*(atom.id for atom in self.run(self.user.memory.add_atoms(self.space, atom_drafts))))

        @rule(target=atoms, atom=atoms, text=words, valid_from=days, in_other_opening=st.booleans())
        def supersede(self, atom: str, text: str, valid_from: Any, in_other_opening: bool) -> Any:
            new_atom = self.write(
                in_other_opening, lambda memory: memory.supersede_atom(atom, text, valid_from=valid_from)
            )
            return multiple() if new_atom is None else new_atom.id

        @rule(atom=atoms, verb=st.sampled_from(["archive", "restore", "delete"]), in_other_opening=st.booleans())
        def change(self, atom: str, verb: str, in_other_opening: bool) -> None:
            self.write(in_other_opening, lambda memory: getattr(memory, f"{verb}_atom")(atom))

        @rule(first=entities, second=entities, in_other_opening=st.booleans())
        def merge(self, first: str, second: str, in_other_opening: bool) -> None:
            self.write(in_other_opening, lambda memory: memory.merge_entities(first, second))

        @rule(target=conversation_ids)
        def start_conversation(self) -> Any:
            return self.run(self.user.conversations.create("chat")).id

        @rule(id=conversation_ids, texts=st.lists(words, min_size=1, max_size=4))
        def append_messages(self, id: str, texts: list[str]) -> None:
            self.run(self.user.conversations.append_messages(id, [{"role": "user", "content": text} for text in texts]))
            self.run(self.user.memory.remember_conversation(self.space, id))

        @rule(text=words)
        def add_without_a_vector(self, text: str) -> None:
            self.embedder.error = embedding_error()
            self.run(self.user.memory.add_atom(self.space, text))
            self.embedder.error = None

        @rule(text=words)
        def embed_what_is_missing(self, text: str) -> None:
            self.run(self.tb.reembed())

        @rule(query=words, valid_at=st.one_of(st.none(), days), archived=st.booleans())
        def recall(self, query: str, valid_at: Any, archived: bool) -> None:
            async def answers(memory: Memory) -> list[Any]:
                kwargs: dict[str, Any] = {"now": self.clock.now, "include_archived": archived}
                return [
                    await memory.recall_by_topic(self.space, query, 1000, valid_at=valid_at, neighbours=2, **kwargs),
                    await memory.recall_by_entity(self.space, query.split()[0], 1000, **kwargs),
                    await memory.recall_timeline(self.space, query=query, limit=1000, from_=valid_at),
                    await memory.recall_timeline(self.space, "Bob", limit=1000, to=valid_at),
                ]

            cached = runner.run(answers(self.user.memory))
            # Missing vectors are backfilled in the background: both must see them, or neither.
            runner.run(self.tb.jobs.drain())
            cached = runner.run(answers(self.user.memory))
            fresh = runner.run(self.run_in_other_opening(answers))
            for cached_result, fresh_result in zip(cached, fresh, strict=True):
                assert_valid_result(cached_result)
                assert_same_result(cached_result, fresh_result)

    return CachedSpaceMachine


def test_a_cached_space_equals_a_newly_loaded_one_after_any_calls(tmp_path: Path, loop: asyncio.Runner) -> None:
    example_settings = settings(
        max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine(tmp_path / "tellback.db", loop), settings=example_settings)
