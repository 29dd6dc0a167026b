"""The synchronous API: the classes of the objects in `with Tellback(...) as tb:`.

Each class wraps an asynchronous handle and has the same methods, which block until they are finished. The classes are
created on first use. Their types are in `sync.pyi`, which `python tools/sync_stubs.py` generates.

>>> from tellback import Tellback
>>> with Tellback(":memory:") as tb:
...     conversation = tb.user("maya").conversations.create("chat", title="Hello")
>>> conversation.title
'Hello'
"""

from __future__ import annotations

from typing import Any

from tellback.portal import SyncRoot, sync_class

_HANDLES = """
    Admin Agents AllBindings Conversations EventFeed Jobs Keys Memory RemoteAdmin RemoteAgents RemoteBindings
    RemoteConversations RemoteEvents RemoteJobs RemoteKeys RemoteMemory RemoteSessions RemoteUser
    RemoteWorkingContextBuilder User WorkingContextBuilder
"""
__all__ = ["SyncTellback", "SyncTellbackClient", *(f"Sync{name}" for name in _HANDLES.split())]


class SyncTellback(SyncRoot):
    """The synchronous `Tellback`: the target of `with Tellback(...) as tb:`."""


class SyncTellbackClient(SyncRoot):
    """The synchronous client: the target of `with TellbackClient(...) as client:`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sync_class(name.removeprefix("Sync"))
