"""Turns over REST: allowed requests, and client tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tellback import Tellback
from tellback.chat.model import ChatRequest
from tellback.errors import ProviderTimeoutError
from tellback.server import ServerSettings
from tellback.testing import ScriptedModel, calls, raises, says
from tellback.types import ChatReply, ToolCall, message_text
from tests.support.rest import RestClient, expect_json, rest_client

CHAT = "/ai-conversations/chat"
LOOKUP = {"name": "lookup", "description": "Look up an order.", "parameters": {"type": "object"}}


@asynccontextmanager
async def open_client(*script: Any, **settings: Any) -> AsyncIterator[tuple[RestClient, Tellback, ScriptedModel]]:
    model = ScriptedModel(script)
    async with Tellback(":memory:", model=model) as tb:
        allowed = ServerSettings(open=True, rate_limit=None, **settings)
        async with rest_client(tb, settings=allowed) as client:
            yield client, tb, model


async def create_conversation(tb: Tellback) -> str:
    return (await tb.user("maya").conversations.create("chat")).id


def run_turn_path(id: str) -> str:
    return f"/ai-conversations/{id}/run-turn"


async def test_a_turn_is_stored_and_answered() -> None:
    async with open_client(says("On its way.")) as (client, tb, _):
        id = await create_conversation(tb)
        outcome = expect_json(await client.post(run_turn_path(id), json={"userText": "Where is my refund?"}))
        assert (outcome["status"], outcome["text"], outcome["conversationId"]) == ("completed", "On its way.", id)
        assert [message["role"] for message in outcome["appendedMessages"]] == ["user", "assistant"]
        assert {message["turnId"] for message in outcome["appendedMessages"]} == {outcome["turnId"]}


async def test_a_chat_uses_memories_and_returns_them() -> None:
    async with open_client(says("In Lisbon.")) as (client, tb, model):
        maya = tb.user("maya")
        space = await maya.memory.create_space("default")
        await maya.memory.add_atom(space.id, "Maya moved to Lisbon in March")
        result = expect_json(await client.post(CHAT, json={"text": "Where did Maya move to?", "system": "Be brief."}))
        assert (result["ok"], result["text"]) == (True, "In Lisbon.")
        assert [atom["text"] for atom in result["atomsUsed"]] == ["Maya moved to Lisbon in March"]
        assert (model.requests[0].system or "").startswith("Be brief.")


async def test_a_chat_continues_its_session_and_can_disable_memory() -> None:
    async with open_client(says("1"), says("2"), says("3")) as (client, tb, _):
        found = [
            expect_json(
                await client.post(CHAT, json={"text": "Hi", "sessionId": session, "space": None, "closeAfter": 60})
            )
            for session in ("a", "b", "a")
        ]
        assert found[0]["conversationId"] == found[2]["conversationId"] != found[1]["conversationId"]
        assert [each["sessionId"] for each in found] == ["a", "b", "a"]
        assert await tb.user("maya").memory.list_spaces() == []
        expect_json(await client.post(CHAT, json={"text": "Hi", "conversationId": "conv_none"}), 404)


@pytest.mark.parametrize(("options", "seconds"), [({}, 3_600), ({"closeAfter": None}, None), ({"closeAfter": 0}, 0)])
async def test_a_chat_closes_after_an_hour_or_the_given_time_or_never(
    options: dict[str, Any], seconds: float | None
) -> None:
    async with open_client(says("1")) as (client, _, _):
        id = expect_json(await client.post(CHAT, json={"text": "Hi", "space": None, **options}))["conversationId"]
        assert expect_json(await client.get(f"/ai-conversations/{id}"))["closeAfter"] == seconds


async def test_attachments_reach_the_model() -> None:
    async with open_client(says("A cat.")) as (client, _, model):
        attached = [
            {"name": "cat.png", "mime": "image/png", "data": "aGk="},
            {"name": "note.txt", "text": "Look at it"},
        ]
        expect_json(await client.post(CHAT, json={"text": "What is it?", "attachments": attached}))
        parts = model.requests[0].messages[-1].parts or ()
        assert [part.kind for part in parts] == ["text", "image"]
        assert "Look at it" in str(parts[0].text)
        for wrong in (
            [{"name": "x", "data": "no base64!"}],
            [{"text": "no name"}],
            [{"name": "x", "path": "/etc/passwd"}],
            [{"name": "x", "mime": "image/png", "url": "file:///etc/passwd"}],
            [{"name": "x", "mime": "image/png", "url": "gs://bucket/x.png"}],
        ):
            expect_json(await client.post(CHAT, json={"text": "Hi", "attachments": wrong}), 422)


async def test_only_known_options_reach_the_model() -> None:
    async with open_client(says("Hi.")) as (client, tb, model):
        id = await create_conversation(tb)
        options = {
            "systemPrompt": "Be kind.",
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 7,
            "toolChoice": "none",
        }
        expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "options": options}))
        [request] = model.requests
        assert (request.system, request.max_output_tokens, request.tool_choice) == ("Be kind.", 7, "none")
        assert dict(request.config) == {"temperature": 0.5, "top_p": 0.9}
        for hostile in ("config", "providers", "chatFn", "skills", "outputType", "baseUrl", "apiKey", "model", "tools"):
            expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "options": {hostile: {}}}), 422)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"userText": "Hi", "content": "Hi"},
        {"userText": "Hi", "maxCycles": 0},
        {"userText": "Hi", "maxCycles": 10**9},
        {"userText": "Hi", "tailLimit": 10**9},
        {"userText": "Hi", "wait": 10**9},
        {"userText": "Hi", "wait": -1},
        {"userText": "Hi", "recall": {"tokenBudget": 10**30}},
        {"userText": "Hi", "options": {"temperature": 99}},
        {"userText": "Hi", "options": {"maxOutputTokens": 2**70}},
        {"userText": "Hi", "tools": [{"name": "no spaces"}]},
        {"userText": "Hi", "tools": [LOOKUP, LOOKUP]},
        {"userText": "Hi", "tools": [{"name": "x", "parameters": {"type": 7}}]},
        {"userText": "Hi", "toolResults": [{"toolUseId": "call_1", "content": "x"}]},
        {"toolResults": [{"toolUseId": "call_1", "content": "x"}], "tools": [LOOKUP]},
        {"toolResults": [], "tools": [LOOKUP]},
        {"approvals": {"call_1": True}},
        {"userText": "Hi", "nonsense": 1},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_invalid_turns_are_rejected_before_anything_is_stored(body: dict[str, Any], stream: bool) -> None:
    async with open_client() as (client, tb, _):
        id = await create_conversation(tb)
        assert (
            expect_json(await client.post(run_turn_path(id), json={**body, "stream": stream}), 422)["code"]
            == "invalid-argument"
        )
        assert await tb.user("maya").conversations.messages(id) == []


async def test_only_allowed_models_and_providers_are_accepted() -> None:
    async with open_client(says("Hi."), models=("gpt-5",)) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "model": "claude-sonnet-4-5"}), 403)
        expect_json(
            await client.post(run_turn_path(id), json={"userText": "Hi", "model": "gpt-5", "provider": "anthropic"}),
            403,
        )
        expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "provider": "openrouter"}), 403)
        assert (
            expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "provider": "scripted"}))["text"]
            == "Hi."
        )


async def test_the_callers_trace_id_is_stored_with_the_messages() -> None:
    async with open_client(says("1"), says("2"), says("3")) as (client, tb, _):
        id = await create_conversation(tb)
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        stored = []
        for body, trace_headers in (
            ({"userText": "Hi"}, headers),
            ({"userText": "Hi", "traceId": "mine"}, headers),
            ({"userText": "Hi"}, {"traceparent": "nonsense"}),
        ):
            outcome = expect_json(await client.post(run_turn_path(id), json=body, headers=trace_headers))
            stored.append({message["traceId"] for message in outcome["appendedMessages"]})
        assert stored == [{trace}, {"mine"}, {None}]


async def test_a_retry_with_the_same_key_gets_the_same_response() -> None:
    async with open_client(says("One.")) as (client, tb, _):
        id = await create_conversation(tb)
        headers = {"Idempotency-Key": "retry-1"}
        first, second = [
            await client.post(run_turn_path(id), json={"userText": "Hi"}, headers=headers) for _ in range(2)
        ]
        assert expect_json(first) == expect_json(second)
        stored = await tb.user("maya").conversations.messages(id)
        assert [message.role for message in stored] == ["user", "assistant"]
        expect_json(await client.post(run_turn_path(id), json={"userText": "Other"}, headers=headers), 422)


async def test_a_key_in_the_body_stores_the_message_once_and_calls_the_model_again() -> None:
    async with open_client(says("One."), says("Two.")) as (client, tb, _):
        id = await create_conversation(tb)
        for _ in range(2):
            expect_json(await client.post(run_turn_path(id), json={"userText": "Hi", "idempotencyKey": "retry-1"}))
        stored = await tb.user("maya").conversations.messages(id)
        assert [message.role for message in stored] == ["user", "assistant", "assistant"]
        headers, body = {"Idempotency-Key": "one"}, {"userText": "Hi", "idempotencyKey": "another"}
        expect_json(await client.post(run_turn_path(id), json=body, headers=headers), 422)


async def test_the_client_runs_its_tools() -> None:
    final_answer = says("It has shipped.", expect=lambda request: message_text(request.messages[-1]) == "shipped")
    async with open_client(calls(ToolCall("call_a", "lookup", {"order": 7})), final_answer) as (client, tb, _):
        id = await create_conversation(tb)
        outcome = expect_json(
            await client.post(run_turn_path(id), json={"userText": "Where is order 7?", "tools": [LOOKUP]})
        )
        assert outcome["status"] == "approval"
        assert outcome["pending"] == [{"id": "call_a", "name": "lookup", "input": {"order": 7}, "invalidInput": None}]
        body = {"toolResults": [{"toolUseId": "call_a", "content": "shipped"}], "tools": [LOOKUP]}
        outcome = expect_json(await client.post(run_turn_path(id), json=body))
        assert (outcome["status"], outcome["text"]) == ("completed", "It has shipped.")
        assert outcome["toolInvocations"][0]["content"] == "shipped"
        before = await tb.user("maya").conversations.messages(id)
        assert expect_json(await client.post(run_turn_path(id), json=body), 409)["code"] == "already-decided"
        assert await tb.user("maya").conversations.messages(id) == before


async def test_concurrent_equal_results_are_stored_once() -> None:
    async with open_client(calls(ToolCall("call_a", "lookup")), says("Done.", delay=0.05)) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "?", "tools": [LOOKUP]}))
        body = {"toolResults": [{"toolUseId": "call_a", "content": "shipped"}], "tools": [LOOKUP]}
        answers = await asyncio.gather(*[client.post(run_turn_path(id), json=body) for _ in range(3)])
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409]
        stored = await tb.user("maya").conversations.messages(id)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"]


async def test_a_turn_that_failed_after_its_results_continues_when_they_are_sent_again() -> None:
    failing = raises(ProviderTimeoutError("too slow"))
    async with open_client(calls(ToolCall("call_a", "lookup")), failing, says("Done.")) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "?", "tools": [LOOKUP]}))
        body = {"toolResults": [{"toolUseId": "call_a", "content": "shipped"}], "tools": [LOOKUP]}
        expect_json(await client.post(run_turn_path(id), json=body), 504)
        assert expect_json(await client.post(run_turn_path(id), json=body))["text"] == "Done."
        stored = await tb.user("maya").conversations.messages(id)
        assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"]


async def test_each_result_belongs_to_its_call() -> None:
    def is_right(request: ChatRequest) -> bool:
        return {message.tool_call_id: message.content for message in request.messages if message.role == "tool"} == {
            "call_a": "seven",
            "call_b": "eight",
        }

    tool_calls = calls(ToolCall("call_a", "lookup", {"order": 7}), ToolCall("call_b", "lookup", {"order": 7}))
    async with open_client(tool_calls, says("Done.", expect=is_right)) as (client, _, _):
        first = expect_json(await client.post(CHAT, json={"text": "Both?", "tools": [LOOKUP]}))
        followup = {"conversationId": first["conversationId"], "tools": [LOOKUP]}
        some = {"toolResults": [{"toolUseId": "call_b", "content": "eight"}]}
        second = expect_json(await client.post(CHAT, json={**followup, **some}))
        assert (second["status"], [call["id"] for call in second["pending"]]) == ("approval", ["call_a"])
        last = {
            "toolResults": [{"toolUseId": id, "content": text} for id, text in (("call_a", "seven"), ("call_b", "x"))]
        }
        assert expect_json(await client.post(CHAT, json={**followup, **last}))["text"] == "Done."


async def test_the_model_receives_failed_results_and_denials() -> None:
    def is_right(request: ChatRequest) -> bool:
        failed, denied = sorted(
            (message for message in request.messages if message.role == "tool"), key=lambda each: str(each.tool_call_id)
        )
        return failed.is_error and failed.content == "no such order" and "Too costly" in str(denied.content)

    tool_calls = calls(ToolCall("call_a", "lookup"), ToolCall("call_b", "lookup"))
    async with open_client(tool_calls, says("Sorry.", expect=is_right)) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "?", "tools": [LOOKUP]}))
        body = {
            "toolResults": [{"toolUseId": "call_a", "content": "no such order", "isError": True}],
            "approvals": {"call_b": {"approved": False, "reason": "Too costly"}},
            "tools": [LOOKUP],
        }
        assert expect_json(await client.post(run_turn_path(id), json=body))["text"] == "Sorry."


async def test_results_without_a_pending_call_are_rejected() -> None:
    async with open_client(calls(ToolCall("call_a", "lookup"))) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "?", "tools": [LOOKUP]}))
        before = await tb.user("maya").conversations.raw_turns(id)
        result = {"toolUseId": "call_a", "content": "x"}
        for body in (
            {"toolResults": [{**result, "toolUseId": "call_z"}], "tools": [LOOKUP]},
            {"toolResults": [result], "tools": [{**LOOKUP, "name": "another"}]},
            {"toolResults": [result]},
            {"toolResults": [result, result], "tools": [LOOKUP]},
            {"toolResults": [result], "approvals": {"call_a": False}, "tools": [LOOKUP]},
            {"approvals": {"call_a": True}, "tools": [LOOKUP]},
        ):
            expect_json(await client.post(run_turn_path(id), json=body), 422)
        body = {"toolResults": [result], "tools": [LOOKUP]}
        expect_json(await client.post(CHAT, json=body), 422)
        expect_json(await client.post(run_turn_path("conv_none"), json=body), 404)
        expect_json(await client.post(run_turn_path(id), json=body, headers={"X-Tellback-User": "tom"}), 404)
        assert await tb.user("maya").conversations.raw_turns(id) == before


async def test_a_result_may_contain_parts() -> None:
    def is_right(request: ChatRequest) -> bool:
        parts = request.messages[-1].parts or ()
        return [part.kind for part in parts] == ["text", "image"]

    async with open_client(calls(ToolCall("call_a", "lookup")), says("Nice.", expect=is_right)) as (client, tb, _):
        id = await create_conversation(tb)
        expect_json(await client.post(run_turn_path(id), json={"userText": "?", "tools": [LOOKUP]}))
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        result = {"toolUseId": "call_a", "content": [{"type": "text", "text": "Here:"}, image]}
        assert (
            expect_json(await client.post(run_turn_path(id), json={"toolResults": [result], "tools": [LOOKUP]}))["text"]
            == "Nice."
        )


async def test_costly_patterns_in_schemas_are_not_executed() -> None:
    """Checking arguments with a caller's pattern would let a caller block the server."""
    costly = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    script = [calls(ToolCall("call_a", "lookup", {"x": "a" * 40 + "!"}))]
    async with open_client(*script) as (client, tb, _):
        body = {"userText": "?", "tools": [{**LOOKUP, "parameters": costly}]}
        assert (
            expect_json(await client.post(run_turn_path(await create_conversation(tb)), json=body))["status"]
            == "approval"
        )


@pytest.mark.parametrize("kind", ["run-turn", "chat"])
async def test_the_number_of_model_calls_is_limited(kind: str) -> None:
    class Calling(ScriptedModel):
        call_count = 0

        async def _complete(self, request: Any) -> ChatReply:
            Calling.call_count += 1
            if request.tool_choice == "none":
                return ChatReply(text="Enough.")
            return ChatReply(tool_calls=(ToolCall(f"call_{Calling.call_count}", "lookup", {"order": 7}),))

    async with open_client() as (client, tb, _):
        tb._runtime.model = Calling([])
        id = await create_conversation(tb)
        path, text_body = (
            (run_turn_path(id), {"userText": "Go"})
            if kind == "run-turn"
            else ("/ai-conversations/chat", {"text": "Go"})
        )
        options: dict[str, Any] = {"tools": [LOOKUP], "maxCycles": 3, **({} if kind == "run-turn" else {"space": None})}
        outcome = expect_json(await client.post(path, json={**text_body, **options}))
        for _ in range(10):
            if outcome["status"] != "approval":
                break
            if kind == "chat":
                options["conversationId"] = outcome["conversationId"]
            results = [{"toolUseId": call["id"], "content": "shipped"} for call in outcome["pending"]]
            outcome = expect_json(await client.post(path, json={**options, "toolResults": results}))
        assert (outcome["text"], Calling.call_count) == ("Enough.", 4)
