"""`tellback chat` in this process: answers, approvals, interruption and memories."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback
from tellback.chat_backends import (
    ChatBackend,
    ModelBackend,
    RouteBackend,
    ServedAgent,
    SpecBackend,
    bind_agent,
    store_sessions,
)
from tellback.cli.chat import ChatRepl, LoopThread
from tellback.errors import ProviderAuthError
from tellback.specs import load_spec
from tellback.testing import FunctionModel, ScriptedModel, calls, raises, says, understands
from tellback.tools import tool
from tellback.types import ChatUsage
from tests.unit.cli.conftest import Cli
from tests.unit.cli.test_diagnostics import AGENT

Json = Callable[..., Any]


def test_without_a_model_answers_quote_memory(cli: Cli, as_json: Json) -> None:
    first = cli("chat", "I moved to Lisbon in March.", "--user", "maya")
    assert first.stdout.count("No model is set up") == 1
    assert first.stderr == ""
    [conversation] = as_json("conversations", "list", "--user", "maya")
    assert (conversation["status"], conversation["last_seq"]) == ("open", 2)
    as_json("conversations", "close", conversation["id"], "--user", "maya")
    answer = json.loads(cli("chat", "Where did I move?", "--user", "maya", "--json").stdout)
    assert "Lisbon" in answer["text"]
    assert answer["conversation_id"] != conversation["id"]
    [atom] = [each for each in answer["atoms_used"] if "I moved to Lisbon" in each["text"]]
    assert atom["citations"][0]["conversation_id"] == conversation["id"]


def test_each_input_line_is_a_message_and_each_answer_a_json_line(cli: Cli) -> None:
    result = cli("chat", "--json", input="I sing.\n\nI also dance.\n")
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["conversation_id"] == second["conversation_id"]
    assert first["text"]


def test_a_dash_reads_the_whole_input_as_one_message(cli: Cli, as_json: Json) -> None:
    cli("chat", "-", input="I sing.\nI also dance.\n")
    [conversation] = as_json("conversations", "list")
    [message, _] = as_json("conversations", "show", conversation["id"])["messages"]
    assert message["text"] == "I sing.\nI also dance."


def test_chat_continues_the_open_conversation_unless_options_choose_another(cli: Cli, as_json: Json) -> None:
    ids = [
        json.loads(cli("chat", "Hi.", "--json", *options).stdout)["conversation_id"]
        for options in ((), (), ("--new",), ())
    ]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    reply = json.loads(cli("chat", "Hi.", "--json", "--conversation", ids[2]).stdout)
    assert reply["conversation_id"] == ids[2]
    assert "is closed" in cli("chat", "Hi.", "--conversation", ids[0], code=2).stderr


def test_a_new_conversation_remembers_the_messages_of_the_closed_one(cli: Cli) -> None:
    cli("chat", "I am vegetarian since March.")
    assert '[1] "I am vegetarian since March."' in cli("chat", "--new", "Am I vegetarian?").stdout


class Typist:
    """Types the given lines one after the other, then sends EOF."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


@contextmanager
def open_repl(
    model: Any,
    typist: Typist,
    build_backend: Callable[[Any, Any], ChatBackend] | None = None,
    extractor: str | None = "verbatim",
) -> Iterator[ChatRepl]:
    with closing(LoopThread()) as loop:
        tb = Tellback("tellback.db", model=model, extractor=extractor)
        loop.run(tb.open())
        try:
            user = tb.user("maya")
            backend = ModelBackend(user, "chat", "default", model) if build_backend is None else build_backend(tb, user)
            yield ChatRepl(loop, backend, "default", typist)
        finally:
            loop.run(tb.close())


def test_a_conversation_is_streamed_closed_recalled_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    model = FunctionModel(lambda request: "You live in Lisbon." if "Lisbon" in str(request.system) else "I see.")
    typist = Typist(
        "/why", "/memory", "I moved to Lisbon in March.", "/close", "Where do I live?", "/why", "/memory moved"
    )
    with open_repl(model, typist) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=False)
        chat.run()
    output = capsys.readouterr().out
    assert "No answer yet." in output
    assert "No memories yet." in output
    assert "I see." in output
    assert "Closed the conversation. Extracted 2 memories. Your next message starts a new one." in output
    assert "You live in Lisbon." in output
    assert output.count("User: I moved to Lisbon in March.") == 2


def test_closing_does_not_wait_for_the_retries_of_a_failed_extraction(capsys: pytest.CaptureFixture[str]) -> None:
    model = FunctionModel(lambda request: "Not what an extraction looks like.")
    with open_repl(model, Typist("I moved to Lisbon.", "/close", "Go on."), extractor="llm") as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    assert "Closed the conversation. Extracting memories failed (" in capsys.readouterr().out


def test_why_shows_memories_scores_citations_and_tokens(
    cli: Cli, as_json: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("atoms", "add", "Maya lives in [bold]Lisbon[/bold].", "--user", "maya")
    usage = ChatUsage(input_tokens=40, output_tokens=5, model="gpt-5", cost_usd=0.0123)
    with open_repl(ScriptedModel([says("In Lisbon.", usage=usage)]), Typist("Where do I live?", "/why")) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    output = capsys.readouterr().out
    assert "In Lisbon." in output
    assert 'The prompt contained 1 memory (query: "Where do I live?")' in output
    assert "SCORE" in output
    assert "Maya lives in [bold]Lisbon[/bold]." in output
    assert "gpt-5: 40 input tokens, 5 output tokens, 0.0123 USD." in output


def test_control_characters_in_answers_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with open_repl(ScriptedModel([says("a\x1b[31mb", chunks=2)]), Typist("Hi.")) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    assert "a\\x1b[31mb" in capsys.readouterr().out


def test_resuming_a_conversation_shows_its_last_messages(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("I sing.", "What else?"):
        with open_repl(ScriptedModel([says("I see.")]), Typist(line)) as chat:
            chat.open_conversation(None, starts_new=False, is_quiet=False)
            chat.run()
    output = capsys.readouterr().out
    assert "Continuing conv_" in output
    assert "you> I sing." in output


def test_a_failing_provider_does_not_end_the_chat(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ProviderAuthError("no", provider="Anthropic", status=401)
    with open_repl(ScriptedModel([raises(wrong), says("Here I am.")]), Typist("Hi.", "Again.", "/nonsense")) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    captured = capsys.readouterr()
    assert "Anthropic rejected the API key (401)" in captured.err
    assert "Unknown command /nonsense. Type /help for a list of commands." in captured.err
    assert "Here I am." in captured.out


def test_slash_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with open_repl(ScriptedModel([]), Typist("/help", "/routes", "/close", "", "/quit", "not read")) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    output = capsys.readouterr().out
    assert all(name in output for name in ("/memory", "/why", "/routes", "/close", "/new", "/quit"))
    assert "This chat has no agent with routes." in output
    assert "No open conversation." in output


def test_ctrl_c_stops_the_answer_and_the_chat_continues(capsys: pytest.CaptureFixture[str]) -> None:
    started = threading.Event()

    async def answer(request: Any) -> str:
        if "slow" in str(request.messages[-1].content):
            started.set()
            await asyncio.sleep(60)
        return "Quick."

    def interrupt() -> None:
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with open_repl(FunctionModel(answer), Typist("Be slow.", "Go on.")) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
        [conversation] = chat._loop.run(chat._user.conversations.list())
        messages = chat._loop.run(chat._user.conversations.messages(conversation.id))
    captured = capsys.readouterr()
    assert "Answer stopped. Your message is stored" in captured.err
    assert "Quick." in captured.out
    assert [each.text for each in messages if each.role == "user"] == ["Be slow.", "Go on."]
    assert messages[-1].text == "Quick."


def route_backend(source: str) -> Callable[[Any, Any], ChatBackend]:
    def build(tb: Any, user: Any) -> ChatBackend:
        names: dict[str, Any] = {}
        exec(source, names)
        agent = names["agent"]
        agent.model = tb.model
        return RouteBackend(ServedAgent(bind_agent(agent, tb, store_sessions(agent, tb, user.scope)), user))

    return build


def test_slash_routes_shows_the_current_state_and_the_gathered_data(capsys: pytest.CaptureFixture[str]) -> None:
    model = ScriptedModel([understands(route="Book a flight"), says("Where to?")])
    with open_repl(model, Typist("/routes", "I want to fly.", "/routes", "/close"), route_backend(AGENT)) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    output = capsys.readouterr().out
    assert "  Book a flight (when the user wants to fly)" in output
    assert "Where to?" in output
    assert "▶ Book a flight" in output
    assert "▶ Ask where to" in output
    assert "No data gathered yet." in output


def test_a_session_with_an_agent_is_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    first = ScriptedModel([understands(route="Book a flight"), says("Where to?")])
    with open_repl(first, Typist("I want to fly."), route_backend(AGENT)) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    with open_repl(ScriptedModel([]), Typist("/routes"), route_backend(AGENT)) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=False)
        chat.run()
    output = capsys.readouterr().out
    assert "you> I want to fly." in output
    assert "▶ Ask where to" in output


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"{amount} paid"


@pytest.mark.parametrize(("typed", "reply"), [("y", "Done."), ("", "As you like.")])
def test_a_tool_that_requires_approval_prompts_the_user(
    typed: str, reply: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def build_spec_backend(tb: Any, user: Any) -> ChatBackend:
        tb.register_agent({"name": "payer", "tools": [{"type": "FUNCTION", "name": "pay"}]}, tools=[pay])
        return SpecBackend(user, user.agents.get("payer"), "default")

    typist = Typist("Pay 5 euros.", typed)
    with open_repl(ScriptedModel([calls("pay", amount=5), says(reply)]), typist, build_spec_backend) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
    captured = capsys.readouterr()
    assert 'Run pay with {"amount": 5}? [y/N] ' in typist.prompts
    assert reply in captured.out
    assert '→ pay {"amount"' in captured.err


def test_an_agent_spec_receives_the_users_memory_space(capsys: pytest.CaptureFixture[str]) -> None:
    spec = load_spec(
        "name: support\nsystemPrompt: Speak $tone.\n"
        "tools:\n  - {type: RECALL_BY_TOPIC, name: recallMemory, memorySpaceId: $space}\n"
    )

    def build_spec_backend(tb: Any, user: Any) -> ChatBackend:
        tb.register_agent(spec)
        return SpecBackend(user, spec, "default", arguments={"tone": "kindly"})

    model = ScriptedModel([calls("recallMemory", query="kettle"), says("Nothing yet."), says("Still nothing.")])
    with open_repl(model, Typist("What did I order?", "And now?", "/close"), build_spec_backend) as chat:
        chat.open_conversation(None, starts_new=False, is_quiet=True)
        chat.run()
        [closed] = chat._loop.run(chat._user.conversations.list())
    output = capsys.readouterr()
    assert "Still nothing." in output.out
    assert '→ recallMemory {"query"' in output.err
    assert closed.status == "closed"
    assert closed.turns == 2


def test_agent_arguments_must_be_name_value_pairs(cli: Cli) -> None:
    Path("support.yaml").write_text("name: support\nsystemPrompt: Speak $tone.\n")
    result = cli("chat", "Hi.", "--agent", "support.yaml", "--argument", "tone", code=2)
    assert "'tone' is not of the form NAME=VALUE" in " ".join(result.stderr.replace("│", "").split())
    assert cli("chat", "Hi.", "--agent", "support.yaml", "--argument", "tone=kindly").stdout


def test_an_agent_with_routes_requires_a_model(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_routes.py").write_text(AGENT.replace(', model="gpt-5"', ""))
    monkeypatch.syspath_prepend(str(tmp_path))
    result = cli("chat", "Hi.", "--agent", "cli_routes:agent", code=2)
    assert result.stderr.startswith("Agent Wanda has routes, which require a model")
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.delitem(sys.modules, "cli_routes")


def test_the_model_in_the_environment_does_not_replace_the_agents_model(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("own.yaml").write_text("name: own\nsystemPrompt: Help.\nmodel: offline\n")
    monkeypatch.setenv("TELLBACK_MODEL", "claude-sonnet-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    assert "Stored." in cli("chat", "I sing.", "--agent", "own.yaml").stdout
