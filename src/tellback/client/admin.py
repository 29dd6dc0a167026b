"""`user.admin` of a server: all that is kept of a user, handed out or erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tellback.admin import ErasureReport
from tellback.admin.files import atomic_write, resolve_format
from tellback.client.handle import RemoteHandle
from tellback.client.pages import encode_cursor, list_all
from tellback.client.transport import Transport, build_path
from tellback.client.values import encode_arguments, encode_datetime
from tellback.errors import InvalidArgumentError
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.wire.admin import ErasedWire, UsageRecordWire, UsageTotalWire

ADMIN_PATH = "ai-admin"


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
        """What model calls for this user's memory cost, call by call and the newest first."""
        return await list_usage(self._transport, self._user, {}, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What they cost, added up by purpose and model."""
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
    return await list_all(transport, path, UsageRecordWire, limit, user=user, query=query, cursor=cursor)


async def list_usage_totals(
    transport: Transport,
    user: str | None,
    filters: Mapping[str, Any],
    since: datetime | str | None,
    until: datetime | str | None,
) -> list[UsageTotal]:
    """What they cost, added up."""
    query = {
        **filters,
        **encode_arguments(since=encode_datetime("since", since), until=encode_datetime("until", until)),
    }
    payload = await transport.call("GET", build_path(ADMIN_PATH, "usage", "totals"), user=user, query=query)
    return [UsageTotalWire.model_validate(each).value() for each in payload["items"]]
