"""A user's handle on a server."""

from __future__ import annotations

from tellback.client.admin import RemoteAdmin
from tellback.client.agents import RemoteAgents
from tellback.client.chatting import RemoteChat
from tellback.client.context import RemoteWorkingContexts
from tellback.client.conversations import RemoteConversations
from tellback.client.events import RemoteEvents
from tellback.client.memory import RemoteMemory


class RemoteUser(RemoteChat):
    """One user's handle, as `rc.user(...)` gives it, of what a server keeps.

    `user_id` is None for a credential that is of one user: then it is that one.
    """

    @property
    def user_id(self) -> str | None:
        """The user's id, if the client was told."""
        return self._user

    @property
    def conversations(self) -> RemoteConversations:
        """What was said."""
        return RemoteConversations(self._transport, self._user)

    @property
    def memory(self) -> RemoteMemory:
        """What is remembered of the user."""
        return RemoteMemory(self._transport, self._user)

    @property
    def working_context(self) -> RemoteWorkingContexts:
        """What a model should know before it answers."""
        return RemoteWorkingContexts(self._transport, self._user)

    @property
    def agents(self) -> RemoteAgents:
        """The agents that the server has, for this user."""
        return RemoteAgents(self._transport, self._user)

    @property
    def events(self) -> RemoteEvents:
        """The feed of this user's changes."""
        return RemoteEvents(self._transport, self._user)

    @property
    def admin(self) -> RemoteAdmin:
        """All that is kept of the user: to be exported, erased, or counted."""
        return RemoteAdmin(self._transport, self._user)
