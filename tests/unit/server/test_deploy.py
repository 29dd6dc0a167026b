"""The files in deploy/ match the options and the repository."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import typer

from tellback.cli.app import app

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNIT = (DEPLOY / "tellback.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()
EXAMPLE = (DEPLOY / "tellback.env.example").read_text()


class Unit(configparser.RawConfigParser):
    """Parse a unit file, whose names may repeat."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> Unit:
    parser = Unit(strict=False)
    parser.read_string(UNIT)
    return parser


def variables() -> set[str]:
    """The environment variables that `tellback serve` reads."""
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return {str(option.envvar) for option in command.params if getattr(option, "envvar", None)}


def shutdown_seconds() -> float:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    return next(float(option.default) for option in command.params if option.name == "shutdown_seconds")


def test_every_option_has_an_environment_variable() -> None:
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    without = {option.name for option in command.params if not getattr(option, "envvar", None)}
    assert without <= {"verbose", "help"}


@pytest.mark.parametrize("text", [UNIT, CONTAINER, EXAMPLE], ids=["unit", "container", "example"])
def test_deployment_files_only_set_known_variables(text: str) -> None:
    names = set(re.findall(r"\bTELLBACK_[A-Z_]+", text))
    assert names
    assert names - {"TELLBACK_LOG_FORMAT"} <= variables()
    assert "TELLBACK_LOG_FORMAT" in variables()


def test_the_systemd_unit_is_sandboxed_and_waits_for_turns() -> None:
    service = unit()["Service"]
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["CapabilityBoundingSet"] == ""
    assert (service["KillSignal"], service["KillMode"]) == ("SIGTERM", "mixed")
    assert float(service["TimeoutStopSec"]) >= shutdown_seconds() + 15
    assert service["Restart"] == "on-failure"
    assert service["ExecStart"].split()[1:] == ["serve"]


def test_systemd_reports_no_problem_with_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd is not installed here")
    copy = tmp_path / "tellback.service"
    copy.write_text(UNIT.replace("/opt/tellback/bin/tellback", "/bin/true"))
    process = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True, timeout=50, check=False)
    lines = [line for line in process.stderr.splitlines() if "tellback.service" in line]
    assert lines == []


def commands() -> list[tuple[str, str]]:
    joined = CONTAINER.replace("\\\n", " ")
    lines = [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines]


def test_the_container_copies_only_existing_files() -> None:
    for name, arguments in commands():
        if name == "COPY":
            for source in arguments.split()[:-1]:
                assert (ROOT / source).exists(), source
    [extras] = re.findall(r"'\.\[(.*?)\]'", CONTAINER)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    assert {"cli", "server", "mcp", "postgres"} <= set(extras.split(","))


def test_the_container_runs_the_server_as_an_unprivileged_user() -> None:
    instructions = dict(commands())
    assert instructions["USER"] not in ("root", "0")
    assert json.loads(instructions["ENTRYPOINT"]) == ["tellback"]
    assert json.loads(instructions["CMD"]) == ["serve"]
    assert [name for name, _ in commands()].index("USER") > [name for name, _ in commands()].index("RUN")
    assert instructions["EXPOSE"] == "8765"
    assert instructions["FROM"] == "python:3.12-slim"


def test_the_containers_health_check_is_valid_python() -> None:
    check = dict(commands())["HEALTHCHECK"]
    program, flag, code = json.loads(check.partition("CMD ")[2])
    assert (program, flag) == ("python", "-c")
    compile(code, "HEALTHCHECK", "exec")
    assert "/health/ready" in code
