"""The docstring examples on the site, and the paths and names on the architecture page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tools import prompts
from tools.doctests import fence

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tellback"
ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
PATH = re.compile(r"(?<![\w/.-])[a-z_]+(?:/[a-z_]+)*(?:\.py\b|/(?![\w/]))")
"""A module, or a folder with a slash at its end."""
CALL = re.compile(r"\b([A-Za-z_][\w.]*)\(\)")


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Add.", "Add."),
        ("Add.\n\n>>> 1 + 1\n2", "Add.\n\n```pycon\n>>> 1 + 1\n2\n```"),
        (">>> 1 + 1\n2\n\nThat is all.", "```pycon\n>>> 1 + 1\n2\n```\n\nThat is all."),
        (
            ">>> def f():\n...     pass\n\n>>> f()",
            "```pycon\n>>> def f():\n...     pass\n```\n\n```pycon\n>>> f()\n```",
        ),
    ],
)
def test_examples_in_docstrings_become_code_blocks(docstring: str, expected: str) -> None:
    assert fence(docstring) == expected


def test_the_page_about_prompts_shows_the_prompts_of_its_program() -> None:
    page = prompts.PAGE.read_text()
    assert prompts.fill_page(page) == page, "run python tools/prompts.py"


@cache
def defined_names(path: Path) -> frozenset[str]:
    """Return the functions, classes and constants of a module, and methods and fields as `Class.member`."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.update(target.id for target in targets if isinstance(target, ast.Name))
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    names.add(f"{node.name}.{member.name}")
                elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    names.add(f"{node.name}.{member.target.id}")
    return frozenset(names)


def is_defined(name: str, paths: list[Path]) -> bool:
    """Whether a module defines the name. A method may lack its class, and `parse_*` matches a prefix."""
    known = {known for path in paths for known in defined_names(path)}
    if name.endswith("*"):
        return any(each.startswith(name[:-1]) for each in known)
    return name in known or any(each.endswith(f".{name}") for each in known)


def named_paths(text: str) -> Iterator[tuple[str, list[tuple[str, Path | None]]]]:
    """Yield each line with its paths and their locations; a bare file name belongs to the last folder."""
    folder = SOURCE
    for line in text.splitlines():
        found: list[tuple[str, Path | None]] = []
        for name in PATH.findall(line):
            places = [base / name for base in (SOURCE, ROOT, folder) if (base / name).exists()]
            found.append((name, places[0] if places else None))
            if places and "/" in name:
                folder = places[0] if name.endswith("/") else places[0].parent
        yield line, found


def question_rows() -> list[list[str]]:
    section = ARCHITECTURE.read_text().split("## Where do I find")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_path_on_the_architecture_page_exists() -> None:
    lines = [*named_paths(ARCHITECTURE.read_text())]
    assert sum(len(found) for _, found in lines) > 60
    assert [(name, line) for line, found in lines for name, path in found if path is None] == []


def test_every_name_to_look_for_is_defined_in_the_file_of_its_row() -> None:
    rows = question_rows()
    assert len(rows) >= 15
    for question, files, names in rows:
        paths = [SOURCE / name for name in re.findall(r"`([\w/]+\.py)`", files)]
        for name in re.findall(r"`([^`]+)`", names):
            assert is_defined(name, paths), f"{question} {name} is not in {files}"


def test_every_call_in_the_message_diagrams_is_defined_in_the_file_of_its_line() -> None:
    for line, found in named_paths(ARCHITECTURE.read_text()):
        paths = [path for _, path in found if path is not None and path.suffix == ".py"]
        for name in CALL.findall(line):
            assert is_defined(name, paths), f"{name} is not defined in the file of this line: {line}"


def test_the_package_table_lists_exactly_the_existing_packages() -> None:
    section = ARCHITECTURE.read_text().split("## Packages")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    listed = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    packages = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert listed == packages - {"__init__"}


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("`turns/engine.py`", []),
        ("`turns/motor.py`, `stores/sqll/`", ["turns/motor.py", "stores/sqll/"]),
        ("`server/middleware/auth.py`, then headers.py", []),
        ("`server/auth.py`, then head.py", ["head.py"]),
    ],
)
def test_a_missing_path_is_detected(line: str, missing: list[str]) -> None:
    assert [name for _, found in named_paths(line) for name, path in found if path is None] == missing


def test_a_missing_name_is_detected() -> None:
    engine = [SOURCE / "turns" / "engine.py"]
    assert is_defined("TurnEngine.run", engine)
    assert is_defined("build_*", engine)
    assert not is_defined("TurnEngine.walk", engine)
    assert not is_defined("UserChat", engine)
