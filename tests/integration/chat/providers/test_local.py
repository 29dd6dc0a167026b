"""`LocalModel` with a real file and the real llama.cpp: few questions, short answers."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tellback import (
    ChatOptions,
    ConfigurationError,
    LocalModel,
    StreamStop,
    TextDelta,
    ToolCall,
    ToolResult,
    assistant_message,
    open_model,
    run_loop,
    system_message,
    tool,
    tool_result_message,
    user_message,
)
from tellback.chat import Provider, detect_provider
from tellback.errors import ProviderRequestError
from tellback.types import ToolUseEnd, ToolUseInputDelta, ToolUseStart
from tests.support.local_model import require_model_file

# A busy machine needs much more time.
pytestmark = pytest.mark.timeout(180)

# This file's own template accepts all roles in any order. Other templates do not.
STRICT = """{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@pytest.fixture(scope="module")
def file() -> Path:
    return require_model_file()


def local(file: Path, **options: Any) -> LocalModel:
    return LocalModel(file, **{"context": 1_024, "threads": 1, "config": {"temperature": 0}, **options})


@pytest.fixture(scope="module")
def model(file: Path) -> LocalModel:
    """One model for all tests of the module, so that it is loaded once; each test has its own event loop."""
    return local(file)


async def test_an_answer_and_its_stream_have_equal_text(model: LocalModel) -> None:
    reply = await model.complete("What is the capital of France?", system="Be brief.", max_output_tokens=8)
    assert reply.text.strip()
    assert reply.stop_reason in ("max_tokens", "end_turn")
    assert reply.usage is not None
    assert (reply.usage.provider, reply.usage.cost_usd) == ("local", 0.0)
    assert reply.usage.model == Path(model.model).stem
    assert (reply.usage.input_tokens or 0) > 10
    assert 1 <= (reply.usage.output_tokens or 0) <= 8
    stream = model.stream("What is the capital of France?", system="Be brief.", max_output_tokens=8)
    deltas: list[Any] = [delta async for delta in stream]
    texts = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    assert len(texts) > 3
    assert "".join(texts) == reply.text == deltas[-1].reply.text
    assert isinstance(deltas[-1], StreamStop)


async def test_leaving_a_stream_or_a_long_prompt_stops_the_work(model: LocalModel) -> None:
    started_at = time.process_time()
    await model.complete("other " * 900, max_output_tokens=1)
    cpu_of_whole_prompt = time.process_time() - started_at

    started_at = time.process_time()
    stream: Any = model.stream("Tell me a very long story.", max_output_tokens=900)
    await anext(stream)
    await stream.aclose()
    reading = asyncio.ensure_future(model.complete("word " * 900, max_output_tokens=1))
    await asyncio.sleep(0.2)
    reading.cancel()
    assert (await model.complete("Hi", max_output_tokens=1)).usage is not None
    # Without cancellation, the prompt would take as long as the previous one, and the story longer.
    assert time.process_time() - started_at < cpu_of_whole_prompt


async def test_a_schema_constrains_the_answer(model: LocalModel) -> None:
    schema = {
        "type": "object",
        "properties": {
            "color": {"enum": ["red", "green"]},
            "share": {"type": "number", "minimum": 0.25, "maximum": 0.5, "multipleOf": 0.25},
            "code": {"type": "string", "pattern": "^[A-C][0-9]{2}$"},
        },
        "required": ["color", "share", "code"],
        "additionalProperties": False,
    }
    reply = await model.complete("A color, a share and a code, please.", output_schema=schema, max_output_tokens=60)
    assert reply.stop_reason == "end_turn"
    Draft202012Validator(schema).validate(json.loads(reply.text))


async def test_a_tool_is_called_and_its_result_is_used(model: LocalModel) -> None:
    reply = await model.complete("Add 2 and 3.", tools=[add], tool_choice="required", max_output_tokens=60)
    [call] = reply.tool_calls
    assert (reply.stop_reason, call.name, call.invalid_input) == ("tool_use", "add", None)
    assert {type(value) for value in call.input.values()} == {int}
    assert set(call.input) == {"x", "y"}
    history = [
        user_message("Add 2 and 3."),
        assistant_message("", [ToolCall(call.id, "add", call.input)]),
        tool_result_message(ToolResult(call.id, "5")),
    ]
    deltas = [delta async for delta in model.stream(history, tools=[add], max_output_tokens=12)]
    last = deltas[-1]
    assert isinstance(last, StreamStop)
    assert last.reply is not None
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert text == last.reply.text
    assert "say" not in text
    assert text or last.reply.tool_calls


async def test_a_tool_call_is_streamed_as_deltas(model: LocalModel) -> None:
    deltas = [delta async for delta in model.stream("Add 2 and 3.", tools=[add], tool_choice="add")]
    kinds = [type(delta) for delta in deltas]
    assert (kinds[0], kinds[-2:]) == (ToolUseStart, [ToolUseEnd, StreamStop])
    input_json = "".join(delta.partial_input_json for delta in deltas if isinstance(delta, ToolUseInputDelta))
    last = deltas[-1]
    assert isinstance(last, StreamStop)
    assert last.reply is not None
    assert last.reply.tool_calls[0].input == json.loads(input_json)


async def test_a_template_that_rejects_roles_gets_only_supported_roles(file: Path) -> None:
    history = [
        system_message("Be brief."),
        assistant_message("Hello."),
        user_message("Hi."),
        user_message("Add."),
        assistant_message("", [ToolCall("c1", "add", {"x": 1, "y": 2})]),
        tool_result_message(ToolResult("c1", "3")),
        user_message("So?"),
    ]
    async with local(file, chat_template=STRICT, context=512) as model:
        reply = await model.complete(history, system="You add.", tools=[add], max_output_tokens=4)
        assert reply.stop_reason == "max_tokens"


async def test_the_error_for_a_long_request_contains_the_token_counts(model: LocalModel) -> None:
    with pytest.raises(ProviderRequestError, match=r"has 1\d{3} tokens, .* context of 1024.*context=") as caught:
        await model.complete("word " * 1_500)
    assert (caught.value.status, caught.value.retryable) == (400, False)


async def test_the_error_for_rejected_settings_has_llamas_message(model: LocalModel) -> None:
    with pytest.raises(ProviderRequestError, match="temperature"):
        await model.complete("Hi", temperature="hot")


@pytest.fixture
def damaged_file(tmp_path: Path, file: Path) -> Path:
    model = tmp_path / "damaged.gguf"
    with file.open("rb") as reply:
        model.write_bytes(reply.read(200_000))
    return model


async def test_a_damaged_file_raises_configuration_error(damaged_file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot load .*damaged\.gguf.*context of 8192"):
        await LocalModel(damaged_file).complete("Hi")
    assert capfd.readouterr() == ("", "")


async def test_a_path_can_be_a_model_name(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert [detect_provider(name) for name in (str(file), f"local/{file}", "qwen/Tiny.GGUF")] == [Provider.LOCAL] * 3
    model = open_model(f"local/{file}", context=512, threads=1)
    assert (await run_loop(ChatOptions(model=model, max_output_tokens=2), "Hi")).text
    await model.aclose()
    assert capfd.readouterr() == ("", "")
