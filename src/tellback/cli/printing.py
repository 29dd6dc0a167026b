"""What commands print: tables for people, JSON for scripts, and nothing that a terminal could take for an order."""

from __future__ import annotations

import dataclasses
import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

WIDE = 10_000
"""The width where there is no terminal: whoever reads a file or a pipe wants a row on a line."""

SHORT = 72
GAP = 2


def safe(text: str) -> str:
    """A text whose control characters are written out: it may be from anyone, and terminals obey such characters.

    >>> safe("red \\x1b[31malert")
    'red \\\\x1b[31malert'
    """
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else _written_out(each) for each in text)


def _is_harmless(character: str) -> bool:
    if character in "\n\t" or character.isprintable():
        return True
    # Not "printable" to Python, yet part of ordinary text: other spaces, and what joins letters and emoji.
    return unicodedata.category(character) == "Zs" or character in "\u200c\u200d\u00ad"


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode()


def one_line(text: str, limit: int | None = None) -> str:
    """A text on one line, cut where it is longer than that.

    >>> one_line("I moved\\nto Lisbon.", 10)
    'I moved t…'
    """
    shown = " ".join(safe(text).split())
    return shown if limit is None or len(shown) <= limit else f"{shown[: limit - 1]}…"


def day(moment: datetime | None) -> str:
    """A date, as tables show it."""
    return "" if moment is None else f"{moment:%Y-%m-%d}"


def minute(moment: datetime | None) -> str:
    """A date and a time, as tables show them."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def console(*, stderr: bool = False) -> Console:
    """Where commands print to: on a terminal as wide as that is, and elsewhere as wide as need be."""
    file = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if file.isatty() else WIDE)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, head: str | None = None) -> None:
    """Print rows under the names of their columns.

    Where a terminal is too narrow for that, each row is a block that begins with the column `head`, or the last one.
    """
    screen = console()
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + GAP * (len(widths) - 1) > screen.width:
        _show_blocks(screen, columns, cells, columns.index(head) if head else len(columns) - 1)
        return
    lines = [columns, *cells]
    for number, line in enumerate(lines):
        padded = (set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True))
        screen.print(Text((" " * GAP).join(padded).rstrip(), style="" if number else "bold"))


def _show_blocks(screen: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], head: int) -> None:
    for row in rows:
        screen.print(Text(row[head], style="bold"))
        rest = [(name, cell) for place, (name, cell) in enumerate(zip(columns, row, strict=True)) if place != head]
        shown = (cell if name == "ID" else f"{name.lower()} {cell}" for name, cell in rest if cell)
        screen.print(Padding(Text(" · ".join(shown), style="dim"), (0, 0, 0, 2)))


def show_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print what is known of one thing, a line for each part that there is."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            table.add_row(Text(name), Text(safe(value)))
    console().print(table)


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number of things, in words.

    >>> counted(1, "memory", "memories"), counted(2, "job")
    ('1 memory', '2 jobs')
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def say(text: str, *, style: str | None = None, stderr: bool = False) -> None:
    """Print a sentence as it is: brackets in it are no markup."""
    console(stderr=stderr).print(Text(safe(text)), style=style, soft_wrap=True)


def show_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(json_line(value))


def json_line(value: Any) -> str:
    """A value as one line of JSON, in which every character that is not harmless is escaped.

    >>> json_line({"at": datetime(2026, 3, 1), "text": "Olá\\x1b"})
    '{"at": "2026-03-01T00:00:00", "text": "Olá\\\\u001b"}'
    """
    return harmless_json(json.dumps(plain(value), ensure_ascii=False))


def harmless_json(text: str) -> str:
    """JSON that means the same, in which every character that is not harmless is escaped."""
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else json.dumps(each)[1:-1] for each in text)


def plain(value: Any) -> Any:
    """A value of ours as JSON has it: fields by their names, moments in ISO 8601."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)
