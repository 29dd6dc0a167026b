"""OpenAI Agents SDK: its `SQLiteSession` or `RedisSession`, which store only messages."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import session_batches
from agents import SQLiteSession
from agents.memory import Session
from session_batches import TAIL


class SessionStore:
    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        self._client: Any = None

    async def open(self, location: str) -> None:
        self._location = location
        if sys.argv[1] == "redis":
            import redis.asyncio

            self._client = redis.asyncio.from_url(location)

    async def close(self) -> None:
        for session in self._sessions.values():
            if isinstance(session, SQLiteSession):
                session.close()
        if self._client is not None:
            await self._client.aclose()

    async def fill(self, id: str, texts: Sequence[str]) -> None:
        self._sessions[id] = self._session(id)
        await self._sessions[id].add_items([_item(index, text) for index, text in enumerate(texts)])

    async def save(self, id: str, question: str, answer: str) -> None:
        await self._sessions[id].add_items([_item(0, question), _item(1, answer)])

    async def load(self, id: str) -> Sequence[str]:
        items: list[Any] = await self._sessions[id].get_items(limit=TAIL)
        return [item["content"] for item in items]

    def _session(self, id: str) -> Session:
        if self._client is None:
            return SQLiteSession(id, self._location)
        from agents.extensions.memory import RedisSession

        return RedisSession(id, redis_client=self._client)


def _item(index: int, text: str) -> Any:
    return {"role": ("user", "assistant")[index % 2], "content": text}


if __name__ == "__main__":
    session_batches.serve(SessionStore, ["openai-agents"])
