"""Pydantic AI: `Agent.run` and `Agent.run_stream` on a `FunctionModel` that does not estimate usage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import protocol
from protocol import CallCounter
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel, FunctionStreamedResponse
from pydantic_ai.usage import RequestUsage

counter = CallCounter()


def reply(part: TextPart | ToolCallPart) -> ModelResponse:
    # With a given usage, the function model spends no time on an estimate.
    return ModelResponse(parts=[part], usage=RequestUsage(input_tokens=1, output_tokens=1))


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, if there is one without a result yet."""
    counter.record_call(len(messages))
    if not info.function_tools:
        return reply(TextPart(protocol.ANSWER))
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        return reply(TextPart(f"{protocol.SUM_PREFIX}{last.content}."))
    return reply(ToolCallPart(protocol.TOOL, protocol.ARGUMENTS, protocol.CALL_ID))


async def respond_in_pieces(messages: list[ModelMessage], info: AgentInfo | None) -> AsyncIterator[str]:
    counter.record_call(len(messages))
    for piece in protocol.PIECES:
        yield piece


class InstantStream(FunctionStreamedResponse):
    """The function model's stream without its token estimate for every delta, which a real model would not make."""

    def __post_init__(self) -> None:
        pass

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        async for piece in self._iter:
            for event in self._parts_manager.handle_text_delta(vendor_part_id="content", content=piece):
                yield event


class InstantModel(FunctionModel):
    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[InstantStream]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        pieces = respond_in_pieces(messages, None)
        yield InstantStream(model_request_parameters=parameters, _model_name=self.model_name, _iter=pieces)


model = InstantModel(respond, stream_function=respond_in_pieces)
bare = Agent(model)
with_tool = Agent(model)


@with_tool.tool_plain
async def add(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


async def plain() -> str:
    return (await bare.run(protocol.QUESTION)).output


async def one_tool() -> str:
    return (await with_tool.run(protocol.QUESTION)).output


async def stream() -> list[str]:
    async with bare.run_stream(protocol.QUESTION) as run:
        return [piece async for piece in run.stream_text(delta=True, debounce_by=None)]


if __name__ == "__main__":
    protocol.serve(
        {
            "plain": protocol.plain_operation(plain),
            "tool": protocol.tool_operation(one_tool),
            "stream": protocol.stream_operation(stream),
        },
        counter,
        ["pydantic-ai-slim"],
    )
