"""Every command in docs/howto/cli.md runs, in order."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli
from tests.unit.cli.test_diagnostics import AGENT
from tests.unit.cli.test_memory import add_people

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[3] / "docs" / "howto" / "cli.md").read_text()
SCRIPT = """__import__("tellback.testing").testing.ScriptedModel(
    [__import__("tellback.testing").testing.understands(route="Book a flight"), "Where to?"])"""
TYPED = re.findall(r"^\$ tellback (.*)$", PAGE, re.MULTILINE)


def test_every_command_of_the_page_runs(
    cli: Cli, as_json: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "support.yaml").write_text("name: support\nsystemPrompt: Speak $tone.\n")
    (tmp_path / "my_app").mkdir()
    (tmp_path / "my_app" / "booking.py").write_text(AGENT.replace('"gpt-5"', SCRIPT))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("tellback.cli.maintenance.INTERPRETER_STARTS", 1)
    add_people("Lena", "Helena")
    for line in TYPED:
        for kind, listing in (("conv_…", "conversations"), ("atom_…", "atoms")):
            if kind in line:
                line = line.replace(kind, as_json(listing, "list", "--user", "maya")[0]["id"], 1)
        answer = "Hello!\n" if line.startswith("chat") else None
        result = cli(*shlex.split(line), input=answer)
        assert "Traceback" not in result.output, line
        sys.modules.pop("my_app.booking", None)
    assert len(TYPED) > 30
