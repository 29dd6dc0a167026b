"""agno: `Agent.arun` on a `Model` subclass, without a database, so nothing is stored between runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import protocol
from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunContentEvent
from protocol import CallCounter

counter = CallCounter()

DELTAS = tuple(ModelResponse(role="assistant", content=piece) for piece in protocol.PIECES)


@dataclass
class InstantModel(Model):
    """Calls the tool, if there is one without a result yet."""

    id: str = "instant"
    name: str = "Instant"
    provider: str = "bench"

    async def ainvoke(self, messages: list[Message], tools: Any = None, **options: Any) -> ModelResponse:
        counter.record_call(len(messages))
        if not tools:
            return ModelResponse(role="assistant", content=protocol.ANSWER)
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content=f"{protocol.SUM_PREFIX}{messages[-1].content}.")
        function = {"name": protocol.TOOL, "arguments": protocol.ARGUMENTS_JSON}
        call = {"id": protocol.CALL_ID, "type": "function", "function": function}
        return ModelResponse(role="assistant", tool_calls=[call])

    async def ainvoke_stream(self, messages: list[Message], **options: Any) -> AsyncIterator[ModelResponse]:
        counter.record_call(len(messages))
        for delta in DELTAS:
            yield delta

    def invoke(self, *args: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **options: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


async def add(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


bare = Agent(model=InstantModel(), telemetry=False)
with_tool = Agent(model=InstantModel(), tools=[add], telemetry=False)


async def plain() -> str:
    return str((await bare.arun(protocol.QUESTION)).content)


async def one_tool() -> str:
    return str((await with_tool.arun(protocol.QUESTION)).content)


async def stream() -> list[str]:
    return [
        str(event.content)
        async for event in bare.arun(protocol.QUESTION, stream=True)
        if isinstance(event, RunContentEvent)
    ]


if __name__ == "__main__":
    protocol.serve(
        {
            "plain": protocol.plain_operation(plain),
            "tool": protocol.tool_operation(one_tool),
            "stream": protocol.stream_operation(stream),
        },
        counter,
        ["agno"],
    )
