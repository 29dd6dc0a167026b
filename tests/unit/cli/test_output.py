from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tellback.cli import output
from tellback.cli.output import escape_controls, print_pairs, print_table, to_json_line, to_one_line
from tellback.types.access import Scope


@given(st.text())
def test_escaped_text_contains_no_control_characters(text: str) -> None:
    escaped = escape_controls(text)
    assert not any((ord(each) < 32 and each not in "\n\t") or 127 <= ord(each) < 160 for each in escaped)
    assert not any(each in escaped for each in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    escaped.encode()  # no lone surrogates either


def test_ordinary_text_is_unchanged() -> None:
    text = "Olá, 東京! 👩\u200d🔧 naïve\u00a0space\n\ttab"
    assert escape_controls(text) == text


@given(st.text())
def test_json_without_control_characters_has_the_same_value(text: str) -> None:
    line = to_json_line({"text": text})
    assert json.loads(line) == {"text": text}
    assert "\n" not in line
    assert escape_controls(line) == line


def test_values_are_serialized_by_their_fields() -> None:
    value = {"scope": Scope("acme", "web", "maya"), "at": datetime(2026, 3, 1, tzinfo=UTC), "set": frozenset({1})}
    assert json.loads(to_json_line(value)) == {
        "scope": {"tenant_id": "acme", "app_id": "web", "user_id": "maya"},
        "at": "2026-03-01T00:00:00+00:00",
        "set": [1],
    }


def test_a_long_line_is_truncated() -> None:
    assert to_one_line("one\ntwo  three", 7) == "one tw…"


def test_markup_and_emoji_codes_are_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "TEXT"), [("1", "[red]stop[/red] :smile: \x1b[31m")])
    print_pairs([("text", "[bold]x[/bold]"), ("left out", "")])
    printed = capsys.readouterr().out
    assert "[red]stop[/red] :smile: \\x1b[31m" in printed
    assert "[bold]x[/bold]" in printed
    assert "left out" not in printed


def test_without_a_terminal_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("ID", "TEXT"), [("1", "word " * 100), ("22", "")])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "ID  TEXT"
    assert first == "1   " + ("word " * 100).strip()
    assert second == "22"


def test_on_a_narrow_terminal_rows_become_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(output, "create_console", lambda **_: Console(file=file, width=30, highlight=False))
    print_table(("ID", "SOURCE", "TEXT"), [("atom_1", "conv_1", "She moved to Lisbon in March.")])
    assert file.getvalue().splitlines() == ["She moved to Lisbon in March.", "  atom_1 · source conv_1      "]
