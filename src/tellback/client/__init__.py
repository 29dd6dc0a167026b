"""A client for a server over HTTP, with the interface of the in-process handles.

async with TellbackClient("http://127.0.0.1:8765", api_key="tb_...") as client:
    reply = await client.user("maya").chat("Where should we eat tonight?")
"""

from __future__ import annotations

from tellback.errors import MissingExtraError

try:
    from tellback.client.client import RemoteUser, TellbackClient
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise MissingExtraError("httpx2", "client", "TellbackClient") from error

__all__ = ["RemoteUser", "TellbackClient"]
