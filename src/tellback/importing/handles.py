"""What an import asks of a user's handle: the same of `Tellback.user` and of `TellbackClient.user`."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tellback.types.bindings import Binding
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.jobs import Job
from tellback.types.memory import MemorySpace


class ImportConversations(Protocol):
    """`user.conversations`."""

    async def find_or_create(
        self,
        namespace: str,
        session_id: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Conversation: ...

    async def list(
        self,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        before: str | Conversation | None = None,
    ) -> builtins.list[Conversation]: ...

    async def messages(
        self,
        id: str,
        limit: int | None = None,
        include_internal: bool = False,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]: ...

    async def append_messages(self, id: str, messages: Sequence[Mapping[str, Any]]) -> builtins.list[StoredMessage]: ...

    async def close(self, id: str) -> Conversation: ...


class ImportMemory(Protocol):
    """`user.memory`."""

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace: ...

    async def list_bindings(self) -> list[Binding]: ...

    async def create_binding(
        self,
        conversation_scope: Mapping[str, str],
        memory_space_ids: Iterable[str],
        extraction_policy: Mapping[str, Any] | None = None,
        *,
        once: bool = False,
    ) -> Binding: ...

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]: ...

    async def wait_for_extraction(self, timeout: float | None = None) -> bool: ...  # noqa: ASYNC109


class ImportUser(Protocol):
    """A user's handle, of this process or of a server."""

    @property
    def conversations(self) -> ImportConversations: ...

    @property
    def memory(self) -> ImportMemory: ...
