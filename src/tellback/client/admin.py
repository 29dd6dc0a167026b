"""Jobs, bindings, API keys, the change feed, and a user's export, erasure and usage, on a server."""

from __future__ import annotations

import asyncio
import builtins
import json
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tellback import validation
from tellback.admin import ErasureReport, atomic_write, resolve_format
from tellback.client.transport import RemoteHandle, Transport, list_all
from tellback.errors import InvalidArgumentError, RateLimitedError, RemoteUnavailableError, StoreError
from tellback.memory.bindings import PolicyLike
from tellback.types.access import ApiKey, ApiKeyRole, NewApiKey
from tellback.types.conversations import Event
from tellback.types.ids import utc_now
from tellback.types.jobs import Binding, Job, JobStatus, UsageRecord, UsageTotal
from tellback.wire.arguments import (
    build_path,
    encode_arguments,
    encode_cursor,
    encode_datetime,
    encode_mapping,
    require_server_id,
)
from tellback.wire.values import (
    ApiKeyWire,
    BindingWire,
    ChangeWire,
    ErasedWire,
    JobWire,
    NewApiKeyWire,
    UsageRecordWire,
    UsageTotalWire,
)

FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.05, 1.0

KEYS_PATH = ("ai-admin", "keys")

RECONNECT_SECONDS = 1.0

ADMIN_PATH = "ai-admin"


class RemoteJobs(RemoteHandle):
    """Jobs of everyone in the credential's tenant and app or, at another path, of one user."""

    def __init__(self, transport: Transport, user: str | None, *, path: tuple[str, str] = ("ai-admin", "jobs")) -> None:
        super().__init__(transport, user)
        self._path = path

    async def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
    ) -> builtins.list[Job]:
        """Jobs, the newest first: those of one user or, without `user_id`, of everyone."""
        query = encode_arguments(status=status, conversation_id=conversation_id, user_id=user_id)
        path, cursor = build_path(*self._path), encode_cursor(before)
        return await list_all(self._transport, path, JobWire.decode, limit, user=self._user, query=query, cursor=cursor)

    async def get(self, id: str) -> Job | None:
        """A job as it stands now, or None if there is none of that id."""
        found = await self._get_by_id(*self._path, id)
        return None if found is None else decode_job(found)

    async def retry(self, id: str) -> Job:
        """Queue a job that failed, was cancelled or is done again, as if it were new."""
        return decode_job(await self._post(build_path(*self._path, require_server_id("job", id), "retry")))

    async def cancel(self, id: str) -> Job:
        """End a job that has not ended yet. One that runs is stopped at its next heartbeat, and changes nothing."""
        return decode_job(await self._post(build_path(*self._path, require_server_id("job", id), "cancel")))

    async def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """Wait until these jobs have ended, done or not; gives False if they have not after so many seconds."""
        deadline, interval, pending = (
            None if timeout is None else time.monotonic() + timeout,
            FIRST_POLL_SECONDS,
            [*ids],
        )
        while pending:
            found = [await self.get(id) for id in pending]
            pending = [job.id for job in found if job is not None and not job.status.is_finished]
            if pending and deadline is not None and time.monotonic() >= deadline:
                return False
            if pending:
                await asyncio.sleep(interval)
                interval = min(interval * 1.5, MAX_POLL_SECONDS)
        return True


def decode_job(payload: object) -> Job:
    """The job that a server tells of."""
    job: Job = JobWire.model_validate(payload).value()
    return job


class RemoteBindings(RemoteHandle):
    """Every binding of the credential's tenant and app, whoever made it, or at another path those of one user."""

    def __init__(
        self, transport: Transport, user: str | None, *, path: tuple[str, str] = ("ai-admin", "bindings")
    ) -> None:
        super().__init__(transport, user)
        self._path = path

    async def list(self) -> builtins.list[Binding]:
        """All bindings, the oldest first."""
        return await list_all(
            self._transport, build_path(*self._path), BindingWire.decode, None, user=self._user, query={}
        )

    async def get(self, id: str) -> Binding | None:
        """The binding of that id, or None."""
        found = await self._get_by_id(*self._path, id)
        return None if found is None else decode_binding(found)

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`."""
        body = encode_arguments(extraction_policy=encode_mapping(extraction_policy), enabled=enabled)
        path = build_path(*self._path, require_server_id("binding", id))
        return decode_binding(await self._transport.call("PATCH", path, user=self._user, body=body))

    async def delete(self, id: str) -> None:
        """End a binding; memories it made stay."""
        await self._delete(build_path(*self._path, require_server_id("binding", id)))


def decode_binding(payload: object) -> Binding:
    """The binding that a server tells of."""
    binding: Binding = BindingWire.model_validate(payload).value()
    return binding


class RemoteKeys(RemoteHandle):
    """API keys of the credential's tenant and app."""

    async def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Make a key. Its secret is shown this once."""
        end = utc_now() + expires_at if isinstance(expires_at, timedelta) else expires_at
        body = encode_arguments(
            role=role,
            name=name,
            user_id=user_id,
            expires_at=None if end is None else validation.parse_datetime("expires_at", end),
            rate_limit=rate_limit,
        )
        # Sent once: the secret of a key that was made twice would be lost, and the key would not.
        payload = await self._post(build_path(*KEYS_PATH), body, has_own_key=True)
        created: NewApiKey = NewApiKeyWire.model_validate(payload).value()
        return created

    async def list(self) -> builtins.list[ApiKey]:
        """All keys, also revoked and expired ones, the oldest first."""
        return await list_all(
            self._transport, build_path(*KEYS_PATH), ApiKeyWire.decode, None, user=self._user, query={}
        )

    async def get(self, id: str) -> ApiKey | None:
        """The key of that id, or None."""
        found = await self._get_by_id(*KEYS_PATH, id)
        if found is None:
            return None
        key: ApiKey = ApiKeyWire.model_validate(found).value()
        return key

    async def revoke(self, id: str) -> ApiKey:
        """End a key for good."""
        payload = await self._delete(build_path(*KEYS_PATH, require_server_id("API key", id)))
        key: ApiKey = ApiKeyWire.model_validate(payload).value()
        return key


class RemoteEvents(RemoteHandle):
    """Changes in the order they were committed. A subscription goes on where it was when a connection is lost."""

    def __init__(self, transport: Transport, user: str | None, *, everyone: bool = False) -> None:
        super().__init__(transport, user)
        self._everyone = everyone

    async def subscribe(
        self,
        after: int | Literal["latest"] | None = None,
        *,
        types: Collection[str] | None = None,
        user_id: str | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Events after a position, then new ones as they come, until you stop reading. None is lost, none comes twice.

        Without `after` it starts at the beginning, with "latest" at what happens from now on. While the server or its
        store cannot be reached it waits, and goes on where it was; it raises if that is so from the start.
        """
        position: int | str = 0 if after is None else after
        has_connected = False
        while True:
            pause = RECONNECT_SECONDS
            try:
                async with aclosing(self._stream(position, types, user_id)) as events:
                    async for item in events:
                        has_connected = True
                        if item.event == "ready" and item.id is not None:
                            position = int(item.id)  # where "latest" was: from here on none may be missed
                            continue
                        event: Event = ChangeWire.model_validate(json.loads(item.data)).value()
                        yield event
                        position = event.position
            except (RemoteUnavailableError, StoreError):
                if not has_connected:
                    raise
            except RateLimitedError as error:
                if not has_connected:
                    raise
                pause = max(pause, error.retry_after)
            has_connected = True
            await asyncio.sleep(pause)

    def _stream(
        self, after: int | str, types: Collection[str] | None, user_id: str | None
    ) -> AsyncGenerator[Any, None]:
        query = {"after": after, "types": ",".join([types] if isinstance(types, str) else types or ()) or None}
        user = self._user if user_id is None else user_id
        if self._everyone and user is None:
            query["everyone"] = "true"
        return self._transport.stream_events("GET", build_path("ai-events"), user=user, query=query)


class RemoteAdmin(RemoteHandle):
    """Export and erasure of a user's data: of the handle's own user, or of another one if the credential may."""

    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO | None = None,
        format: Literal["json", "zip"] | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any] | int:
        """All that is kept of a user, as one dict; with `to`, into a file of any size, and gives its bytes.

        `format` is "json" or "zip", by default as the path ends. A file appears only when it is complete.
        """
        query = encode_arguments(user_id=user_id, include_vectors="true" if include_vectors else None)
        if to is None:
            if format is not None:
                raise InvalidArgumentError("format is that of a file: say where to write it with to=... .")
            payload: dict[str, Any] = await self._transport.call(
                "GET", build_path(ADMIN_PATH, "export"), user=self._user, query=query
            )
            return payload
        query["format"] = resolve_format(to, format)
        if not isinstance(to, str | PathLike):
            return await self._copy_export(query, to)
        async with atomic_write(Path(to)) as file:
            return await self._copy_export(query, file)

    async def delete_user_data(self, user_id: str | None = None, *, confirm: bool = False) -> ErasureReport:
        """Delete all that is kept of a user, for good; gives how much there was. Nothing happens without `confirm`."""
        if confirm is not True:
            raise InvalidArgumentError("All data would be deleted for good: pass confirm=True if that is meant.")
        payload = await self._post(
            build_path(ADMIN_PATH, "delete"), {**encode_arguments(user_id=user_id), "confirm": True}
        )
        return ErasedWire.model_validate(payload).value()

    async def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1_000,
        before: str | None = None,
    ) -> list[UsageRecord]:
        """List the costs of model calls for this user's memory, call by call and the newest first."""
        return await list_usage(self._transport, self._user, {}, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """Return the costs of those calls, added up by purpose and model."""
        return await list_usage_totals(self._transport, self._user, {}, since, until)

    async def _copy_export(self, query: Mapping[str, Any], file: BinaryIO) -> int:
        size = 0
        async for chunk in self._export_chunks(query):
            await asyncio.to_thread(file.write, chunk)
            size += len(chunk)
        return size

    async def _export_chunks(self, query: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        async with self._transport.download(build_path(ADMIN_PATH, "export"), user=self._user, query=query) as response:
            async for chunk in response.aiter_bytes():
                yield chunk


async def list_usage(
    transport: Transport,
    user: str | None,
    filters: Mapping[str, Any],
    since: datetime | str | None,
    until: datetime | str | None,
    job_id: str | None,
    limit: int,
    before: str | None,
) -> list[UsageRecord]:
    """What model calls cost, call by call and the newest first."""
    period = encode_arguments(
        since=encode_datetime("since", since), until=encode_datetime("until", until), job_id=job_id
    )
    path, cursor, query = build_path(ADMIN_PATH, "usage"), encode_cursor(before), {**filters, **period}
    return await list_all(transport, path, UsageRecordWire.decode, limit, user=user, query=query, cursor=cursor)


async def list_usage_totals(
    transport: Transport,
    user: str | None,
    filters: Mapping[str, Any],
    since: datetime | str | None,
    until: datetime | str | None,
) -> list[UsageTotal]:
    """Return the costs, added up."""
    query = {
        **filters,
        **encode_arguments(since=encode_datetime("since", since), until=encode_datetime("until", until)),
    }
    payload = await transport.call("GET", build_path(ADMIN_PATH, "usage", "totals"), user=user, query=query)
    return [UsageTotalWire.model_validate(each).value() for each in payload["items"]]
