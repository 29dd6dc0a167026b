"""The contract of bindings, and of dispatching extraction jobs from events."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tellback.errors import NotFoundError
from tellback.stores import JobEnd, Store, TurnDraft
from tellback.testing.stores.factories import (
    MAYA,
    NOON,
    OTHER_SCOPES,
    append_drafts,
    append_turns,
    assert_not_found,
    begin_turn,
    claim_available_job,
    dispatch_all,
    job_windows,
    make_binding,
    make_claim,
    make_closed_conversation,
    make_conversation,
    make_draft,
    make_space,
    plan_jobs,
    read_all_events,
    read_event_types,
)
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ConversationScope, ExtractionPolicy, JobStatus
from tellback.types.memory import MemorySpace

OMAR = OTHER_SCOPES[0]

EVERY_TWO = ExtractionPolicy(windowed=True, window_turns=2)
ONLY_EVERY_TWO = ExtractionPolicy(on_conversation_closed=False, windowed=True, window_turns=2)


class BindingContract:
    """Tests of `Bindings`, and of the conversations they match."""

    async def test_a_binding_is_returned_as_created(self, store: Store) -> None:
        space, other = await make_space(store), await make_space(store, name="Ünïcode 🦜")
        policy = ExtractionPolicy("v7.β", on_conversation_closed=False, windowed=True, window_turns=3)
        about = (ConversationScope("chat", "maya"), ConversationScope("*", "*"))
        made = await make_binding(store, space, other, scopes=about, extraction_policy=policy, enabled=False)
        assert await store.bindings.get(MAYA, made.id) == made
        assert await store.bindings.list_bindings(MAYA) == [made]
        assert await store.bindings.get(MAYA, "bind_unknown") is None

    async def test_a_user_sees_its_own_and_matching_bindings(self, store: Store, space: MemorySpace) -> None:
        own = await make_binding(store, space, scopes=[ConversationScope("chat", "maya")])
        of_omar = await make_binding(
            store, space, scopes=[ConversationScope("a", "zoe"), ConversationScope("b", "omar")]
        )
        of_all = await make_binding(store, space, scopes=[ConversationScope("chat", "*")])
        assert await store.bindings.list_bindings(MAYA) == [own, of_omar, of_all]
        unnamed: dict[str, Any] = {"created_by": None, "memory_space_ids": ()}
        seen = replace(of_omar, conversation_scope=(ConversationScope("b", "omar"),), **unnamed)
        assert await store.bindings.list_bindings(OMAR) == [seen, replace(of_all, **unnamed)]
        assert await store.bindings.get(OMAR, own.id) is None
        assert await store.bindings.get(OMAR, of_omar.id) == seen
        assert await store.bindings.list_bindings(None) == [own, of_omar, of_all]
        assert await store.bindings.list_bindings(None, tenant_id="globex") == []
        assert await store.bindings.get(None, of_omar.id) == of_omar
        for stranger in OTHER_SCOPES[1:]:
            assert await store.bindings.list_bindings(stranger) == []
            for binding in (own, of_omar, of_all):
                assert await store.bindings.get(stranger, binding.id) is None

    async def test_only_the_creator_or_the_platform_can_change_a_binding(self, store: Store) -> None:
        space = await make_space(store)
        made = await make_binding(store, space)
        orphan = await make_binding(store, space, created_by=None)
        for stranger, id in [*((stranger, made.id) for stranger in OTHER_SCOPES), (MAYA, orphan.id), (OMAR, orphan.id)]:
            await assert_not_found(
                store.bindings.update(stranger, id, policy=None, enabled=False, now=NOON),
                store.bindings.delete(stranger, id, now=NOON),
            )
        assert await store.bindings.get(MAYA, made.id) == made
        changed = await store.bindings.update(None, orphan.id, policy=None, enabled=False, now=NOON)
        assert not changed.enabled
        await store.bindings.delete(None, orphan.id, now=NOON)
        assert await store.bindings.list_bindings(MAYA) == [made]
        await assert_not_found(store.bindings.delete(None, orphan.id, now=NOON))

    async def test_an_update_keeps_other_fields_and_writes_one_event(self, store: Store) -> None:
        made = await make_binding(store, await make_space(store))
        policy = ExtractionPolicy("v2", windowed=True, window_turns=2)
        first = await store.bindings.update(MAYA, made.id, policy=policy, enabled=None, now=NOON)
        assert first == replace(made, extraction_policy=policy, updated_at=NOON)
        second = await store.bindings.update(MAYA, made.id, policy=None, enabled=False, now=NOON)
        assert second == replace(first, enabled=False)
        again = await store.bindings.update(MAYA, made.id, policy=policy, enabled=False, now=utc_now())
        assert again == second == await store.bindings.get(MAYA, made.id)
        await store.bindings.delete(MAYA, made.id, now=NOON)
        types = await read_event_types(store, made.id)
        assert types == ["binding.created", "binding.updated", "binding.updated", "binding.deleted"]
        await assert_not_found(
            store.bindings.update(MAYA, made.id, policy=None, enabled=True, now=NOON),
            store.bindings.delete(MAYA, made.id, now=NOON),
        )

    async def test_scopes_select_conversations(self, store: Store, space: MemorySpace) -> None:
        one = await make_binding(store, space, scopes=[ConversationScope("chat", "maya")])
        two = await make_binding(store, space, scopes=[ConversationScope("work", "*"), ConversationScope("*", "omar")])
        matched: dict[tuple[str, str], set[str]] = {}
        for scope in (MAYA, OMAR):
            for namespace in ("chat", "work", "play"):
                await make_closed_conversation(store, scope, namespace=namespace)
                jobs = await dispatch_all(store)
                assert all(job.scope == scope for job in jobs)
                matched[scope.user_id, namespace] = {job.binding_id for job in jobs}
        assert matched == {
            ("maya", "chat"): {one.id},
            ("maya", "work"): {two.id},
            ("maya", "play"): set(),
            ("omar", "chat"): {two.id},
            ("omar", "work"): {two.id},
            ("omar", "play"): {two.id},
        }

    async def test_a_binding_of_another_tenant_or_app_never_matches(self, store: Store) -> None:
        for stranger in OTHER_SCOPES[1:]:
            await make_binding(store, await make_space(store, stranger), scope=stranger)
        await make_closed_conversation(store)
        assert await dispatch_all(store) == []
        assert await store.memories.spaces(MAYA) == []

    async def test_a_paused_or_deleted_binding_creates_no_jobs(self, store: Store, space: MemorySpace) -> None:
        paused, deleted = await make_binding(store, space), await make_binding(store, space)
        await store.bindings.update(MAYA, paused.id, policy=None, enabled=False, now=NOON)
        await make_closed_conversation(store)
        await store.bindings.delete(MAYA, deleted.id, now=NOON)
        assert await dispatch_all(store) == []
        await store.bindings.update(MAYA, paused.id, policy=None, enabled=True, now=NOON)
        assert await dispatch_all(store) == [], "events while it was paused are skipped"
        conversation = await make_closed_conversation(store)
        assert [(job.conversation_id, job.binding_id) for job in await dispatch_all(store)] == [
            (conversation.id, paused.id)
        ]

    async def test_a_binding_applies_to_events_after_its_creation(self, store: Store, space: MemorySpace) -> None:
        await make_closed_conversation(store)
        half = await make_conversation(store)
        await append_turns(store, half.id)
        early = await make_binding(store, space)
        await append_turns(store, half.id)
        await store.conversations.close(MAYA, half.id, now=utc_now())
        late = await make_binding(store, space)
        jobs = await dispatch_all(store)
        assert [(job.conversation_id, job.binding_id, job.from_seq, job.to_seq) for job in jobs] == [
            (half.id, early.id, 1, 4)
        ]
        after = await make_closed_conversation(store)
        assert {(job.conversation_id, job.binding_id) for job in await dispatch_all(store)} == {
            (after.id, early.id),
            (after.id, late.id),
        }

    async def test_the_creators_messages_go_to_the_spaces_with_those_ids(self, store: Store) -> None:
        namesake, meant = await make_space(store), await make_space(store)
        assert namesake.name == meant.name
        await make_binding(store, meant)
        await make_closed_conversation(store)
        assert [job.memory_space_id for job in await dispatch_all(store)] == [meant.id]

    async def test_other_users_messages_go_to_their_own_spaces_of_the_same_names(self, store: Store) -> None:
        notes, diary = await make_space(store, name="notes"), await make_space(store, name="diary")
        await make_binding(store, notes, diary)
        theirs = await make_space(store, OMAR, name="notes")
        for _ in range(2):
            await make_closed_conversation(store, OMAR)
            jobs = await dispatch_all(store)
            spaces = {space.name: space.id for space in await store.memories.spaces(OMAR)}
            assert {job.memory_space_id for job in jobs} == {theirs.id, spaces["diary"]}
            assert len(spaces) == len(await store.memories.spaces(OMAR)) == 2
            assert all(job.scope == OMAR for job in jobs)
        assert await store.memories.spaces(MAYA) == [notes, diary]

    async def test_concurrent_dispatches_create_a_bindings_space_once(self, store: Store, second: Store) -> None:
        await make_binding(store, await make_space(store, name="notes"))
        conversations = [await make_closed_conversation(store, OMAR) for _ in range(4)]
        makers = [
            opened.jobs.plan(OMAR, conversation.id, version=None, space_id=None, window_length=100, now=utc_now())
            for conversation in conversations
            for opened in (store, second)
        ]
        await asyncio.gather(dispatch_all(store), dispatch_all(second), *makers)
        [made] = await store.memories.spaces(OMAR)
        jobs = await store.jobs.list_jobs(OMAR)
        assert {job.memory_space_id for job in jobs} == {made.id}
        assert sorted(job.conversation_id for job in jobs) == [conversation.id for conversation in conversations]

    async def test_a_new_space_replaces_a_deleted_one_of_the_same_name(self, store: Store) -> None:
        space = await make_space(store, name="notes")
        await make_binding(store, space)
        await store.memories.delete_space(MAYA, space.id, now=NOON)
        await make_closed_conversation(store)
        [job] = await dispatch_all(store)
        [found] = await store.memories.spaces(MAYA, name="notes")
        assert job.memory_space_id == found.id != space.id


class DispatchContract:
    """Tests of creating jobs with `JobLog`."""

    async def test_each_binding_and_space_gets_a_job(self, store: Store) -> None:
        spaces = [await make_space(store, name=name) for name in ("a", "b")]
        bindings = [await make_binding(store, *spaces) for _ in range(2)]
        conversation = await make_closed_conversation(store)
        jobs = await dispatch_all(store)
        assert {(job.binding_id, job.memory_space_id) for job in jobs} == {
            (binding.id, space.id) for binding in bindings for space in spaces
        }
        assert len(jobs) == 4
        for job in jobs:
            assert (job.conversation_id, job.from_seq, job.to_seq) == (conversation.id, 1, 2)
            assert (job.status, job.attempts, job.extraction_version) == (JobStatus.QUEUED, 0, "v1")
            assert await store.jobs.get(MAYA, job.id) == await store.jobs.get(None, job.id) == job
            for stranger in OTHER_SCOPES:
                assert await store.jobs.get(stranger, job.id) is None
        queued = await read_all_events(store, "extraction.queued")
        assert [(event.subject_id, event.scope) for event in queued] == [(job.id, MAYA) for job in jobs]

    async def test_dispatched_events_are_not_dispatched_again(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        assert not await store.jobs.has_pending_events()
        await make_conversation(store)
        assert not await store.jobs.has_pending_events()
        await make_closed_conversation(store)
        assert await store.jobs.has_pending_events()
        assert len(await dispatch_all(store)) == 1
        assert not await store.jobs.has_pending_events()
        assert await dispatch_all(store) == []
        assert len(await store.jobs.list_jobs(MAYA)) == 1

    async def test_no_events_are_pending_without_bindings(self, store: Store) -> None:
        await make_closed_conversation(store)
        assert not await store.jobs.has_pending_events()
        assert await dispatch_all(store) == []

    async def test_messages_are_pending_only_for_windowed_bindings(self, store: Store, space: MemorySpace) -> None:
        binding = await make_binding(store, space)
        conversation = await make_conversation(store)
        await append_turns(store, conversation.id, 3)
        assert not await store.jobs.has_pending_events()
        await store.bindings.update(MAYA, binding.id, policy=EVERY_TWO, enabled=None, now=utc_now())
        await append_turns(store, conversation.id)
        assert await store.jobs.has_pending_events()
        assert job_windows(await dispatch_all(store)) == [(1, 4), (5, 8)]
        assert not await store.jobs.has_pending_events()

    async def test_dispatching_in_small_batches_creates_the_same_jobs(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversations = [await make_closed_conversation(store) for _ in range(7)]
        first = await store.jobs.dispatch(window_length=100, limit=2, now=utc_now())
        assert [job.conversation_id for job in first.jobs] == [conversation.id for conversation in conversations[:2]]
        assert first.has_more
        rest = await dispatch_all(store, limit=2)
        assert [job.conversation_id for job in rest] == [conversation.id for conversation in conversations[2:]]

    async def test_concurrent_dispatches_create_each_job_once(self, store: Store, second: Store) -> None:
        await make_binding(store, await make_space(store), extraction_policy=EVERY_TWO)

        async def hold_conversation(n: int) -> str:
            opened = (store, second)[n % 2]
            made = await make_conversation(opened)
            await append_turns(opened, made.id, 3)
            await opened.conversations.close(MAYA, made.id, now=utc_now())
            return made.id

        async def look(opened: Store) -> None:
            for _ in range(4):
                await dispatch_all(opened, limit=5)

        conversations = [asyncio.create_task(hold_conversation(n)) for n in range(6)]
        await asyncio.gather(*conversations, *(look(opened) for opened in (store, second, store, second)))
        await dispatch_all(second)
        jobs = await store.jobs.list_jobs(MAYA)
        assert sorted((job.conversation_id, job.from_seq, job.to_seq) for job in jobs) == sorted(
            (each.result(), *window) for each in conversations for window in ((1, 4), (5, 6))
        )

    async def test_windows_are_created_every_n_turns_and_on_closing(self, store: Store) -> None:
        await make_binding(store, await make_space(store), extraction_policy=EVERY_TWO)
        conversation = await make_conversation(store)
        seen = []
        for _ in range(5):
            await append_turns(store, conversation.id)
            seen.append(job_windows(await dispatch_all(store)))
        assert seen == [[], [(1, 4)], [], [(5, 8)], []]
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert job_windows(await dispatch_all(store)) == [(9, 10)]

    async def test_without_a_job_on_closing_the_last_turns_are_skipped(self, store: Store) -> None:
        await make_binding(store, await make_space(store), extraction_policy=ONLY_EVERY_TWO)
        await make_closed_conversation(store, turns=5)
        assert job_windows(await dispatch_all(store)) == [(1, 4), (5, 8)]

    async def test_a_window_has_at_least_one_turn(self, store: Store) -> None:
        policy = ExtractionPolicy(windowed=True, window_turns=0)
        await make_binding(store, await make_space(store), extraction_policy=policy)
        await make_closed_conversation(store, turns=2)
        assert job_windows(await dispatch_all(store)) == [(1, 2), (3, 4)]

    async def test_an_unfinished_turn_is_not_extracted(self, store: Store) -> None:
        await make_binding(store, await make_space(store), extraction_policy=ExtractionPolicy("v1", True, True, 1))
        conversation = await make_conversation(store)
        turn_id = new_id("turn")
        drafts = [
            make_draft("Weather?"),
            make_draft("", "assistant", stop_reason="tool_use"),
            make_draft("Sunny", "tool"),
            make_draft("Sunny!", "assistant", stop_reason="end_turn"),
        ]
        seen = []
        for draft in drafts:
            turn = TurnDraft(turn_id, [draft], starts=draft is drafts[0])
            await store.conversations.append(MAYA, conversation.id, [turn], now=utc_now())
            seen.append(job_windows(await dispatch_all(store)))
        assert seen == [[], [], [], [(1, 4)]]

    async def test_a_long_conversation_is_split_between_turns(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversation = await make_conversation(store)
        for length in (10, 10, 30, 10, 200, 10):
            await append_turns(store, conversation.id, text="x" * length)
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        jobs = await dispatch_all(store, length=100)
        assert job_windows(jobs) == [(1, 6), (7, 8), (9, 10), (11, 12)]
        assert [job.id for job in jobs] == sorted(job.id for job in jobs)

    async def test_messages_of_every_visibility_count(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversation = await make_conversation(store)
        drafts = [
            make_draft("Be kind", "system", visibility="internal"),
            make_draft("Hi"),
            make_draft("", "assistant"),
            make_draft("22 °C", "tool", visibility="internal"),
            make_draft("Gone", "assistant", visibility="hidden"),
        ]
        await append_drafts(store, conversation.id, *drafts)
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert job_windows(await dispatch_all(store)) == [(1, 5)]

    async def test_a_conversation_without_text_creates_no_job(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        await make_closed_conversation(store, turns=0)
        assert await dispatch_all(store) == []

    async def test_messages_of_a_turn_that_ends_after_closing_are_extracted(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversation = await make_conversation(store)
        claim = make_claim("me")
        await begin_turn(store, conversation.id, claim, make_draft())
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert job_windows(await dispatch_all(store)) == [(1, 1)]
        late = [TurnDraft(claim.turn_id, [make_draft("Hello!", "assistant")])]
        await store.conversations.append(MAYA, conversation.id, late, now=utc_now(), release_claim_id="me")
        assert job_windows(await dispatch_all(store)) == [(2, 2)]
        types = await read_event_types(store, conversation.id)
        assert types.count("conversation.continued") == 1

    async def test_overlapping_turns_are_in_one_window(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversation = await make_conversation(store)
        keyed = make_draft("x" * 90, idempotency_key="k")
        await append_drafts(store, conversation.id, keyed)
        await append_turns(store, conversation.id, text="y" * 90)
        again = [make_draft("x" * 90, idempotency_key="k"), make_draft("z" * 90, "assistant")]
        answered = await append_drafts(store, conversation.id, *again)
        assert [message.seq for message in answered.messages] == [1, 4]
        await append_turns(store, conversation.id)
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert job_windows(await dispatch_all(store, length=100)) == [(1, 4), (5, 6)]

    async def test_a_new_version_extracts_the_whole_conversation(self, store: Store) -> None:
        binding = await make_binding(store, await make_space(store), extraction_policy=EVERY_TWO)
        conversation = await make_conversation(store)
        await append_turns(store, conversation.id, 2)
        await dispatch_all(store)
        policy = ExtractionPolicy("v2")
        await store.bindings.update(MAYA, binding.id, policy=policy, enabled=None, now=utc_now())
        await store.conversations.close(MAYA, conversation.id, now=utc_now())
        assert [(job.extraction_version, job.from_seq, job.to_seq) for job in await dispatch_all(store)] == [
            ("v2", 1, 4)
        ]

    async def test_a_plan_covers_all_messages_and_ignores_triggers(self, store: Store, space: MemorySpace) -> None:
        binding = await make_binding(store, space, extraction_policy=ONLY_EVERY_TWO)
        conversation = await make_conversation(store)
        assert await plan_jobs(store, conversation.id) == []
        await append_turns(store, conversation.id)
        [job] = await plan_jobs(store, conversation.id)
        assert (job.binding_id, job.from_seq, job.to_seq) == (binding.id, 1, 2)
        assert await plan_jobs(store, conversation.id) == [job], "the job is already queued"
        await append_turns(store, conversation.id, 2)
        assert job_windows(await plan_jobs(store, conversation.id)) == [(1, 2), (3, 6)]
        assert await dispatch_all(store) == [], "no messages are left"

    async def test_a_plan_requeues_finished_jobs_and_writes_an_event(self, store: Store) -> None:
        await make_binding(store, await make_space(store))
        conversation = await make_closed_conversation(store)
        [job] = await dispatch_all(store)
        running = await claim_available_job(store)
        [same] = await plan_jobs(store, conversation.id)
        assert (same.id, same.status, same.attempts) == (job.id, JobStatus.RUNNING, 1)
        await store.jobs.finish(JobEnd(job.id, running.runs, {"added": 1}), now=utc_now())
        [again] = await plan_jobs(store, conversation.id)
        assert (again.id, again.status, again.attempts, again.result) == (job.id, JobStatus.QUEUED, 0, {})
        types = await read_event_types(store, job.id)
        assert types == ["extraction.queued", "extraction.completed", "extraction.queued"]

    async def test_a_plan_accepts_a_version_and_a_space(self, store: Store) -> None:
        space, other = await make_space(store), await make_space(store, name="other")
        await make_binding(store, space)
        conversation = await make_closed_conversation(store)
        [first] = await dispatch_all(store)
        [newer] = await plan_jobs(store, conversation.id, version="v2")
        assert (newer.extraction_version, newer.memory_space_id) == ("v2", space.id)
        [direct] = await plan_jobs(store, conversation.id, space_id=other.id)
        assert (direct.extraction_version, direct.memory_space_id) == ("v1", other.id)
        assert await plan_jobs(store, conversation.id, space_id=other.id) == [direct]
        assert len({first.id, newer.id, direct.id}) == 3

    async def test_a_plan_reports_missing_objects(self, store: Store) -> None:
        conversation = await make_closed_conversation(store)
        space = await make_space(store)
        theirs = await make_space(store, OTHER_SCOPES[0])
        binding = await make_binding(store, space)
        with pytest.raises(NotFoundError, match="conv_unknown"):
            await plan_jobs(store, "conv_unknown")
        for unknown in ("ms_unknown", theirs.id):
            with pytest.raises(NotFoundError, match=unknown):
                await plan_jobs(store, conversation.id, space_id=unknown)
        await store.bindings.update(MAYA, binding.id, policy=None, enabled=False, now=utc_now())
        with pytest.raises(NotFoundError, match="binding"):
            await plan_jobs(store, conversation.id)
        for stranger in OTHER_SCOPES:
            with pytest.raises(NotFoundError, match="conversation"):
                await store.jobs.plan(
                    stranger, conversation.id, version=None, space_id=None, window_length=100, now=utc_now()
                )
        assert await store.jobs.list_jobs(None) == []

    async def test_concurrent_plans_and_dispatches_create_no_overlapping_windows(
        self, store: Store, second: Store
    ) -> None:
        await make_binding(store, await make_space(store), await make_space(store, name="other"))
        conversations = [await make_closed_conversation(store, turns=3) for _ in range(5)]
        plans = [
            plan_jobs(opened, conversation.id, length=20)
            for conversation in conversations
            for opened in (store, second)
        ]
        looks = [dispatch_all(opened, length=30, limit=2) for opened in (store, second)]
        await asyncio.gather(*plans, *looks)
        jobs = await store.jobs.list_jobs(MAYA)
        for conversation in conversations:
            for space_id in {job.memory_space_id for job in jobs}:
                own = [job for job in jobs if (job.conversation_id, job.memory_space_id) == (conversation.id, space_id)]
                covered = [seq for job in own for seq in range(job.from_seq, job.to_seq + 1)]
                assert sorted(covered) == [1, 2, 3, 4, 5, 6]
