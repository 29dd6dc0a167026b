"""`user.admin` of a server: all that is kept of a user, handed out or erased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

from tellback.admin import Erased
from tellback.admin.files import file_format, in_place
from tellback.client.handle import RemoteHandle
from tellback.client.pages import cursor_at, listed
from tellback.client.transport import Transport, path_of
from tellback.client.values import given, moment_json
from tellback.errors import InvalidArgumentError
from tellback.types.jobs import UsageRecord, UsageTotal
from tellback.wire.admin import ErasedWire, UsageRecordWire, UsageTotalWire

HERE = "ai-admin"


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
        query = given(user_id=user_id, include_vectors="true" if include_vectors else None)
        if to is None:
            if format is not None:
                raise InvalidArgumentError("format is that of a file: say where to write it with to=... .")
            told: dict[str, Any] = await self._transport.call(
                "GET", path_of(HERE, "export"), user=self._user, query=query
            )
            return told
        query["format"] = file_format(to, format)
        if not isinstance(to, str | PathLike):
            return await self._copied(query, to)
        async with in_place(Path(to)) as file:
            return await self._copied(query, file)

    async def delete_user_data(self, user_id: str | None = None, *, confirm: bool = False) -> Erased:
        """Delete all that is kept of a user, for good; gives how much there was. Nothing happens without `confirm`."""
        if confirm is not True:
            raise InvalidArgumentError("All data would be deleted for good: pass confirm=True if that is meant.")
        told = await self._post(path_of(HERE, "delete"), {**given(user_id=user_id), "confirm": True})
        return ErasedWire.model_validate(told).value()

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
        return await usage_calls(self._transport, self._user, {}, since, until, job_id, limit, before)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What they cost, added up by purpose and model."""
        return await usage_sums(self._transport, self._user, {}, since, until)

    async def _copied(self, query: Mapping[str, Any], file: BinaryIO) -> int:
        size = 0
        async for piece in self._pieces(query):
            await asyncio.to_thread(file.write, piece)
            size += len(piece)
        return size

    async def _pieces(self, query: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        async with self._transport.download(path_of(HERE, "export"), user=self._user, query=query) as answer:
            async for piece in answer.aiter_bytes():
                yield piece


async def usage_calls(
    transport: Transport,
    user: str | None,
    whose: Mapping[str, Any],
    since: datetime | str | None,
    until: datetime | str | None,
    job_id: str | None,
    limit: int,
    before: str | None,
) -> list[UsageRecord]:
    """What model calls cost, call by call and the newest first."""
    stretch = given(since=moment_json("since", since), until=moment_json("until", until), job_id=job_id)
    path, cursor, query = path_of(HERE, "usage"), cursor_at(before), {**whose, **stretch}
    return await listed(transport, path, UsageRecordWire, limit, user=user, query=query, cursor=cursor)


async def usage_sums(
    transport: Transport,
    user: str | None,
    whose: Mapping[str, Any],
    since: datetime | str | None,
    until: datetime | str | None,
) -> list[UsageTotal]:
    """What they cost, added up."""
    query = {**whose, **given(since=moment_json("since", since), until=moment_json("until", until))}
    told = await transport.call("GET", path_of(HERE, "usage", "totals"), user=user, query=query)
    return [UsageTotalWire.model_validate(each).value() for each in told["items"]]
