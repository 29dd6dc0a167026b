"""Tellback: `Persistence` with the adapter given as the argument, with its defaults."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import session_batches
from session_batches import GATHERED, TAIL

import tellback
from tellback import Persistence, SessionState
from tellback.agent import create_message_event, create_session, enter_route, enter_state, merge_extracted
from tellback.agent.sessions.serialization import events_to_messages
from tellback.sessions import PersistenceAdapter
from tellback.types.ids import utc_now

AGENT = "Wanda"
INSERT_BATCH = 500


def create_adapter(backend: str, location: str) -> PersistenceAdapter:
    match backend:
        case "memory":
            return tellback.sessions.InMemoryAdapter()
        case "sqlite":
            return tellback.sessions.SqliteAdapter(location)
        case "postgres":
            return tellback.sessions.PostgresAdapter(location)
        case "sqlalchemy":
            return tellback.sessions.SqlAlchemyAdapter(f"sqlite+aiosqlite:///{location}", auto_migrate=True)
        case "redis":
            return tellback.sessions.RedisAdapter(location)
        case "mongo":
            return tellback.sessions.MongoAdapter(location, "bench")
        case _:
            return tellback.sessions.OpenSearchAdapter(location)


class SessionStore:
    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._sessions: dict[str, SessionState] = {}

    async def open(self, location: str) -> None:
        self._persistence = Persistence(create_adapter(self._backend, location))
        await self._persistence.initialize()

    async def close(self) -> None:
        await self._persistence.disconnect()

    async def fill(self, id: str, texts: Sequence[str]) -> None:
        session = enter_state(enter_route(create_session(id), "book", "Book a flight"), "offer", "Offer the flights")
        session = replace(merge_extracted(session, GATHERED), version=1)
        await self._persistence.save(session, (), agent_name=AGENT, user_id="maya")
        self._sessions[id] = session
        events = [create_message_event(("customer", "agent")[n % 2], AGENT, text) for n, text in enumerate(texts)]
        rows = events_to_messages(session, events, "maya")
        for start in range(0, len(rows), INSERT_BATCH):
            await self._persistence.adapter.message_repository.add(rows[start : start + INSERT_BATCH], at=utc_now())

    async def save(self, id: str, question: str, answer: str) -> None:
        previous = self._sessions[id]
        self._sessions[id] = session = replace(previous, version=previous.version + 1)
        turn = [
            create_message_event("customer", "user", question),
            create_message_event("agent", AGENT, answer),
        ]
        await self._persistence.save(session, turn, agent_name=AGENT, user_id="maya")

    async def load(self, id: str) -> Sequence[str]:
        session = await self._persistence.load(id)
        assert session is not None
        assert session.extracted == GATHERED
        return [event.data.message for event in await self._persistence.history(id, TAIL)]


if __name__ == "__main__":
    session_batches.serve(lambda: SessionStore(sys.argv[1]), ["tellback"])
