"""Output of commands: tables and sentences for people, JSON for scripts, log lines on standard error.

Control characters are escaped, so stored text cannot control the terminal.
"""

from __future__ import annotations

import json
import logging
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.logging import RichHandler
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tellback.types.jsontext import to_json_value as to_json_value

T = TypeVar("T")

PIPE_WIDTH = 10_000
"""The width of output that goes to a file or a pipe: programs that read it expect one row per line."""

SHORT_LENGTH = 72
COLUMN_GAP = 2


def escape_controls(text: str) -> str:
    """Escape control characters. The text may come from anyone, and they could change the terminal's state.

    >>> escape_controls("red \\x1b[31malert")
    'red \\\\x1b[31malert'
    """
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else each.encode("unicode_escape").decode() for each in text)


def _is_harmless(character: str) -> bool:
    if character in "\n\t" or character.isprintable():
        return True
    # Python calls these unprintable, but ordinary text contains them: spaces, joiners and soft hyphens.
    return unicodedata.category(character) == "Zs" or character in "\u200c\u200d\u00ad"


def to_one_line(text: str, limit: int | None = None) -> str:
    """Return a text on one line, truncated to `limit` characters.

    >>> to_one_line("I moved\\nto Lisbon.", 10)
    'I moved t…'
    """
    flat = " ".join(escape_controls(text).split())
    return flat if limit is None or len(flat) <= limit else f"{flat[: limit - 1]}…"


def format_date(moment: datetime | None) -> str:
    """Format a date for tables."""
    return "" if moment is None else f"{moment:%Y-%m-%d}"


def format_minute(moment: datetime | None) -> str:
    """Format a date and time for tables."""
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M}"


def create_console(*, stderr: bool = False) -> Console:
    """Return the console that commands print to. It has the terminal's width, or `PIPE_WIDTH`."""
    file = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if file.isatty() else PIPE_WIDTH)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title_column: str | None = None) -> None:
    """Print a table with column headers.

    If the terminal is too narrow, print each row as a block that starts with `title_column`, or the last column.
    """
    terminal = create_console()
    cells = [[to_one_line(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths) + COLUMN_GAP * (len(widths) - 1) > terminal.width:
        _print_blocks(terminal, columns, cells, columns.index(title_column) if title_column else len(columns) - 1)
        return
    lines = [columns, *cells]
    for number, line in enumerate(lines):
        padded = (set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True))
        terminal.print(Text((" " * COLUMN_GAP).join(padded).rstrip(), style="" if number else "bold"))


def _print_blocks(terminal: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], title_index: int) -> None:
    for row in rows:
        terminal.print(Text(row[title_index], style="bold"))
        rest = [
            (name, cell) for index, (name, cell) in enumerate(zip(columns, row, strict=True)) if index != title_index
        ]
        parts = (cell if name == "ID" else f"{name.lower()} {cell}" for name, cell in rest if cell)
        terminal.print(Padding(Text(" · ".join(parts), style="dim"), (0, 0, 0, 2)))


def print_pairs(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values, one pair per line; pairs with an empty value are omitted."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        if value:
            table.add_row(Text(name), Text(escape_controls(value)))
    create_console().print(table)


def format_count(count: int, singular: str, plural: str | None = None) -> str:
    """Format a count with its noun.

    >>> format_count(1, "memory", "memories"), format_count(2, "job")
    ('1 memory', '2 jobs')
    """
    return f"{count} {singular if count == 1 else plural or f'{singular}s'}"


def print_line(text: str, *, style: str | None = None, stderr: bool = False) -> None:
    """Print a sentence literally: brackets are not markup."""
    create_console(stderr=stderr).print(Text(escape_controls(text)), style=style, soft_wrap=True)


def print_rows(
    found: Sequence[T],
    columns: Sequence[str],
    to_row: Callable[[T], Sequence[str]],
    *,
    as_json: bool,
    if_empty: str,
    title_column: str | None = None,
    to_json: Callable[[T], Any] | None = None,
) -> None:
    """Print results as a table or JSON. If there are none, print `if_empty` on standard error."""
    if as_json:
        print_json(found if to_json is None else [to_json(each) for each in found])
    elif found:
        print_table(columns, [to_row(each) for each in found], title_column=title_column)
    else:
        print_line(if_empty, stderr=True)


def print_outcome(value: Any, sentence: str, *, as_json: bool) -> None:
    """Print the outcome of a command: a sentence, or the value as JSON."""
    print_json(value) if as_json else print_line(sentence)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    typer.echo(to_json_line(value))


def to_json_line(value: Any) -> str:
    """Return a value as one line of JSON, with control characters escaped.

    >>> to_json_line({"at": datetime(2026, 3, 1), "text": "Olá\\x1b"})
    '{"at": "2026-03-01T00:00:00", "text": "Olá\\\\u001b"}'
    """
    return escape_json(json.dumps(to_json_value(value), ensure_ascii=False))


def escape_json(text: str) -> str:
    """Return equivalent JSON with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(each if _is_harmless(each) else json.dumps(each)[1:-1] for each in text)


def log_to_console(*, verbose: bool) -> None:
    """Write Tellback's log to standard error: in colour on a terminal, as plain lines elsewhere."""
    console = Console(stderr=True)
    handler: logging.Handler
    if console.is_terminal:
        handler = RichHandler(console=console, show_path=False)
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("tellback").setLevel(logging.DEBUG if verbose else logging.INFO)
