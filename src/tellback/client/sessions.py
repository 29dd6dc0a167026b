"""A user's sessions with an agent, on a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.agent import Event
from tellback.agent.message_data import message_to_events
from tellback.client.handle import RemoteHandle
from tellback.client.pages import PAGE_SIZE, list_all
from tellback.client.transport import Transport, build_path
from tellback.client.values import encode_arguments, encode_metadata
from tellback.conversations import checks
from tellback.errors import NotFoundError
from tellback.types.sessions import MessageData, SessionData, SessionStatus
from tellback.wire.sessions import SessionMessageWire, SessionWire


class RemoteSessions(RemoteHandle):
    """The methods of `Persistence`, for one user and one agent. How the agent got where it is stays on the server."""

    def __init__(self, transport: Transport, user: str | None, agent: str) -> None:
        super().__init__(transport, user)
        self._agent = agent

    async def create_session(
        self, id: str | None = None, *, initial_data: Mapping[str, Any] | None = None
    ) -> SessionData:
        """Begin a session. Raises `SessionConflictError` if its id is taken."""
        return _decode_session(
            await self._post(self._sessions_path(), encode_arguments(id=id, initial_data=encode_metadata(initial_data)))
        )

    async def get_session(self, session_id: str) -> SessionData | None:
        """A session, or None if there is none of that id."""
        found = await self._get_by_name("ai-agents", self._agent, "sessions", session_id)
        return None if found is None else _decode_session(found)

    async def find_active_session(self) -> SessionData | None:
        """The active session that was created last."""
        found = await self.get_user_sessions(limit=1, status="active")
        return found[0] if found else None

    async def get_user_sessions(
        self, limit: int | None = None, *, status: SessionStatus | None = None
    ) -> list[SessionData]:
        """The user's sessions, those created last first."""
        query = encode_arguments(status=status)
        return await list_all(self._transport, self._sessions_path(), SessionWire, limit, user=self._user, query=query)

    async def update_session_status(self, session_id: str, status: SessionStatus) -> SessionData | None:
        """Change a session's status, and give it as it is then; None if there is none of that id."""
        try:
            path = self._session_path(session_id)
            return _decode_session(await self._transport.call("PATCH", path, user=self._user, body={"status": status}))
        except NotFoundError:
            return None

    async def complete_session(self, session_id: str) -> SessionData | None:
        """Mark a session as completed."""
        return await self.update_session_status(session_id, "completed")

    async def abandon_session(self, session_id: str) -> SessionData | None:
        """Mark a session as abandoned."""
        return await self.update_session_status(session_id, "abandoned")

    async def delete_session(self, session_id: str) -> bool:
        """Forget where a session stood; says whether it was there."""
        try:
            await self._delete(self._session_path(session_id))
        except NotFoundError:
            return False
        return True

    async def get_session_messages(self, session_id: str, limit: int | None = None) -> list[MessageData]:
        """A session's messages in order: the last `limit` of them."""
        path, cursor = self._session_path(session_id, "messages"), None
        messages: list[MessageData] = []
        max_messages = None if limit is None else checks.validate_count("limit", limit)
        while max_messages is None or len(messages) < max_messages:
            size = PAGE_SIZE if max_messages is None else min(PAGE_SIZE, max_messages - len(messages))
            page = await self._transport.call("GET", path, user=self._user, query={"limit": size, "cursor": cursor})
            messages = [*(SessionMessageWire.model_validate(each).value() for each in page["items"]), *messages]
            cursor = page["nextCursor"]
            if cursor is None:
                break
        return messages

    async def load_session_history(self, session_id: str, limit: int = 200) -> list[Event]:
        """What was said and done in a session, as `respond` takes it; of the last `limit` messages."""
        messages = await self.get_session_messages(session_id, limit)
        return [event for each in messages for event in message_to_events(each)]

    def _session_path(self, session_id: str, *more: str) -> str:
        if not session_id:
            raise NotFoundError("session", session_id)
        return self._sessions_path(checks.validate_id("session", session_id), *more)

    def _sessions_path(self, *more: str) -> str:
        return build_path("ai-agents", checks.validate_id("agent", self._agent), "sessions", *more)


def _decode_session(payload: Any) -> SessionData:
    session: SessionData = SessionWire.model_validate(payload).value()
    return session
