"""Importing chats: again, after an interruption, concurrently, and through a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tellback import Tellback, TellbackError
from tellback.client import TellbackClient
from tellback.conversations import Conversations
from tellback.errors import ImportFormatError
from tellback.importers import ImportProgress, import_chats
from tellback.server import create_app
from tellback.testing import ScriptedModel, answers
from tellback.user import User
from tests.unit.importers.chat_exports import MARCH, gpt_chat, gpt_message, write_json

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)

DAY = 86_400.0


def export(folder: Path, *, days: int = 3, turns: int = 1) -> Path:
    """Write an export with one chat per day, newest first."""
    chats = []
    for day in reversed(range(days)):
        created_at = MARCH + day * DAY
        turn_texts = [
            message
            for turn in range(turns)
            for message in (
                gpt_message("user", f"Day {day}, turn {turn}: I walked to the sea.", created_at + turn),
                gpt_message("assistant", "Lovely!", created_at + turn, metadata={"model_slug": "gpt-4o"}),
            )
        ]
        chats.append(gpt_chat(f"c{day}", *turn_texts, at=created_at))
    return write_json(folder / "conversations.json", chats)


async def stored(user: User) -> list[list[str]]:
    """Return the texts of the user's imported conversations, oldest first."""
    found = await user.conversations.list("imported")
    return [
        [each.text for each in await user.conversations.messages(conversation.id)] for conversation in reversed(found)
    ]


async def test_chats_become_closed_conversations_with_their_original_times_and_memories(
    tb: Tellback, tmp_path: Path
) -> None:
    maya = tb.user("maya")
    seen: list[ImportProgress] = []
    report = await import_chats(maya, export(tmp_path), on_progress=seen.append)
    assert (report.format, report.chats, report.messages, report.memories) == ("chatgpt", 3, 6, 6)

    first, second, third = reversed(await maya.conversations.list("imported"))
    assert {conversation.status for conversation in (first, second, third)} == {"closed"}
    assert (first.title, first.metadata["import"]["source"], first.metadata["import"]["id"]) == (
        "Chat c0",
        "chatgpt",
        "c0",
    )
    user_message, assistant_message = await maya.conversations.messages(first.id)
    assert user_message.created_at.isoformat() == "2024-03-01T10:00:00+00:00"
    assert (assistant_message.model, assistant_message.provider) == ("gpt-4o", "openai")

    [space] = await maya.memory.list_spaces()
    atoms = await maya.memory.list_atoms(space.id)
    assert {f"{atom.valid_from:%d}" for atom in atoms} == {"01", "02", "03"}
    assert [each.done for each in seen if each.stage == "importing"] == [1, 2, 3]
    assert seen[-1] == ImportProgress("remembering", 3, 3)


async def test_importing_again_adds_nothing(tb: Tellback, tmp_path: Path) -> None:
    maya = tb.user("maya")
    await import_chats(maya, export(tmp_path))
    before = await stored(maya)
    second_report = await import_chats(maya, export(tmp_path))
    assert (second_report.chats, second_report.messages, second_report.already_there, second_report.memories) == (
        0,
        0,
        3,
        0,
    )
    assert await stored(maya) == before
    assert len(await maya.memory.list_bindings()) == 1


async def test_new_messages_of_an_imported_chat_go_to_another_conversation(tb: Tellback, tmp_path: Path) -> None:
    maya = tb.user("maya")
    await import_chats(maya, export(tmp_path, days=1))
    report = await import_chats(maya, export(tmp_path, days=2, turns=2))
    assert (report.chats, report.continued, report.messages) == (2, 1, 6)
    assert await stored(maya) == [
        ["Day 0, turn 0: I walked to the sea.", "Lovely!"],
        ["Day 0, turn 1: I walked to the sea.", "Lovely!"],
        ["Day 1, turn 0: I walked to the sea.", "Lovely!", "Day 1, turn 1: I walked to the sea.", "Lovely!"],
    ]
    second_report = await import_chats(maya, export(tmp_path, days=2, turns=2))
    assert (second_report.chats, second_report.already_there) == (0, 2)


async def test_the_next_import_completes_an_interrupted_one(
    tb: Tellback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maya = tb.user("maya")
    file = export(tmp_path, days=5, turns=2)
    reference_user = tb.user("ben")
    await import_chats(reference_user, file)
    for method in ("find_or_create", "append_messages", "close"):
        original = getattr(Conversations, method)
        calls = 0

        async def cancel_at_second_call(self: Conversations, *args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            result = await original(self, *args, **kwargs)  # noqa: B023 - called in this iteration only
            if calls == 2:
                raise asyncio.CancelledError
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Conversations, method, cancel_at_second_call)
            with pytest.raises(asyncio.CancelledError):
                await import_chats(maya, file)
    report = await import_chats(maya, file)
    assert (report.chats, report.already_there) == (1, 4)
    assert await stored(maya) == await stored(reference_user)
    assert await maya.conversations.list("imported", "open") == []
    [space] = await maya.memory.list_spaces()
    assert len(await maya.memory.list_atoms(space.id)) == 20


async def test_concurrent_imports_store_each_chat_once(tb: Tellback, tmp_path: Path) -> None:
    maya, file = tb.user("maya"), export(tmp_path, days=6)
    reports = await asyncio.gather(*(import_chats(tb.user("maya"), file) for _ in range(3)))
    texts = [text for texts in await stored(maya) for text in texts if text.startswith("Day")]
    assert sorted(texts) == [f"Day {day}, turn 0: I walked to the sea." for day in range(6)]
    assert sum(report.chats + report.already_there for report in reports) == 18
    assert await maya.conversations.list("imported", "open") == []


async def test_a_slow_import_sees_the_chats_of_a_concurrent_one(
    tb: Tellback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maya, file = tb.user("maya"), export(tmp_path, days=8)
    original = Conversations.find_or_create

    async def import_first(self: Conversations, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(Conversations, "find_or_create", original)
        assert (await import_chats(maya, file, extract=False)).chats == 8
        return await original(self, *args, **kwargs)

    monkeypatch.setattr(Conversations, "find_or_create", import_first)
    slow = await import_chats(maya, file, extract=False)
    assert (slow.chats, slow.already_there) == (0, 8)
    texts = [text for texts in await stored(maya) for text in texts if text.startswith("Day")]
    assert sorted(texts) == [f"Day {day}, turn 0: I walked to the sea." for day in range(8)]


async def test_a_conversation_completed_by_a_concurrent_import_is_not_imported_again(
    tb: Tellback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maya, file = tb.user("maya"), export(tmp_path, days=1)

    async def stop(self: Conversations, *args: Any, **kwargs: Any) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Conversations, "append_messages", stop)
        with pytest.raises(asyncio.CancelledError):
            await import_chats(maya, file, extract=False)
    original = Conversations.messages

    async def messages_before_another_import(self: Conversations, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(Conversations, "messages", original)
        messages = await original(self, *args, **kwargs)
        assert (await import_chats(maya, file, extract=False)).chats == 1
        return messages

    monkeypatch.setattr(Conversations, "messages", messages_before_another_import)
    report = await import_chats(maya, file, extract=False)
    assert (report.chats, report.already_there) == (0, 1)
    assert [texts for texts in await stored(maya) if texts] == [["Day 0, turn 0: I walked to the sea.", "Lovely!"]]
    assert await maya.conversations.list("imported", "open") == []


async def test_since_and_limit_select_chats(tb: Tellback, tmp_path: Path) -> None:
    maya, file = tb.user("maya"), export(tmp_path, days=5)
    late_report = await import_chats(maya, file, since="2024-03-03T00:00:00Z", limit=2)
    assert late_report.skipped == {"no messages since the given time": 2, "limit reached": 1}
    assert [texts[0][:5] for texts in await stored(maya)] == ["Day 2", "Day 3"]
    remaining_report = await import_chats(maya, file, limit=2)
    assert [texts[0][:5] for texts in await stored(maya)] == ["Day 2", "Day 3", "Day 0", "Day 1"]
    assert remaining_report.already_there == 0  # the limit is reached before the imported chats


async def test_a_dry_run_reports_what_would_be_imported_and_changes_nothing(tb: Tellback, tmp_path: Path) -> None:
    maya = tb.user("maya")
    report = await import_chats(maya, export(tmp_path), dry_run=True)
    assert (report.chats, report.messages, report.memories) == (3, 6, 0)
    assert str(report) == "Would import 3 chats with 6 messages."
    assert await maya.conversations.list() == []
    assert await maya.memory.list_spaces() == []


async def test_without_extraction_no_space_is_created(tb: Tellback, tmp_path: Path) -> None:
    maya = tb.user("maya")
    report = await import_chats(maya, export(tmp_path), extract=False)
    assert (report.chats, report.memories) == (3, 0)
    assert await maya.memory.list_spaces() == []
    assert await maya.memory.list_jobs() == []


async def test_an_unreadable_export_changes_nothing(tb: Tellback, tmp_path: Path) -> None:
    file = export(tmp_path)
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(ImportFormatError, match="download it again"):
        await import_chats(tb.user("maya"), file)
    assert await tb.user("maya").conversations.list() == []
    assert await tb.user("maya").memory.list_spaces() == []


async def test_an_existing_binding_to_the_space_is_used(tb: Tellback, tmp_path: Path) -> None:
    maya = tb.user("maya")
    space = await maya.memory.create_space("default")
    await maya.memory.create_binding({"namespace": "*"}, [space.id])
    report = await import_chats(maya, export(tmp_path))
    assert report.memories == 6
    assert len(await maya.memory.list_bindings()) == 1


async def test_a_later_chat_supersedes_an_earlier_one(url: str, tmp_path: Path) -> None:
    def home_reply(city: str) -> dict[str, Any]:
        home_fact = {"text": f"User lives in {city}.", "messages": ["m1"], "kind": "FACT", "category": "home"}
        return {"facts": [{**home_fact, "subject": "user", "attribute": "home city", "value": city, "single": True}]}

    chats = [gpt_chat("new", gpt_message("user", "I live in Lisbon.", MARCH + DAY), at=MARCH + DAY)]
    chats.append(gpt_chat("old", gpt_message("user", "I live in Porto."), at=MARCH))
    model = ScriptedModel([answers(home_reply("Porto")), answers(home_reply("Lisbon"))])
    async with Tellback(url, model=model) as tb:
        maya = tb.user("maya")
        report = await import_chats(maya, write_json(tmp_path / "conversations.json", chats))
        [space] = await maya.memory.list_spaces()
        assert [atom.text for atom in await maya.memory.list_atoms(space.id)] == ["User lives in Lisbon."]
        assert report.memories == 2


async def test_failed_jobs_are_reported(url: str, tmp_path: Path) -> None:
    async with Tellback(url, model=ScriptedModel(["No.", "No!", "Never."])) as tb:
        report = await import_chats(tb.user("maya"), export(tmp_path, days=1))
    assert (report.chats, report.failed_jobs) == (1, 1)
    assert "1 extraction job failed" in str(report)


async def test_chats_are_imported_through_a_server(tb: Tellback, tmp_path: Path) -> None:
    long = gpt_chat("long", gpt_message("user", "é" * 450_000), *(gpt_message("user", f"{n}") for n in range(1_100)))
    chats = [long, gpt_chat("short", gpt_message("user", "I walked to the sea."), at=None)]
    file = write_json(tmp_path / "conversations.json", chats)
    secret = (await tb.keys.create("app")).secret
    transport = httpx2.ASGITransport(app=create_app(tb, opens=False))
    async with (
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
        TellbackClient("http://127.0.0.1", secret, http=http) as client,
    ):
        remote_user = client.user("maya")
        report = await import_chats(remote_user, file, space="old")
        assert (report.chats, report.messages) == (2, 1_102)
        assert report.memories > 1_000
        assert (await import_chats(remote_user, file, space="old")).already_there == 2
    [longer_chat, _] = sorted(
        await tb.user("maya").conversations.list("imported"), key=lambda conversation: -conversation.last_seq
    )
    first = (await tb.user("maya").conversations.messages(longer_chat.id))[0]
    assert first.text.count("é") == 450_000


async def test_invalid_arguments_are_rejected_before_anything_is_read(tb: Tellback, tmp_path: Path) -> None:
    for wrong in ({"since": "last week"}, {"limit": -1}, {"namespace": " "}, {"format": "xml"}):
        with pytest.raises(TellbackError):
            await import_chats(tb.user("maya"), tmp_path / "none", **wrong)
