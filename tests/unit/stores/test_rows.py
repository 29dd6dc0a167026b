"""Building values from rows by column names, and the values that statements bind."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from tellback.stores import rows
from tellback.types.access import Scope
from tellback.types.conversations import Conversation, SessionData
from tellback.types.jobs import Binding, ConversationScope, ExtractionPolicy
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, Citation

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MAYA = Scope("acme", "support", "maya")


def read_back(values: dict[str, object], *, reverse: bool = False) -> sqlite3.Row:
    """Return the values as a row of SQLite, with the columns in either order."""
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    names = sorted(values, reverse=reverse)
    columns = ", ".join(f"? AS {name}" for name in names)
    row: sqlite3.Row = connection.execute(f"SELECT {columns}", [values[name] for name in names]).fetchone()
    connection.close()
    return row


CONVERSATION = Conversation(
    "conv_1", MAYA, "daily", "open", NOON, NOON, metadata={"a": [1]}, close_after=timedelta(seconds=90)
)
BINDING = Binding(
    *("bind_1", "acme", "support"),
    conversation_scope=(ConversationScope("daily", "maya"),),
    memory_space_ids=("ms_1", "ms_2"),
    memory_space_names=("notes", "x"),
    extraction_policy=ExtractionPolicy(windowed=True, window_turns=3),
    created_at=NOON,
    updated_at=NOON,
    enabled=False,
)


@pytest.mark.parametrize("reverse", [False, True])
def test_bound_values_are_read_back_in_any_column_order(reverse: bool) -> None:
    owner = {"tenant_id": "acme", "app_id": "support", "user_id": "maya"}
    assert rows.CONVERSATION.read(read_back(rows.row_values(CONVERSATION, **owner), reverse=reverse)) == CONVERSATION
    assert rows.BINDING.read(read_back(rows.row_values(BINDING, **owner), reverse=reverse)) == BINDING


def test_a_reader_accepts_rows_with_different_columns() -> None:
    values = rows.row_values(CONVERSATION, tenant_id="acme", app_id="support", user_id="maya")
    first, second = read_back(values), read_back({**values, "a_further": 1}, reverse=True)
    assert [rows.CONVERSATION.read(row) for row in (first, second, values)] == [CONVERSATION] * 3
    assert rows.CONVERSATION.read_all([first, first]) == [CONVERSATION] * 2
    assert rows.CONVERSATION.read_first([]) is None


def test_null_is_read_as_none_or_the_fields_default() -> None:
    atom = Atom("atom_1", "ms_1", MAYA, "Lives in Rome", Category("fact", CategoryKind.FACT), NOON, NOON, NOON)
    values = rows.row_values(atom, tenant_id="acme", app_id="support", user_id="maya", category="fact", kind="FACT")
    assert values["other_sources"] is None
    assert values["status"] == AtomStatus.ACTIVE.value
    assert rows.ATOM.read(read_back(values)) == atom
    cited = rows.ATOM.read(read_back({**values, "other_sources": '[["conv_2",["msg_3"]]]', "valid_to": 0}))
    assert cited.other_sources == (Citation("conv_2", ("msg_3",)),)
    assert cited.valid_to == datetime(1970, 1, 1, tzinfo=UTC)


def test_row_values_do_not_bind_the_scope() -> None:
    session = SessionData("web-42", user_id="noah")
    assert not {"tenant_id", "app_id", "user_id"} & rows.session_values(session).keys()
    assert not {"tenant_id", "app_id", "user_id"} & rows.binding_values(BINDING, 7).keys()


def test_a_binding_of_one_user_stores_that_users_id() -> None:
    assert rows.binding_values(BINDING, 7)["single_user_id"] == "maya"
    assert rows.binding_values(BINDING, 7)["windowed"] == 1
