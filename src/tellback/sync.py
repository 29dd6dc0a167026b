"""The synchronous API: what `with Tellback(...) as tb:` gives, and every handle that is reached from it.

Each has the methods of the asynchronous handle it wraps, and they block until they have their result. The classes are
made when they are used; their types are in `sync.pyi`, which `python tools/sync_stubs.py` writes from those handles.

>>> from tellback import Tellback
>>> with Tellback(":memory:") as tb:
...     talk = tb.user("maya").conversations.create("chat", title="Hello")
>>> talk.title
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
    """What `with Tellback(...) as tb:` gives."""


class SyncTellbackClient(SyncRoot):
    """What `with TellbackClient(...) as client:` gives."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sync_class(name.removeprefix("Sync"))
