"""The client has what the in-process handles have: the same methods, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from recollect.access import Keys
from recollect.admin import Admin
from recollect.app import Recollect
from recollect.client import RecollectClient
from recollect.client.admin import RemoteAdmin
from recollect.client.agents import RemoteAgents
from recollect.client.bindings import RemoteBindings
from recollect.client.context import RemoteWorkingContexts
from recollect.client.conversations import RemoteConversations
from recollect.client.events import RemoteEvents
from recollect.client.jobs import RemoteJobs
from recollect.client.keys import RemoteKeys
from recollect.client.memory import RemoteMemory
from recollect.client.user import RemoteUser
from recollect.conversations import Conversations
from recollect.jobs import Jobs
from recollect.memory.all_bindings import AllBindings
from recollect.memory.context import WorkingContexts
from recollect.memory.memory import Memory
from recollect.specs.handle import Agents
from recollect.stores import EventFeed
from recollect.user import User

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (User, RemoteUser),
    (Conversations, RemoteConversations),
    (Memory, RemoteMemory),
    (WorkingContexts, RemoteWorkingContexts),
    (Agents, RemoteAgents),
    (Admin, RemoteAdmin),
    (EventFeed, RemoteEvents),
    (Jobs, RemoteJobs),
    (AllBindings, RemoteBindings),
    (Keys, RemoteKeys),
    (Recollect, RecollectClient),
]

NOT_REMOTE = {
    "Memory.replay",  # waits for what may take hours: an admin queues it with POST /ai-admin/replay
    "Admin.export_stream",  # a file, or the whole
    "EventFeed.read",
    "EventFeed.latest",
    "Jobs.start",
    "Jobs.start_worker",
    "Jobs.wake",
    "Jobs.drain",
    "Jobs.close",
    "Keys.check",
    "Recollect.user",  # a credential may be of one: then it needs no name
    "Recollect.register_agent",
    "Recollect.warm_up",
    "Recollect.mine_patterns",
    "Recollect.reembed",
}
"""What only makes sense in the process that has the store, or is there in another way."""

LOCAL_ARGUMENTS = {
    "count_tokens",  # a function
    "on_progress",
    "tenant_id",  # the credential says which
    "app_id",
}

WHERE_MORE = {
    "Memory": {"get_job", "retry_job", "cancel_job", "follow_job"},
    "Agents": {"respond", "respond_stream", "sessions"},
}


def public(kind: type[Any]) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in ("of",)
    }


@pytest.mark.parametrize(("ours", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_is_there_with_the_same_arguments(ours: type[Any], remote: type[Any]) -> None:
    there = public(remote)
    for name, method in public(ours).items():
        if f"{ours.__name__}.{name}" in NOT_REMOTE:
            continue
        assert name in there, f"{remote.__name__} has no {name}"
        wanted = [each for each in inspect.signature(method).parameters.values() if each.name not in LOCAL_ARGUMENTS]
        found = [*inspect.signature(there[name]).parameters.values()]
        assert [(each.name, each.kind, each.default) for each in found] == [
            (each.name, each.kind, each.default) for each in wanted
        ], name


@pytest.mark.parametrize(("ours", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_what_is_there_besides_is_known(ours: type[Any], remote: type[Any]) -> None:
    more = public(remote).keys() - public(ours).keys()
    assert more <= WHERE_MORE.get(ours.__name__, set())
