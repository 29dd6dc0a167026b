"""`TellbackClient`: a server, with the surface of a `Tellback`."""

from __future__ import annotations

from typing import Self

import httpx2

from tellback.client.bindings import RemoteBindings
from tellback.client.events import RemoteEvents
from tellback.client.jobs import RemoteJobs
from tellback.client.keys import RemoteKeys
from tellback.client.operating import AdminOperations
from tellback.client.transport import Transport
from tellback.client.user import RemoteUser
from tellback.conversations import checks
from tellback.sync import SyncTellback


class TellbackClient(AdminOperations):
    """A server over HTTP. `client.user("maya")` has what `rc.user("maya")` has: same methods, values and errors.

    `api_key` is an API key or a JWT; one that is of a single user needs no name: `client.user()`. What can be sent
    again without harm is, up to `retries` times, when there was no answer. `timeout` is in seconds. `http` is an
    `httpx2.AsyncClient` of your own.

    Use it with `async with`, or with a plain `with` from synchronous code: every method then waits by itself.

    >>> client = TellbackClient("https://memory.example.com", api_key="rk_...")
    >>> client.user("maya").user_id
    'maya'
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = 120.0,
        retries: int = 2,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        self._transport = Transport(url, api_key, seconds=timeout, retries=retries, http=http)

    def user(self, user_id: str | None = None) -> RemoteUser:
        """The handle of a user of the credential's tenant and app."""
        return RemoteUser(self._transport, None if user_id is None else checks.validate_scope_id("user_id", user_id))

    @property
    def events(self) -> RemoteEvents:
        """The feed of everyone's changes in the credential's tenant and app: for admins."""
        return RemoteEvents(self._transport, None, everyone=True)

    @property
    def jobs(self) -> RemoteJobs:
        """Everyone's jobs in the credential's tenant and app: for admins."""
        return RemoteJobs(self._transport, None)

    @property
    def bindings(self) -> RemoteBindings:
        """Everyone's bindings in the credential's tenant and app: for admins."""
        return RemoteBindings(self._transport, None)

    @property
    def keys(self) -> RemoteKeys:
        """The API keys of the credential's tenant and app: for admins."""
        return RemoteKeys(self._transport, None)

    async def open(self) -> Self:
        """Nothing to do: connections are made when they are needed."""
        return self

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __enter__(self) -> SyncTellback:
        self._sync = SyncTellback(self)
        return self._sync

    def __exit__(self, *exception: object) -> None:
        self._sync.close()
