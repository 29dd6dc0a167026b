"""The unmodified OpenAI client against a real server."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from tellback import Tellback
from tellback.chat.model import ChatRequest, ModelBase
from tellback.errors import ProviderOverloadedError, ProviderRequestError
from tellback.server import ServerSettings, create_app
from tellback.testing import ScriptedModel, calls, raises, says
from tellback.types import ChatReply, ChatUsage, ReplyDelta, TextDelta, ToolCall
from tellback.types.conversations import StoredMessage
from tests.integration.chat.providers.vendors import Anthropic
from tests.support.fake_http_server import FakeHttpServer
from tests.support.http_server import running_server

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
RAIN = ToolCall("call_rain", "get_weather", {"city": "Lisbon"})


class Served:
    """A server with a scripted model."""

    def __init__(self, tb: Tellback, url: str) -> None:
        self.tb = tb
        self.url = url

    async def client(self, role: Any = "app", retries: int = 0, **kwargs: Any) -> AsyncOpenAI:
        """Return OpenAI's client with a key of that role."""
        key = await self.tb.keys.create(role, tenant_id="acme", **kwargs)
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key.secret, max_retries=retries)

    async def log(self, user: str = "maya") -> list[StoredMessage]:
        """Return the log of a user, oldest first."""
        conversations = self.tb.user(user, "acme").conversations
        found = [await conversations.raw_turns(each.id) for each in reversed(await conversations.list())]
        return [message for messages in found for message in messages]

    async def logged_messages(self, user: str = "maya") -> list[tuple[str, str]]:
        """Return roles and texts of the log."""
        return [(message.role, message.text) for message in await self.log(user)]


@asynccontextmanager
async def served(model: Any, **settings: Any) -> AsyncIterator[Served]:
    """Run a server with that model."""
    async with (
        Tellback(":memory:", model=model) as tb,
        running_server(create_app(tb, ServerSettings(**settings), opens=False)) as url,
    ):
        yield Served(tb, url)


def user(text: Any) -> Any:
    """A user message."""
    return {"role": "user", "content": text}


def assistant(text: str) -> Any:
    """An assistant message."""
    return {"role": "assistant", "content": text}


async def test_a_chat_is_answered_and_logged() -> None:
    usage = ChatUsage(input_tokens=12, output_tokens=3, total_tokens=15, cached_tokens=4)
    with ScriptedModel([says("Hello, Maya!", usage=usage)], model="little") as model:
        async with served(model) as server, await server.client() as client:
            completion = await client.chat.completions.create(
                model="tellback",
                messages=[{"role": "system", "content": "Be kind."}, user("Hi, I'm Maya.")],
                user="maya",
                temperature=0.3,
                max_completion_tokens=50,
                stop=["END"],
                seed=7,
                metadata={"screen": "home"},
            )
            log = await server.log()
    assert completion.object == "chat.completion"
    assert completion.model == "little"
    assert completion.id.startswith("chatcmpl-")
    [choice] = completion.choices
    assert (choice.finish_reason, choice.message.role, choice.message.content) == ("stop", "assistant", "Hello, Maya!")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens, completion.usage.total_tokens) == (
        12,
        3,
        15,
    )
    assert [(each.role, each.text) for each in log] == [("user", "Hi, I'm Maya."), ("assistant", "Hello, Maya!")]
    assert log[0].metadata == {"screen": "home"}
    [model_request] = model.requests
    assert model_request.system is not None
    assert model_request.system.startswith("Be kind.")
    assert model_request.max_output_tokens == 50
    assert model_request.config == {"temperature": 0.3, "stop": ["END"], "seed": 7}


async def test_a_streamed_answer_has_chunks_and_usage_at_the_end() -> None:
    usage = ChatUsage(input_tokens=5, output_tokens=2)
    with ScriptedModel([says("Hello, Maya!", chunks=4, usage=usage)]) as model:
        async with served(model) as server, await server.client("user", user_id="maya") as client:
            raw = await client.chat.completions.with_raw_response.create(
                model="tellback", messages=[user("Hi")], stream=True, stream_options={"include_usage": True}
            )
            conversation = raw.headers["X-Tellback-Conversation"]
            chunks = [chunk async for chunk in raw.parse()]
            log = await server.log()
    assert len({chunk.id for chunk in chunks}) == 1
    *text_chunks, usage_chunk = chunks
    assert text_chunks[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content for chunk in text_chunks]
    assert "".join(filter(None, texts)) == "Hello, Maya!"
    assert len([text for text in texts if text]) == 3
    assert text_chunks[-1].choices[0].finish_reason == "stop"
    assert usage_chunk.choices == []
    assert usage_chunk.usage is not None
    assert usage_chunk.usage.total_tokens == 7
    assert [message.role for message in log] == ["user", "assistant"]
    assert log[0].conversation_id == conversation


@pytest.mark.parametrize("streams", [False, True])
async def test_the_client_runs_its_own_tools(streams: bool) -> None:
    script = [calls(RAIN, saying="Let me look."), says("It rains in Lisbon.", expect="rain, 14 degrees")]
    with ScriptedModel(script) as model:
        async with served(model) as server, await server.client() as client:
            history: list[Any] = [user("How is the weather in Lisbon?")]
            call_reply = await _ask(client, history, streams, tools=[WEATHER], user="maya")
            [call] = call_reply["tool_calls"]
            history += [
                {"role": "assistant", "content": call_reply["content"], "tool_calls": call_reply["tool_calls"]},
                {"role": "tool", "tool_call_id": call["id"], "content": "rain, 14 degrees"},
            ]
            final_reply = await _ask(client, history, streams, tools=[WEATHER], user="maya")
            log = await server.log()
            [conversation] = await server.tb.user("maya", "acme").conversations.list()
            pending = await server.tb.user("maya", "acme").conversations.pending(conversation.id)
    assert call_reply["finish_reason"] == "tool_calls"
    assert call_reply["content"] == "Let me look."
    assert call == {
        "id": "call_rain",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"city":"Lisbon"}'},
    }
    assert final_reply["content"] == "It rains in Lisbon."
    assert final_reply["finish_reason"] == "stop"
    assert [message.role for message in log] == ["user", "assistant", "tool", "assistant"]
    assert len({message.turn_id for message in log}) == 1
    assert log[2].messages[0].tool_call_id == "call_rain"
    assert log[2].messages[0].name == "get_weather"
    assert pending == ()
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]


async def _ask(client: AsyncOpenAI, messages: Sequence[Any], streams: bool, **kwargs: Any) -> dict[str, Any]:
    """Return the answer as a mapping, streamed or not."""
    if not streams:
        [choice] = (await client.chat.completions.create(model="tellback", messages=messages, **kwargs)).choices
    else:
        async with client.chat.completions.stream(model="tellback", messages=messages, **kwargs) as stream:
            async for _ in stream:
                pass
            [choice] = (await stream.get_final_completion()).choices
    message = choice.message
    found = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.function.name, "arguments": call.function.arguments},
        }
        for call in message.tool_calls or ()
    ]
    return {"content": message.content, "tool_calls": found, "finish_reason": choice.finish_reason}


async def test_results_of_several_calls_are_sent_together() -> None:
    tool_calls = calls(ToolCall("a", "get_weather", {"city": "Rome"}), ToolCall("b", "get_weather", {"city": "Oslo"}))
    with ScriptedModel([tool_calls, says("Rome is warmer.")]) as model:
        async with served(model) as server, await server.client() as client:
            history: list[Any] = [user("Where is it warmer?")]
            call_reply = await _ask(client, history, True, tools=[WEATHER], user="maya")
            history.append({"role": "assistant", "content": None, "tool_calls": call_reply["tool_calls"]})
            results = [{"role": "tool", "tool_call_id": id, "content": text} for id, text in [("b", "3"), ("a", "20")]]
            with pytest.raises(openai.BadRequestError, match="followed by a tool message"):
                await _ask(client, [*history, results[0]], False, tools=[WEATHER], user="maya")
            final_reply = await _ask(client, [*history, *results], False, tools=[WEATHER], user="maya")
            log = await server.logged_messages()
    assert [call["id"] for call in call_reply["tool_calls"]] == ["a", "b"]
    assert final_reply["content"] == "Rome is warmer."
    assert log[2:] == [("tool", "3"), ("tool", "20"), ("assistant", "Rome is warmer.")]


async def test_results_of_calls_that_are_not_logged_are_stored() -> None:
    with ScriptedModel([says("It rains.")]) as model:
        async with served(model) as server, await server.client() as client:
            history: list[Any] = [
                user("How is the weather?"),
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "x1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "x1", "content": "rain"},
            ]
            reply = await _ask(client, history, False, user="maya")
            log = await server.logged_messages()
    assert reply["content"] == "It rains."
    assert log == [("tool", "rain"), ("assistant", "It rains.")]
    assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool"]


async def test_a_call_with_invalid_json_is_repaired_before_the_client_gets_it() -> None:
    broken = ChatReply(tool_calls=(ToolCall("c1", "get_weather", {}, invalid_input='{"city'),), stop_reason="tool_use")
    with ScriptedModel([broken, calls(RAIN)]) as model:
        async with served(model) as server, await server.client() as client:
            reply = await _ask(client, [user("Weather?")], True, tools=[WEATHER], user="maya")
    assert [call["id"] for call in reply["tool_calls"]] == ["call_rain"]


async def test_an_image_reaches_the_model_and_is_summarized_in_the_log() -> None:
    data = base64.b64encode(b"\x89PNG" + bytes(200_000)).decode()
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    ]
    with ScriptedModel([says("A cat.")]) as model:
        async with served(model) as server, await server.client() as client:
            await client.chat.completions.create(model="tellback", messages=[user(parts)], user="maya")
            log = await server.log()
    [message] = model.requests[0].messages
    assert message.parts is not None
    assert [(part.kind, part.mime, part.url) for part in message.parts] == [
        ("text", None, None),
        ("image", "image/png", None),
        ("image", None, "https://example.com/cat.png"),
    ]
    assert message.parts[1].data == data
    assert message.parts[1].meta == {"detail": "low"}
    assert log[0].text.startswith("What is this?\n[attachment: image (image/png, 200004 bytes)]")
    assert "https://example.com/cat.png" in log[0].text


async def test_a_repeated_history_is_logged_once() -> None:
    with ScriptedModel([says("one"), says("two"), says("three")]) as model:
        async with served(model) as server, await server.client() as client:
            history: list[Any] = [user("first")]
            for text in ("second", "third", ""):
                reply = await _ask(client, history, False, user="maya")
                history += [assistant(reply["content"])] + ([user(text)] if text else [])
            log = await server.logged_messages()
            conversations = await server.tb.user("maya", "acme").conversations.list()
    assert [text for _, text in log] == ["first", "one", "second", "two", "third", "three"]
    assert len(conversations) == 1
    assert conversations[0].turns == 3
    assert [len(request.messages) for request in model.requests] == [1, 3, 5]


async def test_unknown_history_reaches_the_model_but_is_not_logged() -> None:
    with ScriptedModel([says("Rome.")]) as model:
        async with served(model) as server, await server.client() as client:
            history = [user("Hi"), assistant("Hello!"), user("Where was I in May?")]
            await client.chat.completions.create(model="tellback", messages=history, user="maya")
            log = await server.logged_messages()
    assert log == [("user", "Where was I in May?"), ("assistant", "Rome.")]
    assert len(model.requests[0].messages) == 3


async def test_retries_of_the_client_do_not_log_twice() -> None:
    overloaded = ProviderOverloadedError("busy", retryable=True)
    with ScriptedModel([raises(overloaded), raises(overloaded), says("At last.")]) as model:
        async with served(model) as server, await server.client(retries=2) as client:
            reply = await _ask(client, [user("Are you there?")], False, user="maya")
            log = await server.logged_messages()
    assert reply["content"] == "At last."
    assert log == [("user", "Are you there?"), ("assistant", "At last.")]


async def test_a_repeated_text_after_an_answer_is_a_new_turn() -> None:
    with ScriptedModel([says("one"), says("two")]) as model:
        async with served(model) as server, await server.client() as client:
            for _ in range(2):
                await _ask(client, [user("More.")], False, user="maya")
            log = await server.logged_messages()
    assert log == [("user", "More."), ("assistant", "one"), ("user", "More."), ("assistant", "two")]


async def test_a_failed_message_in_the_clients_history_is_logged_once() -> None:
    failing = raises(ProviderRequestError("no"))
    with ScriptedModel([failing, says("Both.")]) as model:
        async with served(model) as server, await server.client() as client:
            with pytest.raises(openai.InternalServerError):
                await _ask(client, [user("one")], False, user="maya")
            reply = await _ask(client, [user("one"), user("two")], False, user="maya")
            log = await server.logged_messages()
    assert reply["content"] == "Both."
    assert log == [("user", "one"), ("user", "two"), ("assistant", "Both.")]
    assert [message.content for message in model.requests[1].messages] == ["one", "two"]


async def test_a_request_with_the_same_idempotency_key_gets_the_same_answer() -> None:
    with ScriptedModel([says("Once.")]) as model:
        async with served(model) as server, await server.client() as client:
            key = {"Idempotency-Key": "k1"}
            first = await _ask(client, [user("Pay it.")], False, user="maya", extra_headers=key)
            repeated = await _ask(client, [user("Pay it.")], False, user="maya", extra_headers=key)
            streamed_reply = await _ask(client, [user("Pay it.")], True, user="maya", extra_headers=key)
            with pytest.raises(openai.BadRequestError, match="used for a different request"):
                await _ask(client, [user("Pay it twice.")], False, user="maya", extra_headers=key)
            log = await server.logged_messages()
    assert first["content"] == repeated["content"] == streamed_reply["content"] == "Once."
    assert log == [("user", "Pay it."), ("assistant", "Once.")]


async def test_concurrent_equal_requests_are_answered_once() -> None:
    with ScriptedModel([says("Once.", delay=0.3)]) as model:
        async with served(model) as server, await server.client() as client:
            replies = await asyncio.gather(*(_ask(client, [user("Hi")], False, user="maya") for _ in range(2)))
            log = await server.logged_messages()
    assert [each["content"] for each in replies] == ["Once.", "Once."]
    assert log == [("user", "Hi"), ("assistant", "Once.")]


async def test_concurrent_equal_tool_results_are_answered_once() -> None:
    with ScriptedModel([calls(RAIN), says("It rains.", delay=0.3)]) as model:
        async with served(model) as server, await server.client() as client:
            call_reply = await _ask(client, [user("Weather?")], False, tools=[WEATHER], user="maya")
            history = [
                user("Weather?"),
                {"role": "assistant", "content": None, "tool_calls": call_reply["tool_calls"]},
                {"role": "tool", "tool_call_id": "call_rain", "content": "rain"},
            ]
            requests = (_ask(client, history, streams, tools=[WEATHER], user="maya") for streams in (False, True))
            replies = await asyncio.gather(*requests)
            log = await server.logged_messages()
    assert [each["content"] for each in replies] == ["It rains.", "It rains."]
    assert log[2:] == [("tool", "rain"), ("assistant", "It rains.")]


async def test_memories_of_one_conversation_are_used_in_the_next() -> None:
    with ScriptedModel([says("Noted."), says("Try the vegetarian one.")]) as model:
        async with Tellback(":memory:", model=model, extractor="verbatim") as tb:
            app = create_app(tb, ServerSettings(), opens=False)
            async with running_server(app) as url:
                server = Served(tb, url)
                async with await server.client() as client:
                    raw = await client.chat.completions.with_raw_response.create(
                        model="tellback", messages=[user("I am vegetarian since March.")], user="maya"
                    )
                    first = raw.headers["X-Tellback-Conversation"]
                    await tb.user("maya", "acme").conversations.close(first)
                    raw = await client.chat.completions.with_raw_response.create(
                        model="tellback",
                        messages=[{"role": "system", "content": "Be brief."}, user("Which vegetarian dish do I like?")],
                        user="maya",
                    )
    assert raw.headers["X-Tellback-Conversation"] != first
    system_prompt = model.requests[1].system or ""
    assert system_prompt.startswith("Be brief.")
    assert "vegetarian since March" in system_prompt
    assert "vegetarian since March" not in (model.requests[0].system or "")


async def test_memory_can_be_disabled_and_the_space_selected() -> None:
    with ScriptedModel([says("ok")] * 2) as model:
        async with served(model) as server, await server.client() as client:
            no_memory_headers = {"X-Tellback-Space": "none", "X-Tellback-Namespace": "private"}
            await _ask(client, [user("A secret.")], False, user="maya", extra_headers=no_memory_headers)
            maya = server.tb.user("maya", "acme")
            assert await maya.memory.list_spaces() == []
            work_headers = {"X-Tellback-Space": "b%C3%BCro", "X-Tellback-Namespace": "work"}
            await _ask(client, [user("A plan.")], False, user="maya", extra_headers=work_headers)
            assert [space.name for space in await maya.memory.list_spaces()] == ["büro"]
            assert {each.namespace for each in await maya.conversations.list()} == {"private", "work"}


async def test_two_users_of_one_key_are_isolated() -> None:
    with ScriptedModel([says("Hi Maya."), says("Hi Noor."), says("Hi again.")]) as model:
        async with served(model) as server, await server.client() as client:
            await _ask(client, [user("I'm Maya.")], False, user="maya")
            raw = await client.chat.completions.with_raw_response.create(
                model="tellback", messages=[user("I'm Noor.")], user="noor"
            )
            noors_headers = {"X-Tellback-Conversation": raw.headers["X-Tellback-Conversation"]}
            with pytest.raises(openai.NotFoundError):
                await _ask(client, [user("Hi")], False, user="maya", extra_headers=noors_headers)
            conflicting_headers = {**noors_headers, "X-Tellback-User": "noor"}
            await _ask(client, [user("Me again.")], False, extra_headers=conflicting_headers)
            assert [text for _, text in await server.logged_messages("maya")] == ["I'm Maya.", "Hi Maya."]
            assert [text for _, text in await server.logged_messages("noor")] == [
                *("I'm Noor.", "Hi Noor."),
                *("Me again.", "Hi again."),
            ]


async def test_sessions_separate_chats() -> None:
    with ScriptedModel([says("a"), says("b"), says("c")]) as model:
        async with served(model) as server, await server.client() as client:
            for session in ("tab-1", "tab-2", "tab-1"):
                headers = {"X-Tellback-Session": session}
                await _ask(client, [user("Hi")], False, user="maya", extra_headers=headers)
            conversations = await server.tb.user("maya", "acme").conversations.list()
    assert sorted((str(each.session_id), each.turns) for each in conversations) == [("tab-1", 2), ("tab-2", 1)]


async def test_the_model_auto_is_the_servers_default_model() -> None:
    with ScriptedModel([says("Hello, Maya!")], model="little") as model:
        async with served(model) as server, await server.client() as client:
            completion = await client.chat.completions.create(model="auto", messages=[user("Hi.")], user="maya")
            retrieved = await client.models.retrieve("auto")
    assert completion.choices[0].message.content == "Hello, Maya!"
    assert completion.model == "little"
    assert retrieved.id == "auto"


async def test_models_are_listed() -> None:
    model = ScriptedModel([], model="little")
    model_names = ("gpt-5", "openrouter/vendor/large")
    async with served(model, models=model_names) as server, await server.client() as client:
        names = [each.id async for each in client.models.list()]
        assert names == ["tellback", "auto", "little", *model_names]
        for name in names:
            assert (await client.models.retrieve(name)).id == name
        with pytest.raises(openai.NotFoundError) as caught:
            await client.models.retrieve("gpt-99")
    assert caught.value.code == "model_not_found"


async def test_errors_become_the_clients_exceptions() -> None:
    request_error = ProviderRequestError("no")
    with ScriptedModel([raises(request_error), raises(request_error), raises(request_error, after="Hel")]) as model:
        async with served(model, rate_limit=None) as server:
            app_client, user_client = await server.client(), await server.client("user", user_id="maya")
            anonymous_client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="tb_nobody", max_retries=0)
            with pytest.raises(openai.AuthenticationError):
                await anonymous_client.models.list()
            with pytest.raises(openai.BadRequestError, match="send the user's id"):
                await _ask(app_client, [user("Hi")], False)
            with pytest.raises(openai.PermissionDeniedError):
                await _ask(user_client, [user("Hi")], False, user="noor")
            with pytest.raises(openai.BadRequestError) as caught_error:
                await _ask(app_client, [user("Hi")], False, user="noor", extra_headers={"X-Tellback-User": "maya"})
            with pytest.raises(openai.NotFoundError) as unknown:
                await user_client.chat.completions.create(model="gpt-99", messages=[user("Hi")])
            with pytest.raises(openai.BadRequestError) as several_error:
                await user_client.chat.completions.create(model="tellback", messages=[user("Hi")], n=2)
            with pytest.raises(openai.BadRequestError) as temperature_error:
                await user_client.chat.completions.create(model="tellback", messages=[user("Hi")], temperature=9)
            with pytest.raises(openai.InternalServerError):
                await _ask(user_client, [user("Hi")], False)
            with pytest.raises(openai.InternalServerError):
                await _ask(user_client, [user("Hi")], True)
            with pytest.raises(openai.APIError, match="provider failed"):
                await _ask(user_client, [user("Hi")], True)
            for client in (app_client, user_client, anonymous_client):
                await client.close()
            log = await server.logged_messages()
    assert caught_error.value.param == "user"
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    assert (several_error.value.code, several_error.value.param) == ("unsupported_parameter", "n")
    assert temperature_error.value.param == "temperature"
    assert log == [("user", "Hi")]


async def test_settings_are_translated_for_other_providers() -> None:
    vendor = Anthropic()
    async with FakeHttpServer() as wire:
        wire.reply_with(vendor.response("", [("toolu_1", "get_weather", {"city": "Rome"})]))
        model = vendor.model(wire)
        async with aclosing(model), served(model) as server, await server.client() as client:
            settings = {"temperature": 1.7, "stop": "END", "seed": 1, "max_tokens": 9, "tool_choice": "required"}
            reply = await _ask(client, [user("Weather?")], False, tools=[WEATHER], user="maya", **settings)
        sent = wire.requests[0].body
    assert reply["tool_calls"][0]["id"] == "toolu_1"
    assert (sent["temperature"], sent["stop_sequences"], sent["max_tokens"]) == (1.0, ["END"], 9)
    assert sent["tool_choice"] == {"type": "any"}
    assert sent["tools"][0]["input_schema"] == WEATHER["function"]["parameters"]
    assert "seed" not in sent


async def test_rate_limits_raise_rate_limit_errors() -> None:
    with ScriptedModel([]) as model:
        async with served(model) as server, await server.client(rate_limit=1) as client:
            await client.models.list()
            with pytest.raises(openai.RateLimitError) as caught:
                await client.models.list()
    assert int(caught.value.response.headers["Retry-After"]) >= 1


class Endless(ModelBase):
    """A model that runs until it is cancelled."""

    model, provider = "endless", "scripted"

    def __init__(self, *, says_something: bool = True) -> None:
        self._says_something = says_something
        self.begun, self.over = asyncio.Event(), asyncio.Event()

    async def _complete(self, request: ChatRequest) -> ChatReply:
        async for _ in self._stream(request):
            pass
        raise AssertionError("it never ends")

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        try:
            if self._says_something:
                yield TextDelta("well")
            self.begun.set()
            await asyncio.Event().wait()
        finally:
            self.over.set()


@pytest.mark.parametrize("says_something", [False, True])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_disconnect_cancels_the_model_call(
    streams: bool, says_something: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = Endless(says_something=says_something)
    async with served(model) as server, await server.client() as client:
        request_task = asyncio.create_task(_ask(client, [user("Hi")], streams, user="maya"))
        async with asyncio.timeout(20):
            await model.begun.wait()
            request_task.cancel()
            await asyncio.gather(request_task, return_exceptions=True)
            await model.over.wait()
    assert [each for each in caplog.records if each.levelname in ("WARNING", "ERROR")] == []
