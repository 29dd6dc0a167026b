"""What the console's pages are made of, without a browser."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import Agent, Tellback
from tellback.console.chat_backends import (
    CHAT_NAMESPACE,
    MemoryChatBackend,
    PageReply,
    RouteChatBackend,
    SpecChatBackend,
    create_backend,
    list_chat_agents,
)
from tellback.console.context import PageContext
from tellback.console.explanation import format_cost
from tellback.console.pages.routes import AGENT_EXAMPLE
from tellback.errors import NotAllowedError, NotFoundError, ProviderAuthError, StoreUnavailableError, TellbackError
from tellback.server import ServerSettings
from tellback.server.auth import Caller, Principal, ServerContext
from tellback.server.tenant_agents import TenantAgents
from tellback.testing import FlowModel
from tellback.types import ChatUsage
from tellback.types.access import ApiKeyRole
from tests.support.travel_agents import FULL_REQUEST, TripDesk, make_flight_agent


def build_context(
    rc: Tellback, role: ApiKeyRole = "admin", of: str | None = "maya", desk: Agent | None = None, **query: str
) -> PageContext:
    async def holds(**_: Any) -> bool:
        return True

    async def count() -> None:
        return None

    desk = desk or make_flight_agent(model=FlowModel(reads={"destination": r"to ([A-Z]\w+)"}))[0]
    principal = Principal("key_1", "acme", "default", role, of if role == "user" else None)
    caller = Caller(ServerContext(rc, ServerSettings(), {desk.name: desk}), principal, of)
    return PageContext(caller, query, holds, count, TenantAgents())


def test_the_example_of_an_agent_is_one() -> None:
    made: dict[str, Any] = {}
    exec(AGENT_EXAMPLE, made)
    assert isinstance(made["agent"], Agent)
    assert "Ask where to" in made["agent"].to_mermaid()


def test_a_seat_shows_whom_its_credential_is_for_and_links_stay_with_that_user() -> None:
    rc = Tellback(":memory:")
    chosen = build_context(rc, "app", None, user="noor & co")
    assert (chosen.user_id, chosen.user.scope.tenant_id) == ("noor & co", "acme")
    assert chosen.link("/atom", id="atom 1", space=None) == "./atom?user=noor+%26+co&id=atom+1"
    assert build_context(rc, "app", None).user_id is None
    own = build_context(rc, "user", "maya", user="noor")
    assert (own.user_id, own.can_choose_user) == ("maya", False)
    with pytest.raises(NotAllowedError, match="role 'admin'"):
        own.require_admin()


@pytest.mark.parametrize(
    ("error", "admins", "others"),
    [
        (ProviderAuthError("Wrong key sk-1"), "Wrong key sk-1. Set a key", "The model's provider failed"),
        (StoreUnavailableError("postgres://secret"), "postgres://secret", "The store cannot do that now"),
        (NotFoundError("atom", "atom_1"), "atom_1", "atom_1"),
    ],
)
def test_what_is_wrong_is_told_in_full_to_those_who_run_the_server(
    error: TellbackError, admins: str, others: str
) -> None:
    rc = Tellback(":memory:")
    assert build_context(rc).error_text(error).startswith(admins) or admins in build_context(rc).error_text(error)
    told = build_context(rc, "user").error_text(error)
    assert others in told
    assert "secret" not in told
    assert "sk-1" not in told


def test_one_talks_to_agents_that_need_nothing_but_a_message() -> None:
    rc = Tellback(":memory:")
    rc.register_agent({"name": "plain", "systemPrompt": "Help."})
    rc.register_agent({"name": "renamed", "systemPrompt": "Help.", "userMessage": "$question"})
    rc.register_agent({"name": "toned", "systemPrompt": "$tone"})
    rc.register_agent(
        {"name": "spared", "systemPrompt": "$tone", "arguments": {"tone": {"type": "string", "default": "Be kind."}}}
    )
    rc.register_agent({"name": "fixed", "systemPrompt": "Help.", "userMessage": "Report."})
    chair = build_context(rc)
    assert list(list_chat_agents(chair)) == ["Wanda", "plain", "renamed", "spared"]
    assert isinstance(create_backend(chair, None), MemoryChatBackend)
    assert isinstance(create_backend(chair, "Wanda"), RouteChatBackend)
    assert isinstance(create_backend(chair, "renamed"), SpecChatBackend)
    for name in ("toned", "nobody"):
        with pytest.raises(NotFoundError):
            create_backend(chair, name)


async def test_a_chat_that_was_left_for_long_is_not_gone_on_with() -> None:
    async with Tellback(":memory:", worker=False) as rc:
        chair = build_context(rc)
        left = await chair.user.conversations.create(CHAT_NAMESPACE, close_after=0.001)
        await chair.user.conversations.append_user_message(left.id, "Hello?")
        now = rc.clock()
        rc.clock = lambda: now.replace(year=now.year + 1)
        earlier = await MemoryChatBackend(chair).load_history()
    assert (earlier.conversation, earlier.messages) == (None, ())
    assert earlier.expired is not None
    assert earlier.expired.id == left.id


async def test_a_session_with_an_agent_is_gone_on_with_until_it_is_ended() -> None:
    async with Tellback(":memory:", worker=False) as rc:
        conversation = create_backend(build_context(rc), "Wanda")
        said = [item async for item in conversation.send("I want to book a flight to Rome")]
        again = await create_backend(build_context(rc), "Wanda").load_history()
        assert again.session is not None
        assert again.session.extracted == {"destination": "Rome"}
        assert [message.role for message in again.messages] == ["user", "assistant"]
        assert await conversation.close()
        assert not await conversation.close()
        ended = await create_backend(build_context(rc), "Wanda").load_history()
    assert said
    assert (ended.session, ended.messages) == (None, ())


async def test_a_call_of_a_route_waits_for_whoever_comes_back_and_is_decided_once() -> None:
    async with Tellback(":memory:", worker=False) as rc:
        desk = TripDesk(None, approval=True)
        chair = build_context(rc, desk=desk.agent)
        desk.script(desk.understands_trip(destination="Rome", passengers=2), "Shall I look?")
        asked = [item async for item in create_backend(chair, "Wanda").send(FULL_REQUEST)][-1]
        assert isinstance(asked, PageReply)
        assert [call.name for call in asked.pending] == ["search"]
        assert desk.searched == []

        again = create_backend(chair, "Wanda")
        earlier = await again.load_history()
        assert [call.id for call in earlier.pending] == [asked.pending[0].id]
        desk.script("The night train?")
        done = [item async for item in again.approve({asked.pending[0].id: True})][-1]
        assert isinstance(done, PageReply)
        assert (done.text, desk.searched) == ("The night train?", [("Rome", 2)])
        assert [tool.content for tool in done.tools] == ['["the night train to Rome"]']
        assert (await create_backend(chair, "Wanda").load_history()).pending == ()


def test_what_an_answer_took_is_told_in_a_line() -> None:
    assert format_cost(ChatUsage()) == ""
    assert format_cost(ChatUsage(input_tokens=1_000, output_tokens=1, model="gpt-5")) == "gpt-5 · 1,001 tokens"
    assert format_cost(ChatUsage(total_tokens=1, cost_usd=0.00123)) == "1 token · $0.0012"
