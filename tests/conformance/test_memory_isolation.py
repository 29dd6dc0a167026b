"""No method reads or changes another user's memory, and every change emits an event; also with the synchronous API."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    multiple,
    rule,
    run_state_machine_as_test,
)

from tellback import NotFoundError, Tellback
from tellback.errors import AtomSupersededError, InvalidArgumentError
from tellback.memory.memory import Memory
from tellback.types.ids import new_id
from tests.integration.memory.helpers import count_events, texts

SCOPES = [(tenant, app, user) for tenant in "ab" for app in "ab" for user in "ab"]
Scoped = tuple[str, str, str]


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def machine(tb: Tellback, runner: asyncio.Runner) -> type[RuleBasedStateMachine]:
    scopes = st.sampled_from(SCOPES)
    owners: dict[str, Scoped] = {}

    class Isolation(RuleBasedStateMachine):
        """All users store texts that contain their scope, and try every existing id."""

        spaces = Bundle("spaces")
        atoms = Bundle("atoms")
        entities = Bundle("entities")
        bindings = Bundle("bindings")
        jobs = Bundle("jobs")

        def __init__(self) -> None:
            super().__init__()
            self.owners = owners  # data of earlier runs is still there
            self.namespace = new_id("ns")
            self.space_of: dict[str, str] = {}

        def memory(self, scope: Scoped) -> Memory:
            tenant, app, user = scope
            return tb.user(user, tenant_id=tenant, app_id=app).memory

        def run_checked(self, scope: Scoped, awaitable: Any, *ids: str | None) -> Any:
            """Run an operation. With an id of another user, the result must be as if the object did not exist."""
            if any(self.owners[id] != scope for id in ids if id is not None):
                with pytest.raises(NotFoundError):
                    runner.run(awaitable)
                return None
            try:
                return runner.run(awaitable)
            except (AtomSupersededError, InvalidArgumentError, NotFoundError):
                return None

        def register(self, scope: Scoped, record: Any) -> str | None:
            if record is None:
                return None
            self.owners[record.id] = scope
            self.space_of[record.id] = getattr(record, "memory_space_id", record.id)
            return str(record.id)

        def assert_own(self, scope: Scoped, found: Any) -> None:
            for atom in found or ():
                assert atom.text == repr(scope)
                assert (atom.tenant_id, atom.app_id, atom.user_id) == scope

        @rule(target=spaces, scope=scopes, once=st.booleans())
        def create(self, scope: Scoped, once: bool) -> str | None:
            return self.register(scope, runner.run(self.memory(scope).create_space("x", once=once)))

        @rule(target=entities, scope=scopes, space=spaces)
        def name(self, scope: Scoped, space: str) -> str | None:
            creation = self.memory(scope).create_entity(space, "PERSON", "Ann", repr(scope))
            return self.register(scope, self.run_checked(scope, creation, space))

        @rule(target=atoms, scope=scopes, space=spaces, entity=st.one_of(st.none(), entities))
        def add(self, scope: Scoped, space: str, entity: str | None) -> str | None:
            addition = self.memory(scope).add_atom(space, repr(scope), entity_ids=[entity] if entity else [])
            return self.register(scope, self.run_checked(scope, addition, space, entity))

        @rule(target=atoms, scope=scopes, atom=atoms)
        def supersede(self, scope: Scoped, atom: str | None) -> str | None:
            if atom is None:
                return None
            return self.register(
                scope, self.run_checked(scope, self.memory(scope).supersede_atom(atom, repr(scope)), atom)
            )

        @rule(scope=scopes, atom=atoms, verb=st.sampled_from(["archive_atom", "restore_atom", "delete_atom"]))
        def change(self, scope: Scoped, atom: str | None, verb: str) -> None:
            if atom is not None:
                self.run_checked(scope, getattr(self.memory(scope), verb)(atom), atom)

        @rule(scope=scopes, one=entities, other=entities)
        def merge(self, scope: Scoped, one: str | None, other: str | None) -> None:
            if one is not None and other is not None:
                self.run_checked(scope, self.memory(scope).merge_entities(one, other), one, other)

        @rule(scope=scopes, atom=atoms, entity=st.one_of(st.none(), entities))
        def get(self, scope: Scoped, atom: str | None, entity: str | None) -> None:
            if atom is not None:
                assert (runner.run(self.memory(scope).get_atom(atom)) is None) == (self.owners[atom] != scope)
            if entity is not None:
                assert (runner.run(self.memory(scope).get_entity(entity)) is None) == (self.owners[entity] != scope)

        @rule(scope=scopes, space=spaces, entity=st.one_of(st.none(), entities))
        def recall(self, scope: Scoped, space: str, entity: str | None) -> None:
            memory = self.memory(scope)
            assert (runner.run(memory.get_space(space)) is None) == (self.owners[space] != scope)
            for awaitable in (
                memory.recall_by_topic(space, "a b Ann", 100, include_archived=True, neighbours=9),
                memory.recall_by_entity(space, "Ann", 100, include_archived=True),
                memory.recall_timeline(space, query="a b", limit=100),
                memory.recall_timeline(space),
            ):
                result = self.run_checked(scope, awaitable, space)
                if result is not None:
                    self.assert_own(scope, result.atoms)
                    self.assert_own(scope, [atom for hit in result for atom in hit.context])
            if entity is not None:
                self.assert_own(scope, self.run_checked(scope, memory.recall_by_entity(space, entity), space, entity))
            for status in ("ACTIVE", "ARCHIVED", "DELETED"):
                self.assert_own(scope, self.run_checked(scope, memory.list_atoms(space, status=status), space))
            for found in self.run_checked(scope, memory.search_entities(space), space) or ():
                assert found.description == repr(scope)
            by_name_result = self.run_checked(scope, memory.find_entity_by_name(space, None, "ann"), space)
            assert by_name_result is None or by_name_result.description == repr(scope)
            listed = {(each.tenant_id, each.app_id, each.user_id) for each in runner.run(memory.list_spaces())}
            assert listed <= {scope}

        @rule(target=bindings, scope=scopes, space=spaces, user=st.sampled_from("ab*"))
        def bind(self, scope: Scoped, space: str, user: str) -> str | None:
            conversation_scope = {"namespace": self.namespace, "user_id": user}
            binding = self.run_checked(scope, self.memory(scope).create_binding(conversation_scope, [space]), space)
            if binding is None:
                return None
            self.owners[binding.id] = scope
            return str(binding.id)

        @rule(scope=scopes, binding=bindings, enabled=st.sampled_from([True, False, None]))
        def change_binding(self, scope: Scoped, binding: str | None, enabled: bool | None) -> None:
            if binding is not None:
                memory = self.memory(scope)
                change = (
                    memory.delete_binding(binding) if enabled is None else memory.update_binding(binding, None, enabled)
                )
                self.run_checked(scope, change, binding)
            for seen in runner.run(self.memory(scope).list_bindings()):
                assert (seen.tenant_id, seen.app_id) == scope[:2]
                user_ids = {each.user_id for each in seen.conversation_scope}
                assert seen.created_by == scope[2] or user_ids & {scope[2], "*"}

        @rule(target=jobs, scope=scopes)
        def create_jobs(self, scope: Scoped) -> MultipleResults[str]:
            tenant, app, user = scope
            conversations = tb.user(user, tenant_id=tenant, app_id=app).conversations
            conversation = runner.run(conversations.create(self.namespace))
            runner.run(conversations.append_user_message(conversation.id, repr(scope)))
            runner.run(conversations.close(conversation.id))
            jobs = runner.run(tb.store.jobs.dispatch(window_length=100, limit=100, now=tb.clock())).jobs
            for job in jobs:
                assert (job.tenant_id, job.app_id, job.user_id) == scope
                assert job.conversation_id == conversation.id
                assert self.owners[job.binding_id][:2] == scope[:2]
                assert self.owners.setdefault(job.memory_space_id, scope) == scope
                self.owners[job.id] = scope
            return multiple(*(job.id for job in jobs))

        @rule(scope=scopes, job=jobs, verb=st.sampled_from(["retry", "cancel"]))
        def run_job(self, scope: Scoped, job: str, verb: str) -> None:
            jobs, own_scope = tb.store.jobs, tb.user(scope[2], tenant_id=scope[0], app_id=scope[1]).scope
            assert (runner.run(jobs.get(own_scope, job)) is None) == (self.owners[job] != scope)
            self.run_checked(scope, getattr(jobs, verb)(own_scope, job, now=tb.clock()), job)
            assert {self.owners[each.id] for each in runner.run(self.memory(scope).list_jobs())} <= {scope}

    return Isolation


def test_no_sequence_of_calls_crosses_a_scope(url: str, loop: asyncio.Runner) -> None:
    tb = Tellback(url, embedder=None, worker=False)
    loop.run(tb.open())
    try:
        example_settings = settings(
            max_examples=6 if url.startswith("postgresql") else 15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine(tb, loop), settings=example_settings)
    finally:
        loop.run(tb.close())


async def test_every_change_emits_one_event_and_a_failed_call_emits_none(tb: Tellback) -> None:
    memory = tb.user("maya", tenant_id="acme").memory
    space = await memory.create_space()
    first, second = await memory.add_atoms(space.id, [{"text": "Likes tea."}, {"text": "Likes rye."}])
    third = await memory.supersede_atom(first.id, "Likes coffee.")
    ann, bob = [await memory.create_entity(space.id, "PERSON", name) for name in ("Ann", "Bob")]
    for _ in range(2):
        await memory.archive_atom(second.id)
    for _ in range(2):
        await memory.restore_atom(second.id)
    await memory.delete_atom(second.id)
    for _ in range(2):
        await memory.merge_entities(ann.id, bob.id)
    await memory.recall_by_topic(space.id, "tea")
    await memory.create_space(once=True)
    failing: list[tuple[type[Exception], Any]] = [
        (NotFoundError, memory.delete_atom(second.id)),
        (AtomSupersededError, memory.supersede_atom(first.id, "Likes water.")),
        (NotFoundError, memory.add_atom(space.id, "Likes water.", entity_ids=["ent_x"])),
        (NotFoundError, memory.supersede_atom(third.id, "Likes water.", entity_ids=["ent_x"])),
        (NotFoundError, memory.merge_entities(ann.id, "ent_x")),
        (NotFoundError, memory.create_entity("ms_x", "PERSON", "Carl")),
        (InvalidArgumentError, memory.add_atom(space.id, "")),
    ]
    for error, awaitable in failing:
        with pytest.raises(error):
            await awaitable
    unchanged = await memory.get_atom(third.id)
    assert unchanged == third
    await memory.delete_space(space.id)
    with pytest.raises(NotFoundError):
        await memory.delete_space(space.id)
    events = await tb.events.read(limit=1000, tenant_id="acme")
    assert [(event.type, event.subject_id) for event in events] == [
        ("space.created", space.id),
        ("atom.added", first.id),
        ("atom.added", second.id),
        ("atom.added", third.id),
        ("atom.superseded", first.id),
        ("entity.created", ann.id),
        ("entity.created", bob.id),
        ("atom.archived", second.id),
        ("atom.restored", second.id),
        ("atom.deleted", second.id),
        ("entity.merged", bob.id),
        ("space.deleted", space.id),
    ]
    assert {event.scope.user_id for event in events} == {"maya"}
    assert len(events) == await count_events(tb)


def test_the_synchronous_handles_wait_for_results(url: str) -> None:
    with Tellback(url) as tb:
        maya = tb.user("maya")
        memory = maya.memory
        space = memory.create_space()
        ann = memory.create_entity(space.id, "PERSON", "Ann")
        tea = memory.add_atom(space.id, "Ann likes tea.", entity_ids=[ann.id])
        memory.add_atoms(space.id, [{"text": "Ann has a boat."}])
        memory.supersede_atom(tea.id, "Ann likes coffee.")
        assert texts(memory.recall_by_topic(space.id, "What does Ann like?"))[0] == "Ann likes coffee."
        assert texts(memory.recall_by_entity(space.id, "Ann")) == ["Ann likes coffee.", "Ann has a boat."]
        assert len(memory.recall_timeline(space.id)) == 3
        conversation = maya.conversations.create("chat")
        maya.conversations.append_user_message(conversation.id, "I keep bees.")
        assert texts(memory.remember_conversation(space.id, conversation.id)) == ["User: I keep bees."]
        context = maya.working_context.build(conversation.id, space.id, "Who likes coffee?", recent_turns=0)
        assert "Ann likes coffee." in context.context_block
        with pytest.raises(NotFoundError):
            memory.archive_atom("atom_x")
        tb.jobs.drain()
        progress: list[int] = []
        assert tb.reembed(progress.append) == 0
