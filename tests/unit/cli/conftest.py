"""Fixtures that run commands in this process, in a temporary folder, with no settings in the environment."""

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
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")  # no server listens there
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli() -> Cli:
    """Run a command and check its exit code; unexpected exceptions propagate."""
    runner = CliRunner()

    def run(*arguments: str, input: str | None = None, code: int = 0) -> Result:
        result = runner.invoke(app, list(arguments), input=input, catch_exceptions=False)
        assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
        return result

    return run


@pytest.fixture
def as_json(cli: Cli) -> Callable[..., Any]:
    """Run a command with --json and parse its output."""

    def run(*arguments: str, input: str | None = None, code: int = 0) -> Any:
        return json.loads(cli(*arguments, "--json", input=input, code=code).stdout)

    return run


@pytest.fixture
def error_output(cli: Cli) -> Callable[..., str]:
    """Run a failing command and return its error message; standard output must be empty."""

    def run(*arguments: str, input: str | None = None, code: int = 2) -> str:
        result = cli(*arguments, input=input, code=code)
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        return " ".join(result.stderr.split())

    return run
