"""Every `tellback ...` command in the README and the docs exists, with its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from tellback.cli.app import app
from tests.integration.test_docs import PAGES, ROOT

SHELL = re.compile(r"^```(?:console|bash|sh|shell)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(tellback [a-z][^`]*)`(?!`)")
COMMAND: Any = typer.main.get_command(app)
OPERATORS = {"|", "||", "&", "&&", ";", ">", ">>", "<", "2>"}


@dataclass(frozen=True)
class Line:
    """A command line; a complete one has all required arguments."""

    page: Path
    words: tuple[str, ...]
    is_complete: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {' '.join(self.words)}"


def lines(page: Path) -> Iterator[Line]:
    text = page.read_text()
    for block in SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield from _tellbacks(page, line.removeprefix("$ "), is_complete=True)
    for span in INLINE.findall(SHELL.sub("", text)):
        yield from _tellbacks(page, span, is_complete=False)


def _tellbacks(page: Path, line: str, *, is_complete: bool) -> Iterator[Line]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # output of a command
        return
    while words and re.fullmatch(r"[A-Z_]+=.*|sudo|exec|time|uv|run", words[0]):
        words.pop(0)
    if words[:1] != ["tellback"]:
        return
    end = next((index for index, word in enumerate(words) if word in OPERATORS), len(words))
    yield Line(page, tuple(words[1:end]), is_complete)


def problem(line: Line) -> str | None:
    """Return the error of the command line parser, or None."""
    command = COMMAND
    words = [word for word in line.words if word not in ("…", "...")]
    while (inner := getattr(command, "commands", None)) is not None:
        while words and words[0].startswith("-"):
            if words.pop(0) not in _options(command):
                return "has no such option"
        if not words:
            return "names no command" if line.is_complete and "--help" not in line.words else None
        if words[0] not in inner:
            return f"has no command {words[0]!r}"
        command = inner[words.pop(0)]
    return _arguments_problem(command, words, is_complete=line.is_complete)


def _options(command: Any) -> dict[str, Any]:
    options = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    return {"--help": None} | {name: option for name, option in options.items() if name.startswith("-")}


def _arguments_problem(command: Any, words: list[str], *, is_complete: bool) -> str | None:
    options = _options(command)
    given_options: set[str] = set()
    loose = 0
    while words:
        name, has_value, _ = words.pop(0).partition("=")
        if not name.startswith("-") or name == "-":
            loose += 1
            continue
        if name not in options:
            return f"has no option {name}"
        option = options[name]
        if option is None:
            return None  # --help
        given_options.add(option.name)
        if not option.is_flag and not has_value:
            if not words and is_complete:
                return f"gives {name} no value"
            del words[:1]
    arguments = [parameter for parameter in command.params if not parameter.opts[0].startswith("-")]
    if loose > len(arguments) and not any(argument.nargs == -1 for argument in arguments):
        return "has too many words"
    if not is_complete:
        return None
    if loose < sum(argument.required for argument in arguments):
        return "has too few words"
    needed = {option.name for option in options.values() if option and option.required and not option.envvar}
    return f"does not give {', '.join(sorted(needed - given_options))}" if needed - given_options else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_exists_with_its_options(page: Path) -> None:
    assert [f"{line} ({found})" for line in lines(page) if (found := problem(line))] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("serve --port 8000 --no-worker", None),
        ("serve --prot 8000", "has no option --prot"),
        ("serve --port", "gives --port no value"),
        ("swerve", "has no command 'swerve'"),
        ("keys create --url tellback.db --role app", None),
        ("keys revoke", "has too few words"),
        ("keys list --url tellback.db two words", "has too many words"),
    ],
)
def test_invalid_command_lines_are_detected(words: str, expected: str | None) -> None:
    assert problem(Line(ROOT / "README.md", tuple(words.split()), is_complete=True)) == expected


def test_enough_commands_are_found() -> None:
    assert sum(1 for page in PAGES for _ in lines(page)) >= 10
