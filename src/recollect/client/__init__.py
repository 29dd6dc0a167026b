"""A server over HTTP, with the surface of the in-process handles.

async with RecollectClient("http://127.0.0.1:8765", api_key="rk_...") as client:
    reply = await client.user("maya").chat("Where should we eat tonight?")
"""

from __future__ import annotations

from recollect.errors import MissingExtraError

try:
    from recollect.client.client import RecollectClient
except ModuleNotFoundError as error:
    if error.name != "httpx2":
        raise
    raise MissingExtraError("httpx2", "client", "RecollectClient") from error
from recollect.client.user import RemoteUser

__all__ = ["RecollectClient", "RemoteUser"]
