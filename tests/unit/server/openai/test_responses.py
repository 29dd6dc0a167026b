"""Responses are valid for the types of OpenAI's SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tellback.server.openai.requests import CompletionOut
from tellback.server.openai.responses import DONE_MARKER, CompletionWriter, encode_usage
from tellback.turn import TurnResult
from tellback.types import ChatUsage, ToolCall
from tellback.types.blocks import TextBlock
from tellback.types.conversations import StoredMessage
from tellback.types.ids import utc_now


def result(text: str = "Hi", status: str = "completed", reason: str | None = None, **fields: Any) -> TurnResult:
    message = StoredMessage("m", "c", 1, "t", "assistant", (TextBlock(text),), utc_now(), stop_reason=reason)
    return TurnResult(ok=True, text=text, status=status, messages=(message,), **fields)


@pytest.mark.parametrize(
    ("given_result", "reason"),
    [
        (result(), "stop"),
        (result(reason="stop_sequence"), "stop"),
        (result(status="truncated", reason="max_tokens"), "length"),
        (result(reason="refusal"), "content_filter"),
        (result("", "approval", "tool_use", pending=(ToolCall("c1", "look"),)), "tool_calls"),
        (result(status="max_cycles"), "stop"),
    ],
)
def test_finish_reasons_are_openais(given_result: TurnResult, reason: str) -> None:
    completion = CompletionWriter("little").encode_completion(given_result)
    CompletionOut.model_validate(completion)
    assert ChatCompletion.model_validate(completion, strict=True).choices[0].finish_reason == reason
    *chunks, done_marker = CompletionWriter("little", with_usage=True).last_chunks(given_result)
    assert done_marker == DONE_MARKER
    parsed = [ChatCompletionChunk.model_validate_json(chunk) for chunk in chunks]
    assert parsed[-2].choices[0].finish_reason == reason


def test_usage_is_null_if_the_provider_does_not_report_it() -> None:
    assert encode_usage(ChatUsage()) is None
    assert encode_usage(ChatUsage(output_tokens=3)) == {
        "prompt_tokens": 0,
        "completion_tokens": 3,
        "total_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


@given(st.text(), st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3))
def test_arbitrary_text_survives_the_encoding(text: str, arguments: dict[str, str]) -> None:
    turn_result = result(text, "approval", pending=(ToolCall("c1", "look", arguments),))
    completion = json.loads(json.dumps(CompletionWriter("little").encode_completion(turn_result)))
    [choice] = completion["choices"]
    assert (choice["message"]["content"] or "") == text
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == arguments
    chunk = CompletionWriter("little").text_chunk(text)
    assert "\n" not in chunk
    assert json.loads(chunk)["choices"][0]["delta"]["content"] == text
