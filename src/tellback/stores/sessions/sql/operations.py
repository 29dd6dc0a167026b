"""What is done with sessions and messages, written once for both databases."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from tellback.errors import NotFoundError, SessionConflictError
from tellback.stores.sessions.saving import counted
from tellback.stores.sessions.sql.dialect import Dialect, Make, Operation, Step
from tellback.stores.sessions.sql.statements import Statements
from tellback.stores.sessions.sql.values import message_values, moment_value, session_values, to_message, to_session
from tellback.types.sessions import MessageData, SessionData

Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Operations:
    """Makes the operations of one adapter. What cannot be stored is refused here, before anything is sent."""

    statements: Statements
    dialect: Dialect
    session_ttl: float | None
    message_ttl: float | None

    def create(self, session: SessionData) -> Make[SessionData]:
        """Store a session whose id is new."""
        return partial(self._create, self._session(session))

    def save(self, session: SessionData, new: Sequence[MessageData]) -> Make[SessionData]:
        """Store a session after a turn, and the messages of that turn."""
        counts = {"count": len(new), "last_message_at": self._last(new), "expected": session.version - 1}
        first = self._session(counted(replace(session, message_count=0), new))
        return partial(self._save, {**self._session(session), **counts}, first, self._messages(new))

    def add(self, new: Sequence[MessageData], at: Any) -> Make[list[MessageData]]:
        """Append messages to a session, and count them in it."""
        counts = {"count": len(new), "last_message_at": self._last(new), "updated_at": at, "ttl": self.session_ttl}
        return partial(self._add, {"id": new[0].session_id, **counts}, self._messages(new), copy.deepcopy(new))

    def set_status(self, values: Values) -> Make[SessionData | None]:
        """Change a session's status."""
        return partial(self._set_status, {**values, "ttl": self.session_ttl})

    def delete(self, id: str) -> Make[bool]:
        """Delete a session and its messages."""
        return partial(self._delete, {"id": id})

    def purge(self, statement: str, limit: int) -> Make[int]:
        """Delete some of what is past its time, and count it."""
        return partial(_count, Step(statement, {"limit": limit}))

    def sessions(self, statement: str, values: Values) -> Make[list[SessionData]]:
        """The sessions that a statement finds."""
        return partial(_sessions, Step(statement, values))

    def messages(self, statement: str, values: Values) -> Make[list[MessageData]]:
        """The messages that a statement finds."""
        return partial(_messages, Step(statement, values))

    def _create(self, values: Values) -> Operation[SessionData]:
        rows = yield Step(self.statements.begin_session, values)
        if not rows:
            raise SessionConflictError(values["id"], 0, (yield from self._version(values["id"])))
        return to_session(rows[0])

    def _save(self, turn: Values, first: Values, new: Sequence[Values]) -> Operation[SessionData]:
        """The row that is changed first is locked until the end, so nobody else gives positions meanwhile."""
        id, expected = turn["id"], turn["expected"]
        rows = yield Step(self.statements.go_on, turn)
        if not rows and expected == 0:
            rows = yield Step(self.statements.begin_session, first)
            if not rows:  # it was created just now
                rows = yield Step(self.statements.go_on, turn)
        if not rows:
            raise SessionConflictError(id, expected, (yield from self._version(id)))
        saved = to_session(rows[0])
        yield from self._append(id, new, saved.message_count)
        return saved

    def _add(
        self, session: Values, new: Sequence[Values], given: Sequence[MessageData]
    ) -> Operation[list[MessageData]]:
        rows = yield Step(self.statements.count_on, session)
        if not rows:
            raise NotFoundError("session", session["id"])
        first = yield from self._append(session["id"], new, int(rows[0][0]))
        return [replace(each, position=first + n) for n, each in enumerate(given)]

    def _set_status(self, values: Values) -> Operation[SessionData | None]:
        rows = yield Step(self.statements.set_status, values)
        return to_session(rows[0]) if rows else None

    def _delete(self, values: Values) -> Operation[bool]:
        rows = yield Step(self.statements.hold, values)
        # Where there is no session, one may begin at this moment: its messages are not to be deleted.
        yield Step(self.statements.delete_messages if rows else self.statements.delete_left, values)
        if rows:
            yield Step(self.statements.delete_session, values)
        return bool(rows and rows[0][0])

    def _append(self, id: str, new: Sequence[Values], count: int) -> Operation[int]:
        """Add messages behind those that are there, or were counted and are gone; gives the position of the first."""
        if not new:
            return 0
        rows = yield Step(self.statements.last_position, {"id": id})
        first = max(int(rows[0][0]) if rows else 0, count - len(new)) + 1
        many = [{**each, "position": first + n} for n, each in enumerate(new)]
        yield Step(self.statements.add_message, {}, many)
        return first

    def _version(self, id: str) -> Operation[int]:
        rows = yield Step(self.statements.version, {"id": id})
        return int(rows[0][0] or 0) if rows else 0

    def _session(self, session: SessionData) -> dict[str, Any]:
        return {**session_values(session, self.dialect), "ttl": self.session_ttl}

    def _messages(self, new: Sequence[MessageData]) -> list[dict[str, Any]]:
        return [{**message_values(each, self.dialect), "ttl": self.message_ttl} for each in new]

    def _last(self, new: Sequence[MessageData]) -> Any:
        return moment_value("created_at", new[-1].created_at, self.dialect) if new else None


def _sessions(step: Step) -> Operation[list[SessionData]]:
    rows = yield step
    return [to_session(row) for row in rows]


def _messages(step: Step) -> Operation[list[MessageData]]:
    rows = yield step
    return [to_message(row) for row in rows]


def _count(step: Step) -> Operation[int]:
    rows = yield step
    return len(rows)
