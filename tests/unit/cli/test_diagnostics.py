"""The commands doctor, bench and agents check."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tellback import Tellback
from tellback.cli import diagnostics
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.slow

Json = Callable[..., Any]

AGENT = """
from tellback import END_ROUTE, Agent

agent = Agent("Wanda", goal="Book flights", model="gpt-5")
book = agent.create_route(
    title="Book a flight",
    conditions=["the user wants to fly"],
    gather_schema={"type": "object", "properties": {"to": {"type": "string"}}},
)
book.initial_state.transition_to(chat_state="Ask where to", gather=["to"]).transition_to(state=END_ROUTE)

broken = Agent("Broken")
broken.create_route(title="Nowhere").initial_state.transition_to(chat_state="Ask").transition_to(state="missing")

number = 7


def make(tb):
    tb.register_agent({"name": "helper", "systemPrompt": "Help."})


def build():
    return [agent]


def fail(tb):
    raise LookupError("no settings")
"""


def checks_named(found: Any, check_name: str) -> list[Any]:
    return [each for each in found["checks"] if each["what"] == check_name]


def test_doctor_passes_without_a_model(cli: Cli, as_json: Json) -> None:
    found = as_json("doctor", "--port", "0")
    assert found["ok"] is True
    [model] = checks_named(found, "model")
    assert model["status"] == "warn"
    assert "set a provider's API key" in model["to_do"]
    [store] = checks_named(found, "store")
    assert (store["status"], store["to_do"]) == ("off", "run tellback chat to create it")
    for name in ("Anthropic", "local", "Ollama"):
        assert checks_named(found, f"model: {name}")[0]["status"] == "off"
    assert checks_named(found, "embedder")[0]["status"] == "ok"
    assert "No check failed." in cli("doctor", "--port", "0").stdout
    assert not Path("tellback.db").exists()


def test_doctor_counts_the_rows_of_a_store(as_json: Json) -> None:
    async def create_store() -> None:
        async with Tellback("tellback.db", worker=False) as tb:
            await tb.user("maya").conversations.create("chat")

    asyncio.run(create_store())
    [store] = checks_named(as_json("doctor", "--port", "0"), "store")
    assert store["status"] == "ok"
    assert "conversations: 1" in store["found"]


def test_doctor_detects_api_keys_and_never_prints_them(
    cli: Cli, as_json: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = as_json("doctor", "--port", "0")
    assert checks_named(found, "model: OpenAI")[0]["status"] == "ok"
    assert checks_named(found, "model")[0]["found"].startswith("gpt-5 is used")
    assert "sk-secret" not in json.dumps(found) + cli("doctor", "--port", "0").output


def test_doctor_warns_about_an_incomplete_model_setup(as_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLBACK_GGUF", "no-such.gguf")
    assert checks_named(as_json("doctor", "--port", "0"), "model: local")[0]["status"] == "warn"


def test_doctor_fails_for_an_unknown_model(as_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLBACK_MODEL", "gtp-5")
    [model] = checks_named(as_json("doctor", "--port", "0", code=1), "model")
    assert (model["status"], model["found"]) == ("fail", "gtp-5 (TELLBACK_MODEL is set)")


def test_doctor_fails_for_a_file_that_is_not_a_store(cli: Cli) -> None:
    Path("notes.txt").write_text("Not a database at all.")
    output = cli("doctor", "--url", "notes.txt", "--port", "0", code=1).stdout
    assert "is not a Tellback store" in output
    assert "1 check failed." in output


def test_doctor_suggests_another_port_if_the_port_is_in_use(as_json: Json) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [found] = checks_named(as_json("doctor", "--port", str(port)), "port")
    assert (found["status"], found["to_do"]) == ("warn", f"tellback serve --port {port + 1}")


def test_doctor_reads_the_extras_from_the_package_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "pydantic>=2.11",
        "rich>=13; extra == 'cli'",
        "no-such-package>=1; extra == 'console'",
        "tellback[cli]; extra == 'all'",
        "pytest; extra == 'dev'",
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: lines)
    assert diagnostics.packages_by_extra() == {"cli": ["rich"], "console": ["no-such-package"]}
    installed, lacking, console = diagnostics._check_extras()
    assert (installed.status, installed.found) == ("ok", "cli")
    assert (lacking.status, lacking.found) == ("off", "not installed: console")
    assert (console.status, console.to_do) == ("warn", "pip install 'tellback[console]'")


def test_bench_measures_import_append_turn_and_recall(cli: Cli, as_json: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellback.cli.maintenance.INTERPRETER_STARTS", 1)
    found = as_json("bench", "--atoms", "20", "--rounds", "3")
    assert [each["what"] for each in found["measures"]] == [
        "import Tellback",
        "append a message",
        "a turn",
        "recall from 20",
    ]
    assert all(0 < each["median_ms"] <= each["p95_ms"] and each["cpu_ms"] > 0 for each in found["measures"])
    assert "on this machine" in found["note"]
    assert "make bench" in cli("bench", "--atoms", "20", "--rounds", "3").stdout
    assert list(Path().iterdir()) == []


@pytest.fixture
def booking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "cli_booking.py").write_text(AGENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cli_booking", raising=False)
    return "cli_booking"


def test_agents_check_summarizes_valid_specs_and_locates_errors(cli: Cli, as_json: Json) -> None:
    good = (
        "name: support\nsystemPrompt: Help.\ntools:\n  - {type: RECALL_BY_TOPIC, name: recall, memorySpaceId: $space}\n"
    )
    Path("support.yaml").write_text(good)
    [found] = as_json("agents", "check", "support.yaml")
    assert (found["ok"], found["name"], found["arguments"]) == (True, "support", ["space", "userMessage"])
    assert found["tools"] == [{"name": "recall", "type": "RECALL_BY_TOPIC"}]
    assert "recall (RECALL_BY_TOPIC)" in cli("agents", "check", "support.yaml").stdout
    Path("wrong.json").write_text('{"name": "x", "toolz": []}')
    result = cli("agents", "check", "support.yaml", "wrong.json", code=1)
    assert "support.yaml: support" in result.stdout
    assert "wrong.json: Agent 'x', at toolz" in result.stderr
    assert [each["ok"] for each in as_json("agents", "check", ".", code=1)] == [True, False]
    assert "no routes to draw" in cli("agents", "check", "support.yaml", "--mermaid").stderr


def test_agents_check_summarizes_valid_module_agents_and_reports_errors(cli: Cli, as_json: Json, booking: str) -> None:
    output = cli("agents", "check", f"{booking}:agent").stdout
    assert "Book a flight when the user wants to fly" in output
    assert "Ask where to (gathers to)" in output
    [found] = as_json("agents", "check", f"{booking}:agent", "--mermaid")
    assert [route["title"] for route in found["routes"]] == ["Book a flight"]
    assert found["mermaid"].startswith("flowchart TD")
    assert cli("agents", "check", f"{booking}:agent", "--mermaid").stdout.startswith("flowchart TD")
    assert [each["name"] for each in as_json("agents", "check", f"{booking}:make")] == ["helper"]
    assert [each["name"] for each in as_json("agents", "check", f"{booking}:build")] == ["Wanda"]
    for name, words in (
        ("broken", "leads to the state 'missing'"),
        ("number", "Expected an agent or a list of agents, got int."),
        ("fail", "Loading failed: LookupError: no settings"),
        ("nothing", "AttributeError"),
    ):
        assert words in cli("agents", "check", f"{booking}:{name}", code=1).stderr


def test_agents_check_reports_missing_agents(cli: Cli) -> None:
    Path("empty").mkdir()
    assert "has no agents" in cli("agents", "check", "empty", code=2).stderr
    assert "There are no agents at nowhere" in cli("agents", "check", "nowhere", code=2).stderr
    assert "there is no file 'nowhere.yaml'" in cli("agents", "check", "nowhere.yaml", code=1).stderr
