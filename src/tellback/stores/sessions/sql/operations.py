"""What is done with sessions and messages, written once for both databases."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores.sessions.saving import count_messages
from tellback.stores.sessions.sql.dialect import BoundStatement, OperationFactory, SqlDialect, SqlOperation
from tellback.stores.sessions.sql.statements import Statements
from tellback.stores.sessions.sql.values import (
    message_from_row,
    message_values,
    optional_time_value,
    session_from_row,
    session_values,
)
from tellback.types.sessions import MessageData, SessionData

BoundValues: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SqlOperations:
    """Makes the operations of one adapter. What cannot be stored is refused here, before anything is sent."""

    statements: Statements
    dialect: SqlDialect
    session_ttl: float | None
    message_ttl: float | None

    def create(self, session: SessionData) -> OperationFactory[SessionData]:
        """Store a session whose id is new."""
        return partial(self._create, self._session_values(session))

    def save(self, session: SessionData, messages: Sequence[MessageData]) -> OperationFactory[SessionData]:
        """Store a session after a turn, and the messages of that turn."""
        counts = {
            "count": len(messages),
            "last_message_at": self._last_message_time(messages),
            "expected": session.version - 1,
        }
        first_turn = self._session_values(count_messages(replace(session, message_count=0), messages))
        return partial(
            self._save, {**self._session_values(session), **counts}, first_turn, self._message_values(messages)
        )

    def add(self, messages: Sequence[MessageData], at: Any) -> OperationFactory[list[MessageData]]:
        """Append messages to a session, and count them in it."""
        counts = {
            "count": len(messages),
            "last_message_at": self._last_message_time(messages),
            "updated_at": at,
            "ttl": self.session_ttl,
        }
        return partial(
            self._add, {"id": messages[0].session_id, **counts}, self._message_values(messages), copy.deepcopy(messages)
        )

    def set_status(self, values: BoundValues) -> OperationFactory[SessionData | None]:
        """Change a session's status."""
        return partial(self._set_status, {**values, "ttl": self.session_ttl})

    def delete(self, id: str) -> OperationFactory[bool]:
        """Delete a session and its messages."""
        return partial(self._delete, {"id": id})

    def purge(self, statement: str, limit: int) -> OperationFactory[int]:
        """Delete some of what is past its time, and count it."""
        return partial(_count_rows, BoundStatement(statement, {"limit": limit}))

    def sessions(self, statement: str, values: BoundValues) -> OperationFactory[list[SessionData]]:
        """The sessions that a statement finds."""
        return partial(_fetch_sessions, BoundStatement(statement, values))

    def messages(self, statement: str, values: BoundValues) -> OperationFactory[list[MessageData]]:
        """The messages that a statement finds."""
        return partial(_fetch_messages, BoundStatement(statement, values))

    def _create(self, values: BoundValues) -> SqlOperation[SessionData]:
        rows = yield BoundStatement(self.statements.insert_session, values)
        if not rows:
            raise SessionConflictError(values["id"], 0, (yield from self._read_version(values["id"])))
        return session_from_row(rows[0])

    def _save(
        self, turn: BoundValues, first_turn: BoundValues, message_rows: Sequence[BoundValues]
    ) -> SqlOperation[SessionData]:
        """The row that is changed first is locked until the end, so nobody else gives positions meanwhile."""
        id, expected = turn["id"], turn["expected"]
        rows = yield BoundStatement(self.statements.update_turn, turn)
        if not rows and expected == 0:
            rows = yield BoundStatement(self.statements.insert_session, first_turn)
            if not rows:  # it was created just now
                rows = yield BoundStatement(self.statements.update_turn, turn)
        if not rows:
            raise SessionConflictError(id, expected, (yield from self._read_version(id)))
        saved = session_from_row(rows[0])
        yield from self._append(id, message_rows, saved.message_count)
        return saved

    def _add(
        self, counts: BoundValues, message_rows: Sequence[BoundValues], messages: Sequence[MessageData]
    ) -> SqlOperation[list[MessageData]]:
        rows = yield BoundStatement(self.statements.update_message_count, counts)
        if not rows:
            raise NotFoundError("session", counts["id"])
        first_position = yield from self._append(counts["id"], message_rows, int(rows[0][0]))
        return [replace(each, position=first_position + n) for n, each in enumerate(messages)]

    def _set_status(self, values: BoundValues) -> SqlOperation[SessionData | None]:
        rows = yield BoundStatement(self.statements.update_status, values)
        return session_from_row(rows[0]) if rows else None

    def _delete(self, values: BoundValues) -> SqlOperation[bool]:
        rows = yield BoundStatement(self.statements.lock_session, values)
        # Where there is no session, one may begin at this moment: its messages are not to be deleted.
        yield BoundStatement(
            self.statements.delete_messages if rows else self.statements.delete_orphaned_messages, values
        )
        if rows:
            yield BoundStatement(self.statements.delete_session, values)
        return bool(rows and rows[0][0])

    def _append(self, id: str, message_rows: Sequence[BoundValues], count: int) -> SqlOperation[int]:
        """Add messages behind those that are there, or were counted and are gone; gives the position of the first."""
        if not message_rows:
            return 0
        rows = yield BoundStatement(self.statements.select_last_position, {"id": id})
        first_position = max(int(rows[0][0]) if rows else 0, count - len(message_rows)) + 1
        positioned = [{**each, "position": first_position + n} for n, each in enumerate(message_rows)]
        yield BoundStatement(self.statements.insert_message, {}, positioned)
        return first_position

    def _read_version(self, id: str) -> SqlOperation[int]:
        rows = yield BoundStatement(self.statements.select_version, {"id": id})
        return int(rows[0][0] or 0) if rows else 0

    def _session_values(self, session: SessionData) -> dict[str, Any]:
        return {**session_values(session, self.dialect), "ttl": self.session_ttl}

    def _message_values(self, messages: Sequence[MessageData]) -> list[dict[str, Any]]:
        return [{**message_values(each, self.dialect), "ttl": self.message_ttl} for each in messages]

    def _last_message_time(self, messages: Sequence[MessageData]) -> Any:
        return optional_time_value("created_at", messages[-1].created_at, self.dialect) if messages else None


def _fetch_sessions(step: BoundStatement) -> SqlOperation[list[SessionData]]:
    rows = yield step
    return [session_from_row(row) for row in rows]


def _fetch_messages(step: BoundStatement) -> SqlOperation[list[MessageData]]:
    rows = yield step
    return [message_from_row(row) for row in rows]


def _count_rows(step: BoundStatement) -> SqlOperation[int]:
    rows = yield step
    return len(rows)
