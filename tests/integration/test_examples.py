"""The examples run, with nothing set up and with a key."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from tests.integration.test_docs import play_anthropic
from tests.support.wire import WireServer, json_reply

EXAMPLES = Path(__file__).parents[2] / "examples"


async def run(name: str, *arguments: str, **env: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), *arguments),
        env={"PATH": os.environ["PATH"], **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    return process.returncode, output.decode()


async def test_the_first_turn_needs_no_key() -> None:
    code, output = await run("first_turn.py")
    assert code == 0, output
    assert "stand-in" in output
    assert "Let me look. No coat needed: it is 18 degrees and clear in Lisbon." in output
    assert "model calls: 2" in output


async def test_the_first_turn_uses_the_provider_whose_key_is_set() -> None:
    async with WireServer(play_anthropic) as wire:
        code, output = await run("first_turn.py", "Hm?", ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url)
    assert code == 0, output
    assert "claude-sonnet-5" in output
    assert "All is well." in output
    assert [len(request.body["messages"]) for request in wire.requests] == [1, 3]


@pytest.mark.parametrize("status", [401])
async def test_a_wrong_key_is_one_clear_sentence(status: int) -> None:
    refusal = json_reply({"type": "error", "error": {"type": "authentication_error", "message": "invalid key"}}, status)
    async with WireServer(lambda request: refusal) as wire:
        code, output = await run("first_turn.py", ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url)
    assert code == 1
    assert "ProviderAuthError: Anthropic (401) failed for claude-sonnet-5: invalid key. Check the API key" in output
    assert "Traceback" not in output


async def test_what_was_said_is_remembered_without_a_model(tmp_path: Path) -> None:
    code, output = await run("remembering.py", str(tmp_path / "remembered.db"))
    assert code == 0, output
    assert "[4 turns remembered" in output
    assert "> Where does Maya live?\nMaya: I moved to Lisbon in March" in output
    assert "> What must Ana not eat?\nMaya: Love it. My sister Ana visits in two weeks, she is allergic" in output
    assert "⟦record⟧" in output


async def test_the_kept_conversation_goes_on_in_the_next_run(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.db")
    code, first = await run("kept_conversation.py", path)
    assert code == 0, first
    assert "0 messages so far" in first
    assert "No, it is 18 degrees and clear in Lisbon." in first
    assert "[in short:]\nuser: I'm Maya, and I fly to Lisbon tomorrow." in first
    code, second = await run("kept_conversation.py", path)
    assert code == 0, second
    assert "6 messages so far" in second
    assert 'you have told me 3 thing(s), first of all: "I\'m Maya, and I fly to Lisbon tomorrow."' in second
    code, output = await run("kept_conversation.py", str(tmp_path / "missing" / "kept.db"))
    assert code == 1
    assert "StoreUnavailableError" in output
    assert "Traceback" not in output


async def test_conversations_become_memories_over_months(tmp_path: Path) -> None:
    for outcome in ("[done: 1 superseded, 1 cited]", "[done: 2 cited]"):  # told again, nothing changes
        code, output = await run("becoming_memories.py", str(tmp_path / "diary.db"))
        assert code == 0, output
        assert outcome in output
        assert "since 2026-03-01: User lives in Lisbon." in output.split("Today:")[1].split("In February:")[0]
        assert "User lives in Porto." in output.split("In February:")[1]
        assert "Anna." not in output.split("Today:")[1]


async def test_a_chat_is_remembered_in_another_process_and_asks_for_consent(tmp_path: Path) -> None:
    for _ in range(2):
        code, output = await run("chatting.py", str(tmp_path / "chats.db"))
        assert code == 0, output
        assert "Try Ao 26 in Lisbon: it is vegetarian, as you are. Shall I book?" in output
        assert "remembered since 2026-03-05" in output
        assert "[waits for your consent: book_table{'place': 'Ao 26'}]\nA table at Ao 26 is booked." in output


async def test_a_served_memory_is_one_tenants_alone() -> None:
    code, output = await run("served_memory.py")
    assert code == 0, output
    assert "> I'm Maya. I moved to Lisbon, and I'm vegetarian now.\nNoted.\n" in output
    assert "  [message.appended]\n  [conversation.closed]\n  [extraction.queued]\n  [atom.added]\n" in output
    assert "Try Ao 26: it is vegetarian.\n  remembered from conv_" in output
    assert "[another tenant's Maya has 0 conversations]\n[NotFoundError: There is no conversation 'conv_" in output
