"""Commands run in this process, in a folder of their own, with nothing set up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tellback.cli.app import app

Cli = Callable[..., Result]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("TELLBACK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")  # nobody answers there
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli() -> Cli:
    """Runs a command; whatever it raises beside its exit code is the test's."""
    runner = CliRunner()

    def run(*arguments: str, input: str | None = None, code: int = 0) -> Result:
        result = runner.invoke(app, list(arguments), input=input, catch_exceptions=False)
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        return result

    return run


@pytest.fixture
def as_json(cli: Cli) -> Callable[..., Any]:
    """Runs a command with --json, and reads what it prints."""

    def run(*arguments: str, input: str | None = None, code: int = 0) -> Any:
        return json.loads(cli(*arguments, "--json", input=input, code=code).stdout)

    return run


@pytest.fixture
def error_output(cli: Cli) -> Callable[..., str]:
    """Runs a command that fails; gives the one sentence it says, without a word on standard output."""

    def run(*arguments: str, input: str | None = None, code: int = 2) -> str:
        result = cli(*arguments, input=input, code=code)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return " ".join(result.stderr.split())

    return run
