"""`user.admin` of a server: all that is kept of a user, handed out or erased."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal

from recollect.admin import Erased
from recollect.client.handle import RemoteHandle
from recollect.client.pages import listed
from recollect.client.transport import path_of
from recollect.client.values import given, moment_json
from recollect.errors import InvalidArgumentError
from recollect.types.jobs import UsageRecord, UsageTotal
from recollect.wire.admin import ErasedWire, UsageRecordWire, UsageTotalWire

HERE = "ai-admin"


class RemoteAdmin(RemoteHandle):
    """Export and erasure of a user's data: of the handle's own user, or of another one if the credential may."""

    async def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO | None = None,
        format: Literal["json", "zip"] | None = None,
    ) -> dict[str, Any] | int:
        """All that is kept of a user, as one dict; with `to`, into a file of any size, and gives its bytes.

        `format` is "json" or "zip", by default as the path ends. A file appears only when it is complete.
        """
        if to is None:
            if format is not None:
                raise InvalidArgumentError("format is that of a file: say where to write it with to=... .")
            query = given(user_id=user_id)
            told: dict[str, Any] = await self._transport.call(
                "GET", path_of(HERE, "export"), user=self._user, query=query
            )
            return told
        is_file = hasattr(to, "write")
        chosen = format or ("zip" if not is_file and str(to).endswith(".zip") else "json")
        if is_file:
            return await self._copied(user_id, chosen, to)  # type: ignore[arg-type]
        path = Path(os.fspath(to))  # type: ignore[arg-type]
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: ASYNC230
                size = await self._copied(user_id, chosen, file)
            await asyncio.to_thread(partial.replace, path)
        finally:
            partial.unlink(missing_ok=True)
        return size

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
    ) -> list[UsageRecord]:
        """What model calls for this user's memory cost, call by call and the newest first."""
        query = given(since=moment_json("since", since), until=moment_json("until", until), job_id=job_id)
        path = path_of(HERE, "usage")
        return await listed(self._transport, path, UsageRecordWire, limit, user=self._user, query=query)

    async def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """What they cost, added up by purpose and model."""
        query = given(since=moment_json("since", since), until=moment_json("until", until))
        path = path_of(HERE, "usage", "totals")
        told = await self._transport.call("GET", path, user=self._user, query=query)
        return [UsageTotalWire.model_validate(each).value() for each in told["items"]]

    async def _copied(self, user_id: str | None, format: str, file: BinaryIO) -> int:
        size = 0
        async for piece in self._pieces(user_id, format):
            await asyncio.to_thread(file.write, piece)
            size += len(piece)
        return size

    async def _pieces(self, user_id: str | None, format: str) -> AsyncGenerator[bytes, None]:
        query = {**given(user_id=user_id), "format": format}
        async with self._transport.download(path_of(HERE, "export"), user=self._user, query=query) as answer:
            async for piece in answer.aiter_bytes():
                yield piece
