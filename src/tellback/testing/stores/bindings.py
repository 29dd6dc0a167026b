"""Bindings: who sees and changes them, and which conversations they are about."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tellback.errors import NotFoundError
from tellback.stores import Store
from tellback.testing.stores.making import (
    MAYA,
    NOON,
    OTHER_SCOPES,
    append_turns,
    dispatch_all,
    make_binding,
    make_closed_conversation,
    make_conversation,
    make_space,
    read_all_events,
)
from tellback.types.bindings import ConversationScope, ExtractionPolicy
from tellback.types.times import utc_now

OMAR = OTHER_SCOPES[0]


class BindingContract:
    """`Bindings`, and what they match."""

    async def test_a_binding_reads_back_as_it_was_made(self, store: Store) -> None:
        space, other = await make_space(store), await make_space(store, name="Ünïcode 🦜")
        policy = ExtractionPolicy("v7.β", on_conversation_closed=False, windowed=True, window_turns=3)
        about = (ConversationScope("chat", "maya"), ConversationScope("*", "*"))
        made = await make_binding(store, space, other, scopes=about, extraction_policy=policy, enabled=False)
        assert await store.bindings.get(MAYA, made.id) == made
        assert await store.bindings.list_bindings(MAYA) == [made]
        assert await store.bindings.get(MAYA, "bind_unknown") is None

    async def test_a_user_sees_what_it_made_and_what_is_about_it(self, store: Store) -> None:
        space = await make_space(store)
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

    async def test_only_whoever_made_a_binding_changes_it_or_the_platform(self, store: Store) -> None:
        space = await make_space(store)
        made = await make_binding(store, space)
        orphan = await make_binding(store, space, created_by=None)
        for stranger, id in [*((stranger, made.id) for stranger in OTHER_SCOPES), (MAYA, orphan.id), (OMAR, orphan.id)]:
            for change in (
                store.bindings.update(stranger, id, policy=None, enabled=False, now=NOON),
                store.bindings.delete(stranger, id, now=NOON),
            ):
                with pytest.raises(NotFoundError):
                    await change
        assert await store.bindings.get(MAYA, made.id) == made
        changed = await store.bindings.update(None, orphan.id, policy=None, enabled=False, now=NOON)
        assert not changed.enabled
        await store.bindings.delete(None, orphan.id, now=NOON)
        assert await store.bindings.list_bindings(MAYA) == [made]
        with pytest.raises(NotFoundError):
            await store.bindings.delete(None, orphan.id, now=NOON)

    async def test_an_update_leaves_what_it_does_not_name_and_tells_of_itself_once(self, store: Store) -> None:
        made = await make_binding(store, await make_space(store))
        policy = ExtractionPolicy("v2", windowed=True, window_turns=2)
        first = await store.bindings.update(MAYA, made.id, policy=policy, enabled=None, now=NOON)
        assert first == replace(made, extraction_policy=policy, updated_at=NOON)
        second = await store.bindings.update(MAYA, made.id, policy=None, enabled=False, now=NOON)
        assert second == replace(first, enabled=False)
        again = await store.bindings.update(MAYA, made.id, policy=policy, enabled=False, now=utc_now())
        assert again == second == await store.bindings.get(MAYA, made.id)
        await store.bindings.delete(MAYA, made.id, now=NOON)
        types = [event.type for event in await read_all_events(store) if event.subject_id == made.id]
        assert types == ["binding.created", "binding.updated", "binding.updated", "binding.deleted"]
        for change in (
            store.bindings.update(MAYA, made.id, policy=None, enabled=True, now=NOON),
            store.bindings.delete(MAYA, made.id, now=NOON),
        ):
            with pytest.raises(NotFoundError):
                await change

    async def test_scopes_say_which_conversations_are_meant(self, store: Store) -> None:
        space = await make_space(store)
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

    async def test_a_paused_or_deleted_binding_asks_for_nothing(self, store: Store) -> None:
        space = await make_space(store)
        paused, deleted = await make_binding(store, space), await make_binding(store, space)
        await store.bindings.update(MAYA, paused.id, policy=None, enabled=False, now=NOON)
        await make_closed_conversation(store)
        await store.bindings.delete(MAYA, deleted.id, now=NOON)
        assert await dispatch_all(store) == []
        await store.bindings.update(MAYA, paused.id, policy=None, enabled=True, now=NOON)
        assert await dispatch_all(store) == [], "what happened while it was paused"
        conversation = await make_closed_conversation(store)
        assert [(job.conversation_id, job.binding_id) for job in await dispatch_all(store)] == [
            (conversation.id, paused.id)
        ]

    async def test_a_binding_holds_for_what_happens_after_it_was_made(self, store: Store) -> None:
        space = await make_space(store)
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

    async def test_what_the_maker_says_goes_to_the_spaces_it_named_by_id(self, store: Store) -> None:
        namesake, meant = await make_space(store), await make_space(store)
        assert namesake.name == meant.name
        await make_binding(store, meant)
        await make_closed_conversation(store)
        assert [job.memory_space_id for job in await dispatch_all(store)] == [meant.id]

    async def test_what_others_say_goes_to_their_own_spaces_of_the_same_names(self, store: Store) -> None:
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

    async def test_a_space_made_for_a_binding_is_made_once_by_many_at_once(self, store: Store, second: Store) -> None:
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

    async def test_a_deleted_space_gives_way_to_another_of_its_name(self, store: Store) -> None:
        space = await make_space(store, name="notes")
        await make_binding(store, space)
        await store.memories.delete_space(MAYA, space.id, now=NOON)
        await make_closed_conversation(store)
        [job] = await dispatch_all(store)
        [found] = await store.memories.spaces(MAYA, name="notes")
        assert job.memory_space_id == found.id != space.id
