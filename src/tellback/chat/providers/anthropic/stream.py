"""Anthropic's streamed events put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tellback.chat.providers.anthropic.decode import build_reply, ensure_call_id_and_name
from tellback.chat.providers.stainless import as_dict
from tellback.types import (
    ChatReply,
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)


class AnthropicStreamReader:
    """What the events of one call have given so far: its blocks, by index, and the pieces they come in."""

    def __init__(self, provider: str, model: str) -> None:
        self.is_finished = False
        self._provider = provider
        self._model = model
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._message_info: dict[str, Any] = {}
        self._stop_reason: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether Claude said why it stopped."""
        return self.is_finished or self._stop_reason is not None

    def add(self, event: Any) -> Iterator[ReplyDelta]:
        """Take one event, and give its deltas; kinds that are not known give none."""
        match getattr(event, "type", None):
            case "content_block_delta":
                yield from self._add_delta(event.index, event.delta)
            case "content_block_start":
                yield from self._start_block(event.index, as_dict(event.content_block))
            case "content_block_stop":
                block = self._blocks.get(event.index, {})
                if block.get("type") == "tool_use":
                    yield ToolUseEnd(block["id"])
            case "message_start":
                self._message_info = {"id": event.message.id, "model": event.message.model}
                self._update_usage(event.message)
            case "message_delta":
                self._stop_reason = event.delta.stop_reason or self._stop_reason
                self._update_usage(event)
            case "message_stop":
                self.is_finished = True

    def close(self) -> Iterator[ReplyDelta]:
        """Nothing is held back."""
        return iter(())

    def reply(self) -> ChatReply:
        """The whole reply."""
        inputs: dict[int, str] = {}
        for (index, name), pieces in self._pieces.items():
            block = self._blocks.setdefault(index, {})
            if name == "input":
                inputs[id(block)] = "".join(pieces)
            else:
                block[name] = (block.get(name) or "") + "".join(pieces)
        self._pieces.clear()
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        raw = {**self._message_info, "stop_reason": self._stop_reason, "content": blocks, "usage": self._usage}
        model = self._message_info.get("model") or self._model
        return build_reply(blocks, self._stop_reason, self._usage, raw, self._provider, model, inputs)

    def _start_block(self, index: int, block: dict[str, Any]) -> Iterator[ReplyDelta]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            ensure_call_id_and_name(block)
            yield ToolUseStart(block["id"], block["name"])
        elif block.get("type") == "text" and block.get("text"):
            yield TextDelta(block["text"])

    def _add_delta(self, index: int, delta: Any) -> Iterator[ReplyDelta]:
        block = self._blocks.setdefault(index, {})
        match getattr(delta, "type", None):
            case "text_delta":
                if delta.text:
                    self._append_piece(index, "text", delta.text)
                    yield TextDelta(delta.text)
            case "thinking_delta":
                if delta.thinking:
                    self._append_piece(index, "thinking", delta.thinking)
                    yield ThinkingDelta(delta.thinking)
            case "input_json_delta":
                self._append_piece(index, "input", delta.partial_json or "")
                if block.get("type") == "tool_use" and delta.partial_json:
                    yield ToolUseInputDelta(block["id"], delta.partial_json)
            case _:
                _merge_delta(block, as_dict(delta))

    def _append_piece(self, index: int, name: str, piece: str) -> None:
        self._pieces.setdefault((index, name), []).append(piece)

    def _update_usage(self, event: Any) -> None:
        """The last number given counts: later events repeat usage, and may correct it."""
        usage = getattr(event, "usage", None)
        if usage is not None:
            self._usage.update({name: value for name, value in as_dict(usage).items() if value is not None})


def _merge_delta(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Deltas of kinds we do not read ourselves (signatures, citations, compaction): collected, to be sent back."""
    for name, value in delta.items():
        if name == "type":
            continue
        if name == "citation":
            block["citations"] = [*(block.get("citations") or ()), value]
        elif isinstance(value, str) and isinstance(block.get(name), str):
            block[name] += value
        elif value is not None:
            block[name] = value
