"""The client has the methods of the in-process handles, with the same arguments."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tellback.admin import Admin
from tellback.api_keys import Keys
from tellback.app import Tellback
from tellback.client import TellbackClient
from tellback.client.admin import RemoteAdmin, RemoteBindings, RemoteEvents, RemoteJobs, RemoteKeys
from tellback.client.agents import RemoteAgents
from tellback.client.client import RemoteUser
from tellback.client.conversations import RemoteConversations
from tellback.client.memory import RemoteMemory, RemoteWorkingContextBuilder
from tellback.conversations import Conversations
from tellback.jobs import Jobs
from tellback.memory.bindings import AllBindings
from tellback.memory.memory import Memory
from tellback.memory.working_context import WorkingContextBuilder
from tellback.specs.agents import Agents
from tellback.stores import EventFeed
from tellback.user import User

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (User, RemoteUser),
    (Conversations, RemoteConversations),
    (Memory, RemoteMemory),
    (WorkingContextBuilder, RemoteWorkingContextBuilder),
    (Agents, RemoteAgents),
    (Admin, RemoteAdmin),
    (EventFeed, RemoteEvents),
    (Jobs, RemoteJobs),
    (AllBindings, RemoteBindings),
    (Keys, RemoteKeys),
    (Tellback, TellbackClient),
]

NOT_REMOTE = {
    "Memory.replay",  # may take hours: an admin queues it with POST /ai-admin/replay
    "Admin.export_stream",  # the client gets an export as a file or as a dict
    "EventFeed.read",
    "EventFeed.latest",
    "Jobs.start",
    "Jobs.start_worker",
    "Jobs.wake",
    "Jobs.drain",
    "Jobs.close",
    "Keys.check",
    "Tellback.user",  # the user may be omitted if the credential belongs to one
    "Tellback.register_agent",
    "Tellback.warm_up",
    "Tellback.mine_patterns",
    "Tellback.reembed",
}
"""Methods that only make sense in process, or exist in another form."""

LOCAL_ARGUMENTS = {
    "count_tokens",  # a function cannot be sent
    "on_progress",
    "tenant_id",  # the credential determines the tenant and the app
    "app_id",
}

ADDITIONAL_METHODS = {
    "Memory": {"get_job", "retry_job", "cancel_job", "follow_job"},
    "Agents": {"respond", "respond_stream", "sessions"},
}


SYNCHRONOUS_IN_PROCESS = {"Agents.list", "Agents.get"}
"""Methods that are synchronous in process, but not on the client."""

NOT_REMOTE_ATTRIBUTES = {
    "User.scope",  # the credential determines tenant and app; `user_id` exists
    "Tellback.clock",
    "Tellback.model",
    "Tellback.store",
    "Tellback.templates",
}


def public_methods(kind: type[Any]) -> dict[str, Any]:
    return {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in ("of",)
    }


@pytest.mark.parametrize(("local", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_every_method_exists_with_the_same_arguments(local: type[Any], remote: type[Any]) -> None:
    remote_methods = public_methods(remote)
    for name, method in public_methods(local).items():
        if f"{local.__name__}.{name}" in NOT_REMOTE:
            continue
        assert name in remote_methods, f"{remote.__name__} has no {name}"
        expected = [each for each in inspect.signature(method).parameters.values() if each.name not in LOCAL_ARGUMENTS]
        found = [*inspect.signature(remote_methods[name]).parameters.values()]
        assert [(each.name, each.kind, each.default) for each in found] == [
            (each.name, each.kind, each.default) for each in expected
        ], name


@pytest.mark.parametrize(("local", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_methods_are_async_on_both_sides(local: type[Any], remote: type[Any]) -> None:
    remote_methods = public_methods(remote)
    for name, method in public_methods(local).items():
        if name not in remote_methods:
            continue
        expected_style = "awaited" if f"{local.__name__}.{name}" in SYNCHRONOUS_IN_PROCESS else call_style(method)
        assert (name, call_style(remote_methods[name])) == (name, expected_style)


def call_style(method: Any) -> str:
    """Return how a method returns its result: `awaited`, `iterated` or `value`."""
    if inspect.iscoroutinefunction(method):
        return "awaited"
    returned = str(inspect.signature(method).return_annotation)
    return "iterated" if inspect.isasyncgenfunction(method) or returned.startswith("AsyncGenerator") else "value"


async def test_attributes_exist_on_the_client() -> None:
    tb, client = Tellback(":memory:"), TellbackClient("http://127.0.0.1")
    pairs: list[tuple[Any, Any]] = [(tb, client), (tb.user("maya"), client.user("maya"))]
    for local, remote in pairs:
        found = {name for name in dir(local) if not name.startswith("_")} - public_methods(type(local)).keys()
        missing = {f"{type(local).__name__}.{name}" for name in found if not hasattr(remote, name)}
        assert missing == {name for name in NOT_REMOTE_ATTRIBUTES if name.startswith(f"{type(local).__name__}.")}
    assert tb.user("maya").user_id == client.user("maya").user_id == "maya"
    assert client.user().user_id is None
    await client.close()


@pytest.mark.parametrize(("local", "remote"), PAIRS, ids=lambda kind: kind.__name__)
def test_additional_client_methods_are_known(local: type[Any], remote: type[Any]) -> None:
    added = public_methods(remote).keys() - public_methods(local).keys()
    assert added <= ADDITIONAL_METHODS.get(local.__name__, set())
