"""Message content in requests: blocks of responses are accepted, and URLs are restricted to the web."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import TypeAdapter, ValidationError

from tellback.types.blocks import ContentBlock, MediaBlock, ToolResultBlock, ToolUseBlock, as_blocks
from tellback.types.messages import ChatUsage
from tellback.wire.arguments import UsageIn
from tellback.wire.messages import MAX_BLOCKS, ContentIn, encode_block
from tellback.wire.operations import body_model
from tellback.wire.turns import ChatInput, RunTurn
from tests.unit.wire import strategies

CONTENT: TypeAdapter[Any] = TypeAdapter(ContentIn)


def has_address(block: ContentBlock) -> bool:
    parts = block.parts or () if isinstance(block, ToolResultBlock) else (block,)
    return any(isinstance(part, MediaBlock) and part.url is not None for part in parts)


@given(strategies.blocks.filter(lambda block: not has_address(block) and block.type != "unknown"))
def test_a_block_of_a_response_can_be_sent_back_unchanged(block: ContentBlock) -> None:
    encoded = json.loads(json.dumps(encode_block(block)))
    try:
        as_blocks([block])
    except TypeError:
        return  # one that cannot be stored
    assert as_blocks(CONTENT.validate_python([encoded])) == (block,)


def test_json_names_are_accepted_in_nested_blocks() -> None:
    image = MediaBlock("image", url="https://example.com/cat.png", mime_type="image/png")
    blocks = (
        ToolUseBlock("tu_1", "lookup", {"toolUseId": "kept"}, invalid_input="{"),
        ToolResultBlock("tu_1", "A cat.", tool_name="lookup", parts=(image,)),
    )
    encoded = [encode_block(block) for block in blocks]
    assert as_blocks(CONTENT.validate_python(encoded)) == blocks


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gs://bucket/x.png", "FILE:///x", "s3://b/x", "/etc/passwd", ""])
def test_only_web_and_data_urls_are_accepted(url: str) -> None:
    image = {"type": "image", "url": url, "mimeType": "image/png"}
    result = {"type": "tool_result", "toolUseId": "tu_1"}
    for content in (
        [image],
        [{**result, "content": [image]}],
        [{**result, "parts": [image]}],
        [{**result, "content": image}],
    ):
        with pytest.raises(ValidationError, match="url must begin with https"):
            CONTENT.validate_python(content)
    with pytest.raises(ValidationError, match="url must begin with https"):
        ChatInput.model_validate({"text": "Hi", "attachments": [{"name": "x", "url": url}]})


@pytest.mark.parametrize("url", ["https://example.com/cat.png", "HTTP://example.com/x", "data:image/png;base64,aGk="])
def test_web_urls_are_accepted(url: str) -> None:
    assert CONTENT.validate_python([{"type": "image", "url": url}])[0]["url"] == url
    assert ChatInput.model_validate({"text": "Hi", "attachments": [{"name": "x", "url": url}]}).attachments


def test_tool_arguments_may_contain_any_url() -> None:
    call = {"type": "tool_use", "id": "tu_1", "name": "read", "arguments": {"url": "file:///etc/hosts"}}
    assert CONTENT.validate_python([call]) == [call]


def test_the_number_of_blocks_is_limited() -> None:
    text = {"type": "text", "text": "x"}
    assert len(CONTENT.validate_python([text] * MAX_BLOCKS)) == MAX_BLOCKS
    with pytest.raises(ValidationError):
        CONTENT.validate_python([text] * (MAX_BLOCKS + 1))


def test_usage_contains_its_provider_and_model() -> None:
    usage = {"inputTokens": 1, "outputTokens": 2, "costUsd": 0.5, "provider": "anthropic", "model": "m"}
    parsed = body_model("append_assistant_turn").model_validate({"content": "Hi", "usage": usage}).arguments()["usage"]
    assert parsed == ChatUsage(1, 2, 3, 0.5, provider="anthropic", model="m")
    assert UsageIn.model_validate({"inputTokens": 1}).arguments() == {"input_tokens": 1}
    with pytest.raises(ValidationError):
        UsageIn.model_validate({"model": "x" * 501})


def test_max_cycles_is_not_an_argument_of_the_turn() -> None:
    for turn in (
        ChatInput.model_validate({"text": "Hi", "maxCycles": 3}),
        RunTurn.model_validate({"userText": "Hi", "maxCycles": 3}),
    ):
        assert (turn.max_cycles, "max_cycles" in turn.arguments()) == (3, False)
    for wrong in (0, 51, "3"):
        with pytest.raises(ValidationError):
            ChatInput.model_validate({"text": "Hi", "maxCycles": wrong})
