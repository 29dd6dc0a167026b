"""The command `tellback import`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tellback import importers
from tellback.cli.app import app
from tests.unit.importers.chat_exports import MARCH, gpt_chat, gpt_message, write_zip


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")  # no server listens there
    for name in ("TELLBACK_URL", "TELLBACK_USER", "TELLBACK_MODEL", "TELLBACK_GGUF"):
        monkeypatch.delenv(name, raising=False)
    chats = [gpt_chat(f"c{n}", gpt_message("user", f"I saw {n} birds."), at=MARCH + n) for n in range(3)]
    return write_zip(tmp_path / "export.zip", conversations_json=[*chats, gpt_chat("empty")])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["import", *arguments])


def test_importing_an_export_again_adds_nothing(export: Path) -> None:
    first = run("export.zip", "--user", "maya")
    assert first.exit_code == 0, first.output
    assert first.stdout == "Imported 3 chats with 3 messages.\nSkipped 1 chat: no messages.\nExtracted 3 memories.\n"
    assert "word for word" in first.stderr
    repeated = json.loads(run("export.zip", "--user", "maya", "--json").stdout)
    assert (repeated["chats"], repeated["already_there"], repeated["format"]) == (0, 3, "chatgpt")


def test_a_dry_run_creates_no_file(export: Path) -> None:
    result = run("export.zip", "--dry-run", "--since", "2024", "--limit", "2")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Would import 2 chats with 2 messages.\n")
    assert "Skipped 1 chat: limit reached." in result.stdout
    assert not Path("tellback.db").exists()


def test_a_dry_run_reports_an_invalid_store_path(export: Path) -> None:
    result = run("export.zip", "--dry-run", "--url", "t" * 300)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "File name too long." in result.stderr


def test_no_extract_does_not_resolve_the_model(export: Path) -> None:
    result = run("export.zip", "--no-extract", "--model", "no-such-model", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["memories"] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("none.zip",), "There is no file or folder 'none.zip'."),
        (("export.zip", "--format", "claude"), "it contains no chats of the format 'claude'"),
        (("export.zip", "--since", "whenever"), "is not a valid time"),
        (("export.zip", "--model", "no-such-model"), "Unknown model 'no-such-model'"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(export: Path, arguments: tuple[str, ...], sentence: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_ctrl_c_prints_how_to_continue(export: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importers, "import_chats", interrupted)
    result = run("export.zip")
    assert result.exit_code == 130
    assert "Run the same command again to continue" in result.stderr
