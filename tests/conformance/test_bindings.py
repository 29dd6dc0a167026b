"""Bindings: which conversations become memories, of which users, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import ConfigurationError, InvalidArgumentError, NotFoundError, Tellback
from tellback.memory.extraction.values import Extraction, Window
from tellback.types.jobs import ConversationScope, ExtractionPolicy
from tellback.user import User


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


async def create_conversation(user: User, namespace: str, *texts: str, close: bool = True) -> str:
    conversation = await user.conversations.create(namespace)
    for words in texts:
        await user.conversations.append_turn(conversation.id, words, {"content": "Yes."})
    if close:
        await user.conversations.close(conversation.id)
    return conversation.id


async def atom_texts(user: User, name: str = "daily") -> list[str]:
    """Return the user's messages in the spaces of that name, in order."""
    atoms = [atom for space in await user.memory.list_spaces(name) for atom in await user.memory.list_atoms(space.id)]
    return [atom.text.removeprefix("User: ") for atom in reversed(atoms) if atom.text.startswith("User: ")]


async def test_a_binding_for_all_users_creates_a_space_for_each_user(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("daily")
    binding = await maya.memory.create_binding({"namespace": "check-in", "user_id": "*"}, [space.id])
    assert binding.id.startswith("bind_")
    assert (binding.memory_space_ids, binding.memory_space_names) == ((space.id,), ("daily",))
    assert binding.extraction_policy == ExtractionPolicy("v1", True, False, 0)
    omar, other_tenant_user = tb.user("omar"), tb.user("omar", tenant_id="globex")
    for user in (maya, omar, other_tenant_user):
        await create_conversation(user, "check-in", f"I am {user.scope.tenant_id}'s {user.scope.user_id}")
        await create_conversation(user, "other", "Not for you.")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["I am default's maya"]
    assert await atom_texts(omar) == ["I am default's omar"]
    assert await other_tenant_user.memory.list_spaces() == []
    [new_space] = await omar.memory.list_spaces()
    assert (new_space.name, new_space.id != space.id) == ("daily", True)


async def test_conversations_closed_before_the_binding_are_not_extracted(tb: Tellback, maya: User) -> None:
    await create_conversation(maya, "chat", "Before.")
    space = await maya.memory.create_space("daily")
    await maya.memory.create_binding(ConversationScope("chat"), [space.id])
    await create_conversation(maya, "chat", "After.")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["After."]


async def test_scopes_match_single_or_all_namespaces_and_users(tb: Tellback, maya: User) -> None:
    omar = tb.user("omar")
    shared_space = await maya.memory.create_space("both")
    own_space = await maya.memory.create_space("mine")
    await maya.memory.create_binding(
        [{"namespace": "morning", "user_id": "*"}, {"namespace": "evening", "user_id": "*"}], [shared_space.id]
    )
    await maya.memory.create_binding({"namespace": "*", "user_id": "maya"}, [own_space.id])
    for user in (maya, omar):
        for namespace in ("morning", "noon", "evening"):
            await create_conversation(user, namespace, namespace)
    await tb.jobs.drain(timeout=30)
    assert sorted(await atom_texts(maya, "both")) == ["evening", "morning"]
    assert sorted(await atom_texts(maya, "mine")) == ["evening", "morning", "noon"]
    assert sorted(await atom_texts(omar, "both")) == ["evening", "morning"]
    assert await omar.memory.list_spaces("mine") == []


async def test_a_conversation_that_matches_twice_goes_to_every_space_of_every_binding(tb: Tellback, maya: User) -> None:
    spaces = [await maya.memory.create_space(name) for name in ("a", "b", "c")]
    await maya.memory.create_binding({"namespace": "chat"}, [spaces[0].id, spaces[1].id])
    await maya.memory.create_binding({"namespace": "*"}, [spaces[2].id])
    id = await create_conversation(maya, "chat", "Hello.")
    await tb.jobs.drain(timeout=30)
    jobs = await maya.memory.list_jobs(conversation_id=id)
    assert sorted(job.memory_space_id for job in jobs) == sorted(space.id for space in spaces)
    assert {name: await atom_texts(maya, name) for name in "abc"} == {name: ["Hello."] for name in "abc"}


async def test_a_paused_binding_does_nothing_until_it_is_enabled(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("daily")
    binding = await maya.memory.create_binding({"namespace": "chat"}, [space.id])
    paused = await maya.memory.update_binding(binding.id, enabled=False)
    assert (paused.enabled, paused.conversation_scope) == (False, binding.conversation_scope)
    id = await create_conversation(maya, "chat", "Unheard.")
    await tb.jobs.drain(timeout=30)
    with pytest.raises(NotFoundError, match="create_binding"):
        await maya.memory.run_extraction_for_conversation(id)
    await maya.memory.update_binding(binding.id, enabled=True)
    await create_conversation(maya, "chat", "Heard.")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["Heard."]
    await maya.memory.run_extraction_for_conversation(id)
    await tb.jobs.drain(timeout=30)
    assert sorted(await atom_texts(maya)) == ["Heard.", "Unheard."]
    await maya.memory.delete_binding(binding.id)
    await create_conversation(maya, "chat", "Too late.")
    await tb.jobs.drain(timeout=30)
    assert sorted(await atom_texts(maya)) == ["Heard.", "Unheard."]
    assert await maya.memory.get_binding(binding.id) is None
    with pytest.raises(NotFoundError):
        await maya.memory.delete_binding(binding.id)


async def test_conversations_closed_before_a_pause_are_extracted_but_not_those_closed_during_it(
    tb: Tellback, maya: User
) -> None:
    space = await maya.memory.create_space("daily")
    binding = await maya.memory.create_binding({"namespace": "chat"}, [space.id])
    await create_conversation(maya, "chat", "Before.")
    await maya.memory.update_binding(binding.id, enabled=False)
    await create_conversation(maya, "chat", "Meanwhile.")
    await maya.memory.update_binding(binding.id, enabled=True)
    await create_conversation(maya, "chat", "After.")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["Before.", "After."]


async def test_conversations_closed_before_an_admin_pauses_or_deletes_a_binding_are_extracted(
    tb: Tellback, maya: User
) -> None:
    space = await maya.memory.create_space("daily")
    binding = await maya.memory.create_binding({"namespace": "chat"}, [space.id])
    await create_conversation(maya, "chat", "Before.")
    await tb.bindings.update(binding.id, enabled=False)
    await create_conversation(maya, "chat", "Meanwhile.")
    await tb.bindings.update(binding.id, enabled=True)
    await create_conversation(maya, "chat", "After.")
    await tb.bindings.delete(binding.id)
    await create_conversation(maya, "chat", "Too late.")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["Before.", "After."]


async def test_other_users_see_matching_bindings_but_cannot_change_them(tb: Tellback, maya: User) -> None:
    omar, other_app_user = tb.user("omar"), tb.user("maya", app_id="other")
    space = await maya.memory.create_space("daily")
    everyones_binding = await maya.memory.create_binding({"namespace": "chat", "user_id": "*"}, [space.id])
    private = await maya.memory.create_binding({"namespace": "chat", "user_id": "maya"}, [space.id])
    assert await maya.memory.list_bindings() == [everyones_binding, private]
    [seen] = await omar.memory.list_bindings()
    assert (seen.id, seen.created_by, seen.memory_space_ids) == (everyones_binding.id, None, ())
    assert await tb.bindings.list("default") == [everyones_binding, private]
    assert await tb.bindings.list("globex") == []
    assert not (await tb.bindings.update(everyones_binding.id, enabled=False)).enabled
    assert (await tb.bindings.update(everyones_binding.id, enabled=True)).enabled
    assert await other_app_user.memory.list_bindings() == []
    assert await omar.memory.get_binding(private.id) is None
    for user in (omar, other_app_user):
        with pytest.raises(NotFoundError):
            await user.memory.update_binding(everyones_binding.id, enabled=False)
        with pytest.raises(NotFoundError):
            await user.memory.delete_binding(everyones_binding.id)
    with pytest.raises(NotFoundError):
        await omar.memory.create_binding({"namespace": "chat"}, [space.id])


async def test_create_binding_with_once_returns_the_existing_binding(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("daily")
    scopes = [{"namespace": "a"}, {"namespace": "b"}]
    bindings = await asyncio.gather(*(maya.memory.create_binding(scopes, [space.id], once=True) for _ in range(5)))
    assert len({binding.id for binding in bindings}) == 1
    repeated = await maya.memory.create_binding(scopes[::-1], [space.id], {"extraction_version": "v2"}, once=True)
    assert repeated == bindings[0]
    other = await maya.memory.create_binding([{"namespace": "a"}], [space.id], once=True)
    assert other.id != repeated.id
    assert len(await maya.memory.list_bindings()) == 2


async def test_windows_are_extracted_while_a_conversation_is_open(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("daily")
    await maya.memory.create_binding(
        {"namespace": "chat"}, [space.id], {"windowed": True, "window_turns": 2, "on_conversation_closed": True}
    )
    id = await create_conversation(maya, "chat", "one", "two", "three", close=False)
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["one", "two"]
    await maya.conversations.append_turn(id, "four", {"content": "Yes."})
    await maya.conversations.append_turn(id, "five", {"content": "Yes."})
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["one", "two", "three", "four"]
    await maya.conversations.close(id)
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["one", "two", "three", "four", "five"]
    jobs = await maya.memory.list_jobs(conversation_id=id)
    assert sorted((job.from_seq, job.to_seq) for job in jobs) == [(1, 4), (5, 8), (9, 10)]


@pytest.mark.parametrize(
    ("scope", "spaces", "policy", "problem"),
    [
        ("chat", None, None, "conversation_scope"),
        ([], None, None, "conversation_scope"),
        (
            {"namespace": "chat", "tenant_id": "x"},
            None,
            None,
            "a conversation scope must have only the fields namespace, user_id",
        ),
        ({"namespace": "chat-*"}, None, None, "wildcard"),
        ({"namespace": ""}, None, None, "namespace"),
        ({"namespace": "chat"}, [], None, "memory_space_ids"),
        ({"namespace": "chat"}, "ms_1", None, "memory_space_ids"),
        ({"namespace": "chat"}, None, {"windowed": True}, "window_turns"),
        ({"namespace": "chat"}, None, {"on_conversation_closed": False}, "never extracts"),
        ({"namespace": "chat"}, None, {"extraction_version": "../v1"}, "extraction_version"),
        ({"namespace": "chat"}, None, {"every": 3}, "an extraction policy must have only"),
        ({"namespace": "chat"}, None, {"window_turns": -1}, "window_turns"),
        ({"namespace": "chat"}, None, {"windowed": "yes"}, "windowed"),
    ],
)
async def test_invalid_bindings_raise_invalid_argument_error(
    maya: User, scope: Any, spaces: Any, policy: Any, problem: str
) -> None:
    space = await maya.memory.create_space("daily")
    with pytest.raises(InvalidArgumentError, match=problem):
        await maya.memory.create_binding(scope, [space.id] if spaces is None else spaces, policy)
    assert await maya.memory.list_bindings() == []


async def test_an_unknown_prompt_version_raises_an_error_immediately(url: str) -> None:
    async with Tellback(url, model="claude-sonnet-5") as tb:
        user = tb.user("maya")
        space = await user.memory.create_space("daily")
        with pytest.raises(ConfigurationError, match=r"v1.*v2"):
            await user.memory.create_binding({"namespace": "chat"}, [space.id], {"extraction_version": "v9"})
        id = await create_conversation(user, "chat", "Hello.")
        with pytest.raises(ConfigurationError, match="v9"):
            await user.memory.run_extraction_for_conversation(id, "v9", space_id=space.id)


@pytest.mark.parametrize("bound", [None, "support", "chat"], ids=["none", "other namespace", "paused"])
async def test_extraction_without_an_enabled_binding_names_the_namespace_and_the_remedy(
    tb: Tellback, maya: User, bound: str | None
) -> None:
    if bound is not None:
        space = await maya.memory.create_space("daily")
        binding = await maya.memory.create_binding({"namespace": bound}, [space.id])
        await maya.memory.update_binding(binding.id, enabled=bound != "chat")
    id = await create_conversation(maya, "chat", "Hello.")
    with pytest.raises(NotFoundError) as caught:
        await maya.memory.run_extraction_for_conversation(id)
    assert (caught.value.kind, caught.value.id) == ("binding", "chat")
    assert str(caught.value) == (
        "There is no binding 'chat' for this user. No enabled binding covers this namespace: create one with"
        " create_binding, or pass space_id."
    )
    assert await maya.memory.list_jobs(conversation_id=id) == []


async def test_extraction_can_target_a_space_without_a_binding(tb: Tellback, maya: User) -> None:
    space = await maya.memory.create_space("daily")
    id = await create_conversation(maya, "chat", "Hello.", close=False)
    with pytest.raises(NotFoundError, match="binding"):
        await maya.memory.run_extraction_for_conversation(id)
    run = await maya.memory.run_extraction_for_conversation(id, space_id=space.id)
    assert run.id is not None
    assert run.id.startswith("job_")
    await tb.jobs.drain(timeout=30)
    assert await atom_texts(maya) == ["Hello."]
    with pytest.raises(NotFoundError):
        await tb.user("omar").memory.run_extraction_for_conversation(id, space_id=space.id)
    empty = await maya.conversations.create("chat")
    no_jobs = await maya.memory.run_extraction_for_conversation(empty.id, space_id=space.id)
    assert (len(no_jobs), no_jobs.id, no_jobs.status.value) == (0, None, "done")


async def test_a_replay_extracts_everything_again_and_returns_a_report(tb: Tellback, maya: User) -> None:
    omar = tb.user("omar")
    for user in (maya, omar):
        for number in range(3):
            await create_conversation(user, "chat", f"Number {number}.")
        await create_conversation(user, "other", "Not this.")
    space = await maya.memory.create_space("daily")
    await maya.memory.create_binding({"namespace": "chat", "user_id": "*"}, [space.id])
    seen: list[tuple[int, int]] = []
    report = await maya.memory.replay("chat", "v2", on_progress=lambda now: seen.append((now.done, now.jobs)))
    assert (report.conversations, report.jobs, report.done, report.failed, report.skipped) == (3, 3, 3, (), 0)
    assert seen[-1] == (3, 3)
    assert await atom_texts(maya) == ["Number 0.", "Number 1.", "Number 2."]
    assert {job.extraction_version for job in await maya.memory.list_jobs()} == {"v2"}
    assert await omar.memory.list_spaces() == []
    full_report = await tb.replay()
    assert (full_report.conversations, full_report.done, full_report.skipped) == (8, 6, 2)
    assert await atom_texts(omar) == ["Number 0.", "Number 1.", "Number 2."]
    assert await atom_texts(maya) == ["Number 0.", "Number 1.", "Number 2."]


class BlockingExtractor:
    """An extractor that blocks until it is released."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.release = asyncio.Event()

    async def extract(self, window: Window) -> Extraction:
        self.started.set()
        await self.release.wait()
        return Extraction()


async def test_a_cancelled_replay_leaves_no_jobs(url: str) -> None:
    extractor = BlockingExtractor()
    async with Tellback(url, extractor=extractor) as tb:
        user = tb.user("maya")
        for number in range(5):
            await create_conversation(user, "chat", f"Number {number}.")
        space = await user.memory.create_space("daily")
        await user.memory.create_binding({"namespace": "chat"}, [space.id])
        replay = asyncio.create_task(user.memory.replay())
        await asyncio.wait_for(extractor.started.wait(), 20)
        replay.cancel()
        with pytest.raises(asyncio.CancelledError):
            await replay
        extractor.release.set()
        await tb.jobs.drain(timeout=30)
        *cancelled, last_status = sorted(job.status.value for job in await user.memory.list_jobs())
        assert (set(cancelled) <= {"cancelled"}, last_status) == (True, "done")


async def test_a_cancelled_replay_keeps_earlier_jobs(url: str) -> None:
    extractor = BlockingExtractor()
    async with Tellback(url, extractor=extractor) as tb:
        user = tb.user("maya")
        space = await user.memory.create_space("daily")
        await user.memory.create_binding({"namespace": "chat"}, [space.id])
        for number in range(3):
            await create_conversation(user, "chat", f"Number {number}.")
        await asyncio.wait_for(extractor.started.wait(), 20)
        replay = asyncio.create_task(tb.replay("chat"))
        await asyncio.sleep(0.5)
        replay.cancel()
        with pytest.raises(asyncio.CancelledError):
            await replay
        extractor.release.set()
        await tb.jobs.drain(timeout=30)
        assert [job.status.value for job in await user.memory.list_jobs()] == ["done"] * 3
