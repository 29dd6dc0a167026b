"""The examples run without configuration and with a key."""

from __future__ import annotations

import asyncio
import io
import os
import re
import runpy
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path

import pytest

from tests.integration.test_docs import play_anthropic
from tests.support.fake_http_server import FakeHttpServer, json_reply
from tests.support.local_model import require_model_file

EXAMPLES = Path(__file__).parents[2] / "examples"
OFFLINE_MODEL = ("TELLBACK_MODEL", "offline")
"""A variable that selects the offline model even if an Ollama server runs on this machine."""


async def run(name: str, *arguments: str) -> tuple[int | None, str]:
    """Run an example in a thread of this process; return its exit code and its output."""
    return await asyncio.wait_for(asyncio.to_thread(_run, name, arguments), 50)


def _run(name: str, arguments: tuple[str, ...]) -> tuple[int | None, str]:
    output = io.StringIO()
    program = str(EXAMPLES / name)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.syspath_prepend(str(EXAMPLES))
        patch.setattr(sys, "argv", [program, *arguments])
        patch.setenv(*OFFLINE_MODEL)
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as end:
            message = end.code if isinstance(end.code, str) else ""
            code = 1 if message else int(end.code or 0)
            return code, output.getvalue() + message
    return 0, output.getvalue()


async def run_in_subprocess(name: str, *arguments: str, **env: str) -> tuple[int | None, str]:
    """Run an example in a separate process with an empty environment."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / name), *arguments),
        env={"PATH": os.environ["PATH"], **(env or dict([OFFLINE_MODEL]))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 50)
    return process.returncode, output.decode()


async def test_the_first_turn_needs_no_key() -> None:
    code, output = await run_in_subprocess("first_turn.py")
    assert code == 0, output
    assert "stand-in" in output
    assert "Let me look. No coat needed: it is 18 degrees and clear in Lisbon." in output
    assert "model calls: 2" in output


async def test_the_first_turn_uses_the_provider_whose_key_is_set() -> None:
    async with FakeHttpServer(play_anthropic) as wire:
        code, output = await run_in_subprocess(
            "first_turn.py", "Hm?", ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url
        )
    assert code == 0, output
    assert "claude-sonnet-5" in output
    assert "All is well." in output
    assert [len(request.body["messages"]) for request in wire.requests] == [1, 3]


@pytest.mark.parametrize("status", [401])
async def test_a_wrong_key_is_reported_in_one_sentence(status: int) -> None:
    refusal = json_reply({"type": "error", "error": {"type": "authentication_error", "message": "invalid key"}}, status)
    async with FakeHttpServer(lambda request: refusal) as wire:
        code, output = await run_in_subprocess("first_turn.py", ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url)
    assert code == 1
    assert "ProviderAuthError: Anthropic (401) failed for claude-sonnet-5: invalid key. Check the API key" in output
    assert "Traceback" not in output


async def test_messages_are_remembered_without_a_model(tmp_path: Path) -> None:
    code, output = await run("memory.py", str(tmp_path / "remembered.db"))
    assert code == 0, output
    assert "[4 turns remembered" in output
    assert "> Where does Maya live?\nMaya: I moved to Lisbon in March" in output
    assert "> What must Ana not eat?\nMaya: Love it. My sister Ana visits in two weeks, she is allergic" in output
    assert "⟦record⟧" in output


async def test_the_stored_conversation_continues_in_the_next_run(tmp_path: Path) -> None:
    path = str(tmp_path / "kept.db")
    code, first = await run("stored_conversation.py", path)
    assert code == 0, first
    assert "0 messages so far" in first
    assert "No, it is 18 degrees and clear in Lisbon." in first
    assert "[in short:]\nuser: I'm Maya, and I fly to Lisbon tomorrow." in first
    code, second = await run("stored_conversation.py", path)
    assert code == 0, second
    assert "6 messages so far" in second
    assert 'you have told me 3 thing(s), first of all: "I\'m Maya, and I fly to Lisbon tomorrow."' in second
    code, output = await run("stored_conversation.py", str(tmp_path / "missing" / "kept.db"))
    assert code == 1
    assert "StoreUnavailableError" in output
    assert "Traceback" not in output


async def test_conversations_become_memories_over_months(tmp_path: Path) -> None:
    for outcome in ("[done: 1 superseded, 1 cited]", "[done: 2 cited]"):  # repeated facts change nothing
        code, output = await run("extraction.py", str(tmp_path / "diary.db"))
        assert code == 0, output
        assert outcome in output
        assert "since 2026-03-01: User lives in Lisbon." in output.split("Today:")[1].split("In February:")[0]
        assert "User lives in Porto." in output.split("In February:")[1]
        assert "Anna." not in output.split("Today:")[1]


async def test_a_chat_is_remembered_in_another_process_and_waits_for_approval(tmp_path: Path) -> None:
    for _ in range(2):
        code, output = await run("chat_loop.py", str(tmp_path / "chats.db"))
        assert code == 0, output
        assert "Try Ao 26 in Lisbon: it is vegetarian, as you are. Shall I book?" in output
        assert "remembered since 2026-03-05" in output
        assert "[needs your approval: book_table{'place': 'Ao 26'}]\nA table at Ao 26 is booked." in output


async def test_a_server_separates_the_memories_of_tenants() -> None:
    code, output = await run("server_client.py")
    assert code == 0, output
    assert "> I'm Maya. I moved to Lisbon, and I'm vegetarian now.\nNoted.\n" in output
    assert "  [message.appended]\n  [conversation.closed]\n  [extraction.queued]\n  [atom.added]\n" in output
    assert "Try Ao 26: it is vegetarian.\n  remembered from conv_" in output
    assert "[another tenant's Maya has 0 conversations]\n[NotFoundError: There is no conversation 'conv_" in output


async def test_an_assistant_remembers_an_earlier_day(tmp_path: Path) -> None:
    code, output = await run("personal_assistant.py", str(tmp_path / "assistant.db"))
    assert code == 0, output
    flight, allergy = output.split("[Thursday]")[1:]
    assert '[1] "My flight to Porto leaves on Friday at 9:40." (you, 4 May 2026)' in flight
    assert "because on Monday you said: My flight to Porto leaves on Friday at 9:40." in flight
    assert "because on Monday you said: My sister Ana is allergic to peanuts." in allergy


async def test_the_support_agent_uses_the_provider_whose_key_is_set() -> None:
    async with FakeHttpServer(play_anthropic) as wire:
        code, output = await run_in_subprocess(
            "support_with_skills.py", ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url
        )
    assert code == 0, output
    assert "[claude-sonnet-5: ANTHROPIC_API_KEY is set]" in output
    assert output.count("All is well.") == 2


async def test_the_support_agent_uses_its_skills() -> None:
    code, output = await run("support_with_skills.py")
    assert code == 0, output
    assert "[skills: refunds, tone]" in output
    assert (
        "30 euros for A-100 are on their way, and arrive within three days.\n  [read_skill, look_up, pay_back]"
        in output
    )
    assert "a colleague decides until tomorrow, and writes to you.\n  [read_skill, look_up]" in output


async def test_exported_chats_are_imported_once(tmp_path: Path) -> None:
    arguments = (str(EXAMPLES / "data" / "chats.jsonl"), str(tmp_path / "imported.db"))
    answers = []
    for outcome in (
        "Imported 2 chats with 5 messages. Extracted 5 memories.",
        "Imported 0 chats with 0 messages. 2 chats already imported.",
    ):
        code, output = await run("import_history.py", *arguments)
        assert code == 0, output
        assert outcome in output
        answers.append(output.partition("> ")[2])
    assert answers[0] == answers[1]
    assert "User: My new address is Rua da Rosa 12.\n  [from 'Moving house', 2026-02-10]" in answers[0]
    assert "Ana is allergic to peanuts.\n  [from 'Dinner for eight', 2026-04-02]" in answers[0]
    code, output = await run("import_history.py", str(tmp_path / "none.zip"), arguments[1])
    assert code == 1
    assert "InvalidArgumentError: There is no file or folder" in output


async def test_a_payment_is_approved_in_another_process(tmp_path: Path) -> None:
    code, output = await run("approval.py", str(tmp_path / "approval.db"))
    assert code == 0, output
    first_output, second_output = output.split("In another process:")
    assert "[pay{'to': 'the plumber', 'amount': 500} needs approval; turn status: approval]" in first_output
    assert "450 euros were paid to the plumber." in second_output
    assert "500 euros were paid" not in output
    assert "a second decision is rejected: the payment ran once" in second_output


@pytest.mark.slow
async def test_another_worker_finishes_the_job_of_a_killed_one(tmp_path: Path) -> None:
    code, output = await run("many_workers.py", str(tmp_path / "workers.db"))
    assert code == 0, output
    assert "the other ended with exit code 0]\n[jobs: {'done': 6}]" in output
    assert "I'm maya, and I live in Lisbon." in output.split("maya: ")[1].splitlines()[0]
    assert "I'm maya" not in output.split("omar: ")[1]


async def test_the_openai_client_gets_memory() -> None:
    code, output = await run("openai_client.py")
    assert code == 0, output
    assert '[1] "I moved to Lisbon in March, and I am vegetarian now." (you,' in output.split("> Am I vegetarian?")[1]


async def test_an_mcp_client_remembers_corrects_and_recalls(tmp_path: Path) -> None:
    code, output = await run("mcp_memory.py", str(tmp_path / "memory.db"))
    assert code == 0, output
    assert "[tools: recall, timeline, entities, conversations, remember, forget]" in output
    assert "recall: ['Maya lives in Lisbon.']\n" in output
    assert "timeline: ['Maya lives in Porto.', 'Maya lives in Lisbon.']\n" in output


async def test_erased_data_is_gone_from_the_file(tmp_path: Path) -> None:
    code, output = await run("gdpr.py", str(tmp_path / "gdpr.db"))
    assert code == 0, output
    before, _, after = output.partition("\nerased: ")
    assert "found in the file's bytes: True]" in before
    assert "for example: user said 'My passport is in the blue drawer.'" in before
    assert "[records of Maya: 0]\n" in after
    assert "found in the file's bytes: False]\n[the event user.erased has Maya's hash" in after
    assert "[Omar's conversations: 1]" in after


async def test_valid_time_and_recorded_time_are_queried_separately() -> None:
    code, output = await run("time_travel.py")
    assert code == 0, output
    assert output.splitlines()[1:6] == [
        "today: Maya lives in Lisbon.",
        "in January: Maya lives in Porto.",
        "in March: Maya lives in Lisbon.",
        "in March, as known in April: Maya lives in Faro.",
        "in March, as known in March: Maya lives in Porto.",
    ]
    assert "2026-03-01 to now: Maya lives in Lisbon. (current)" in output


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_local_model_chats_calls_a_tool_and_fills_a_schema(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    program = import_module("local_model")
    await program.main(str(require_model_file()), threads=1)
    output = capsys.readouterr().out
    assert re.search(r"> I'm Maya, and I moved to Lisbon.\n.+\n> Where do I live now\?\n.+", output)
    assert re.search(r"\[it calls add\{'x': -?\d+, 'y': -?\d+\}\]", output)
    assert re.search(r"\[it fills in Trip\(city='.*', nights=\d+\)\]", output)
    assert "cost: 0.0]" in output


async def test_a_missing_model_file_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    await import_module("local_model").main(None)
    assert "Pass a GGUF file" in capsys.readouterr().out


def test_the_tests_of_a_flow_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    flow = import_module("test_a_flow")
    flow.test_who_says_all_at_once_is_asked_nothing()
    flow.test_a_change_of_mind_searches_again_and_books_only_what_was_agreed()
    for eager in (0, 3):
        flow.test_any_user_gets_there(eager)


def test_the_readme_lists_every_example() -> None:
    listed_names = re.findall(r"^\| `(\w+\.py)[^`]*` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    program_names = {path.name for path in EXAMPLES.glob("*.py")} - {"example_helpers.py"}
    assert sorted(listed_names) == sorted(program_names)
    assert len(program_names) >= 10
    for name in program_names:
        assert f"python examples/{name}" in (EXAMPLES / name).read_text(), f"{name} does not say how it is run"
