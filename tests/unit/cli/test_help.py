from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.main import get_command

from tellback import __version__
from tellback.cli.app import app
from tests.unit.cli.conftest import Cli

PRINTS_NO_DATA = {"serve", "mcp", "worker", "demo"}


def iter_commands(command: Any, *path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words one types."""
    for name, each in getattr(command, "commands", {}).items():
        if hasattr(each, "commands"):
            yield from iter_commands(each, *path, name)
        else:
            yield " ".join((*path, name)), each


ALL = dict(iter_commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_every_command_explains_itself_and_shows_what_one_would_type(name: str) -> None:
    command = ALL[name]
    assert command.help
    assert command.help.partition("\n")[0].endswith(".")
    examples = (command.epilog or "").splitlines()[1:]
    assert examples
    assert all(line.startswith("  $ ") and "tellback " in line for line in examples)
    assert any(f"tellback {name}" in line for line in examples)
    assert all(option.help for option in command.params if option.name != "help")


@pytest.mark.parametrize("name", [name for name in ALL if name not in PRINTS_NO_DATA])
def test_every_command_that_prints_data_prints_json(name: str) -> None:
    assert any("--json" in option.opts for option in ALL[name].params)


@pytest.mark.parametrize("name", [each for each in ALL if each.split()[0] not in ("agents", "bench", "demo")])
def test_every_command_takes_its_store_from_the_environment(name: str) -> None:
    [url] = [option for option in ALL[name].params if "--url" in option.opts]
    assert url.envvar == "TELLBACK_URL"


def test_what_is_typed_in_examples_is_taken(cli: Cli) -> None:
    """The options that examples name are there: each is parsed up to what it would do."""
    for name, command in ALL.items():
        for line in (command.epilog or "").splitlines()[1:]:
            _, _, rest = line.partition(f"tellback {name}")
            known = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
            used = {word for word in rest.split() if word.startswith("-") and word != "-"}
            assert used <= known, (name, used - known)


def test_help_groups_the_commands(cli: Cli) -> None:
    output = cli("--help").stdout
    for panel in ("Talk", "Memory", "What is kept", "Run", "Look and check"):
        assert panel in output
    assert "tellback chat" in output


def test_a_groups_help_lists_its_commands(cli: Cli) -> None:
    output = cli("atoms", "--help").stdout
    assert all(name in output for name in ("list", "show", "add", "supersede", "archive"))


def test_the_version_is_told(cli: Cli) -> None:
    assert cli("--version").stdout == f"tellback {__version__}\n"


def test_help_loads_no_server_no_arrays_and_no_sdk() -> None:
    heavy = ("numpy", "pydantic", "fastapi", "uvicorn", "nicegui", "sqlite3", "asyncpg", "anthropic", "openai", "httpx")
    code = (
        "import sys; from tellback.cli.app import app; app(['--help'], standalone_mode=False);"
        f"sys.exit(', '.join(name for name in {heavy} if name in sys.modules) or 0)"
    )
    env = {**os.environ, "PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False, env=env
    )
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert "tellback" in result.stdout


def test_names_of_commands_do_not_clash() -> None:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    names = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback is not None]
    assert len(group.commands) == len(names) + len(app.registered_groups)
