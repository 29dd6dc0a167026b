"""Tests of page contexts and chat backends without a browser."""

from __future__ import annotations

from typing import Any

import pytest

from tellback import Agent, Tellback
from tellback.chat_backends import CHAT_NAMESPACE, BackendReply, ModelBackend, RouteBackend, SpecBackend
from tellback.console.context import PageContext
from tellback.console.explanation import format_cost
from tellback.console.pages.chat import create_backend, list_chat_agents
from tellback.console.pages.routes import AGENT_EXAMPLE
from tellback.errors import NotAllowedError, NotFoundError, ProviderAuthError, StoreUnavailableError, TellbackError
from tellback.server import ServerSettings
from tellback.server.auth import Caller, Principal, ServerContext
from tellback.server.tenant_agents import TenantAgents
from tellback.testing import FlowModel
from tellback.types import ChatUsage
from tellback.types.access import ApiKeyRole
from tests.support.travel_agents import FULL_REQUEST, TripSetup, make_flight_agent


def build_context(
    tb: Tellback, role: ApiKeyRole = "admin", user_id: str | None = "maya", agent: Agent | None = None, **query: str
) -> PageContext:
    async def holds(**_: Any) -> bool:
        return True

    async def count() -> None:
        return None

    agent = agent or make_flight_agent(model=FlowModel(reads={"destination": r"to ([A-Z]\w+)"}))[0]
    principal = Principal("key_1", "acme", "default", role, user_id if role == "user" else None)
    caller = Caller(ServerContext(tb, ServerSettings(), {agent.name: agent}), principal, user_id)
    return PageContext(caller, query, holds, count, TenantAgents())


def test_the_example_on_the_routes_page_defines_an_agent() -> None:
    namespace: dict[str, Any] = {}
    exec(AGENT_EXAMPLE, namespace)
    assert isinstance(namespace["agent"], Agent)
    assert "Ask where to" in namespace["agent"].to_mermaid()


def test_a_page_context_shows_the_user_of_its_credential_and_links_keep_the_user() -> None:
    tb = Tellback(":memory:")
    context_of_chosen = build_context(tb, "app", None, user="noor & co")
    assert (context_of_chosen.user_id, context_of_chosen.user.scope.tenant_id) == ("noor & co", "acme")
    assert context_of_chosen.link("/atom", id="atom 1", space=None) == "./atom?user=noor+%26+co&id=atom+1"
    assert build_context(tb, "app", None).user_id is None
    context = build_context(tb, "user", "maya", user="noor")
    assert (context.user_id, context.caller.principal.user_id) == ("maya", "maya")
    with pytest.raises(NotAllowedError, match="role 'admin'"):
        context.caller.require_admin()


@pytest.mark.parametrize(
    ("error", "admins", "others"),
    [
        (ProviderAuthError("Wrong key sk-1"), "Wrong key sk-1. Set a valid key", "The model's provider failed"),
        (StoreUnavailableError("postgres://secret"), "postgres://secret", "The store is unavailable"),
        (NotFoundError("atom", "atom_1"), "atom_1", "atom_1"),
    ],
)
def test_only_admins_see_full_error_messages(error: TellbackError, admins: str, others: str) -> None:
    tb = Tellback(":memory:")
    assert build_context(tb).error_text(error).startswith(admins) or admins in build_context(tb).error_text(error)
    message = build_context(tb, "user").error_text(error)
    assert others in message
    assert "secret" not in message
    assert "sk-1" not in message


def test_only_agents_that_need_just_a_message_are_listed() -> None:
    tb = Tellback(":memory:")
    tb.register_agent({"name": "plain", "systemPrompt": "Help."})
    tb.register_agent({"name": "renamed", "systemPrompt": "Help.", "userMessage": "$question"})
    tb.register_agent({"name": "toned", "systemPrompt": "$tone"})
    tb.register_agent(
        {"name": "spared", "systemPrompt": "$tone", "arguments": {"tone": {"type": "string", "default": "Be kind."}}}
    )
    tb.register_agent({"name": "fixed", "systemPrompt": "Help.", "userMessage": "Report."})
    context = build_context(tb)
    assert list_chat_agents(context) == ["Wanda", "plain", "renamed", "spared"]
    assert isinstance(create_backend(context, None), ModelBackend)
    assert isinstance(create_backend(context, "Wanda"), RouteBackend)
    assert isinstance(create_backend(context, "renamed"), SpecBackend)
    for name in ("toned", "unknown"):
        with pytest.raises(NotFoundError):
            create_backend(context, name)


async def test_an_expired_conversation_is_not_resumed() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        context = build_context(tb)
        expired = await context.user.conversations.create(CHAT_NAMESPACE, close_after=0.001)
        await context.user.conversations.append_user_message(expired.id, "Hello?")
        now = tb.clock()
        tb.clock = lambda: now.replace(year=now.year + 1)
        earlier = await ModelBackend(context.user).load_history()
    assert (earlier.conversation, earlier.messages) == (None, ())
    assert earlier.expired is not None
    assert earlier.expired.id == expired.id


async def test_a_session_with_an_agent_resumes_until_it_is_closed() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        conversation = create_backend(build_context(tb), "Wanda")
        events = [item async for item in conversation.send("I want to book a flight to Rome")]
        history = await create_backend(build_context(tb), "Wanda").load_history()
        assert history.session is not None
        assert history.session.extracted == {"destination": "Rome"}
        assert [message.role for message in history.messages] == ["user", "assistant"]
        assert await conversation.close()
        assert not await conversation.close()
        history_after_end = await create_backend(build_context(tb), "Wanda").load_history()
    assert events
    assert (history_after_end.session, history_after_end.messages) == (None, ())


async def test_a_pending_tool_call_of_a_route_survives_a_reload_and_is_decided_once() -> None:
    async with Tellback(":memory:", worker=False) as tb:
        setup = TripSetup(None, approval=True)
        context = build_context(tb, agent=setup.agent)
        setup.script(setup.understands_trip(destination="Rome", passengers=2), "Shall I look?")
        request_event = [item async for item in create_backend(context, "Wanda").send(FULL_REQUEST)][-1]
        assert isinstance(request_event, BackendReply)
        assert [call.name for call in request_event.result.pending] == ["search"]
        assert setup.searched == []

        backend = create_backend(context, "Wanda")
        earlier = await backend.load_history()
        assert [call.id for call in earlier.pending] == [request_event.result.pending[0].id]
        setup.script("The night train?")
        result_event = [item async for item in backend.approve({request_event.result.pending[0].id: True})][-1]
        assert isinstance(result_event, BackendReply)
        assert (result_event.result.text, setup.searched) == ("The night train?", [("Rome", 2)])
        assert [tool.content for tool in result_event.result.tool_invocations] == ['["the night train to Rome"]']
        assert (await create_backend(context, "Wanda").load_history()).pending == ()


def test_format_cost_returns_one_line() -> None:
    assert format_cost(ChatUsage()) == ""
    assert format_cost(ChatUsage(input_tokens=1_000, output_tokens=1, model="gpt-5")) == "gpt-5 · 1,001 tokens"
    assert format_cost(ChatUsage(total_tokens=1, cost_usd=0.00123)) == "1 token · $0.0012"
