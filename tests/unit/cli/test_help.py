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
    """Yield every command, without groups and hidden aliases, by the words that run it."""
    for name, each in getattr(command, "commands", {}).items():
        if each.hidden:
            continue
        if hasattr(each, "commands"):
            yield from iter_commands(each, *path, name)
        else:
            yield " ".join((*path, name)), each


ALL = dict(iter_commands(get_command(app)))


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_and_examples(name: str) -> None:
    command = ALL[name]
    assert command.help
    assert command.help.partition("\n")[0].endswith(".")
    examples = (command.epilog or "").splitlines()[1:]
    assert examples
    assert all(line.startswith("  $ ") and "tellback " in line for line in examples)
    assert any(f"tellback {name}" in line for line in examples)
    assert all(option.help for option in command.params if option.name != "help")


@pytest.mark.parametrize("name", [name for name in ALL if name not in PRINTS_NO_DATA])
def test_every_command_that_prints_data_has_a_json_option(name: str) -> None:
    assert any("--json" in option.opts for option in ALL[name].params)


@pytest.mark.parametrize("name", [each for each in ALL if each.split()[0] not in ("agents", "bench", "demo")])
def test_every_command_reads_its_store_url_from_the_environment(name: str) -> None:
    [url] = [option for option in ALL[name].params if "--url" in option.opts]
    assert url.envvar == "TELLBACK_URL"


def test_examples_use_only_existing_options(cli: Cli) -> None:
    for name, command in ALL.items():
        for line in (command.epilog or "").splitlines()[1:]:
            _, _, rest = line.partition(f"tellback {name}")
            known = {spelling for option in command.params for spelling in (*option.opts, *option.secondary_opts)}
            used = {word for word in rest.split() if word.startswith("-") and word != "-"}
            assert used <= known, (name, used - known)


def test_help_groups_the_commands(cli: Cli) -> None:
    output = cli("--help").stdout
    for panel in ("Chat", "Memory", "Data", "Server", "Diagnostics"):
        assert panel in output
    assert "tellback chat" in output


def test_a_groups_help_lists_its_commands(cli: Cli) -> None:
    output = cli("atoms", "--help").stdout
    assert all(name in output for name in ("list", "show", "add", "supersede", "archive"))


def test_version_prints_the_version(cli: Cli) -> None:
    assert cli("--version").stdout == f"tellback {__version__}\n"


def test_help_imports_no_heavy_packages() -> None:
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


def test_command_names_are_unique() -> None:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    names = [each.name or each.callback.__name__ for each in app.registered_commands if each.callback is not None]
    assert len(group.commands) == len(names) + len(app.registered_groups)
