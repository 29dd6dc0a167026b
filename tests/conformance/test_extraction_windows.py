"""The windows of a conversation cover each message once and in order, at any time of dispatch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import groupby, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback.stores import Store, open_store
from tellback.testing.stores.factories import (
    MAYA,
    dispatch_all,
    make_binding,
    make_conversation,
    make_draft,
    make_space,
    make_turn,
    plan_jobs,
)
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ConversationScope, ExtractionPolicy, Job

policies = st.builds(
    ExtractionPolicy,
    extraction_version=st.sampled_from(["v1", "v2"]),
    on_conversation_closed=st.booleans(),
    windowed=st.booleans(),
    window_turns=st.integers(0, 4),
)
roles = st.lists(st.sampled_from(["user", "assistant", "tool", "system"]), min_size=1, max_size=4)
keys = st.sampled_from([None, None, None, "a", "b"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), roles, keys, st.integers(1, 60)),
        st.tuples(st.just("look"), st.integers(1, 9), st.integers(20, 200)),
        st.tuples(st.just("plan"), st.integers(20, 200)),
    ),
    max_size=25,
)


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


async def apply_step(store: Store, id: str, step: tuple[object, ...]) -> None:
    """Append messages, or dispatch pending windows."""
    match step:
        case ("say", list(message_roles), key, int(length)):
            drafts = [
                make_draft("x" * length, role, stop_reason="tool_use" * (length > 50)) for role in message_roles[1:]
            ]
            first = make_draft("x" * length, message_roles[0], idempotency_key=key)
            await store.conversations.append(MAYA, id, make_turn(first, *drafts), now=utc_now())
        case ("look", int(limit), int(length)):
            await dispatch_all(store, limit=limit, length=length)
        case ("plan", int(length)):
            await plan_jobs(store, id, length=length)


def target(job: Job) -> tuple[str, str, str]:
    return job.binding_id, job.memory_space_id, job.extraction_version


async def check(store: Store, policy_list: list[ExtractionPolicy], step_list: list[tuple[object, ...]]) -> None:
    namespace = new_id("ns")
    spaces = [await make_space(store, name=name) for name in ("a", "b")]
    scopes = [ConversationScope(namespace, MAYA.user_id)]
    bindings = [await make_binding(store, *spaces, scopes=scopes, extraction_policy=policy) for policy in policy_list]
    conversation = await make_conversation(store, namespace=namespace)
    for step in step_list:
        await apply_step(store, conversation.id, step)
    closed = await store.conversations.close(MAYA, conversation.id, now=utc_now())
    await dispatch_all(store, limit=3, length=100)
    assert not await store.jobs.has_pending_events()
    jobs = sorted(
        await store.jobs.list_jobs(MAYA, conversation_id=conversation.id), key=lambda job: (target(job), job.id)
    )
    covered: dict[tuple[str, str, str], list[int]] = {}
    for key, group in groupby(jobs, target):
        target_jobs = list(group)
        assert all(job.from_seq <= job.to_seq for job in target_jobs)
        assert all(job.to_seq < after.from_seq for job, after in pairwise(target_jobs)), (
            "windows overlap or are not in the order of their job ids"
        )
        covered[key] = [seq for job in target_jobs for seq in range(job.from_seq, job.to_seq + 1)]
        assert covered[key] == list(range(1, len(covered[key]) + 1)), "windows leave a gap"
    all_seqs = list(range(1, closed.last_seq + 1))
    for binding, policy in zip(bindings, policy_list, strict=True):
        for space in spaces:
            seen = covered.get((binding.id, space.id, policy.extraction_version), [])
            assert seen == all_seqs or not policy.on_conversation_closed
        await store.bindings.delete(MAYA, binding.id, now=utc_now())


def test_windows_never_overlap_and_cover_all_messages(url: str, loop: asyncio.Runner) -> None:
    store = open_store(url)
    loop.run(store.open())

    @settings(
        max_examples=8 if url.startswith("postgresql") else 40,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(policy_list=st.lists(policies, min_size=1, max_size=3), step_list=steps)
    def run_example(policy_list: list[ExtractionPolicy], step_list: list[tuple[object, ...]]) -> None:
        loop.run(check(store, policy_list, step_list))

    try:
        run_example()
    finally:
        loop.run(store.close())


async def test_conversations_erased_before_dispatch_are_skipped(url: str) -> None:
    store = open_store(url)
    await store.open()
    try:
        omar = type(MAYA)(MAYA.tenant_id, MAYA.app_id, "omar")
        await make_binding(store, await make_space(store))
        for scope in (omar, MAYA):
            conversation = await make_conversation(store, scope)
            await store.conversations.append(scope, conversation.id, make_turn(make_draft()), now=utc_now())
            await store.conversations.close(scope, conversation.id, now=utc_now())
        await store.user_data.erase(omar, now=utc_now())
        assert [(job.scope, job.conversation_id) for job in await dispatch_all(store)] == [(MAYA, conversation.id)]
        assert await store.memories.spaces(omar) == []
    finally:
        await store.close()
