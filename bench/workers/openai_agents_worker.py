"""OpenAI Agents SDK: `Runner.run` and `Runner.run_streamed` on a `Model`, without a session, tracing off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import protocol
from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from protocol import CallCounter

set_tracing_disabled(True)
counter = CallCounter()


def message(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(id="msg_1", content=[content], role="assistant", status="completed", type="message")


ANSWER = message(protocol.ANSWER)
CALL = ResponseFunctionToolCall(
    arguments=protocol.ARGUMENTS_JSON, call_id=protocol.CALL_ID, name=protocol.TOOL, type="function_call"
)
DELTAS = tuple(
    ResponseTextDeltaEvent(
        content_index=0,
        delta=piece,
        item_id="msg_1",
        logprobs=[],
        output_index=0,
        sequence_number=index,
        type="response.output_text.delta",
    )
    for index, piece in enumerate(protocol.PIECES)
)
COMPLETED = ResponseCompletedEvent(
    response=Response(
        id="resp_1",
        created_at=0,
        model="instant",
        object="response",
        output=[message(protocol.STREAMED_TEXT)],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    ),
    sequence_number=len(DELTAS),
    type="response.completed",
)


class InstantModel(Model):
    """Calls the tool, if there is one without a result yet."""

    async def get_response(
        self, system_instructions: str | None, input: Any, model_settings: Any, tools: Any, *rest: Any, **options: Any
    ) -> ModelResponse:
        counter.record_call(1 if isinstance(input, str) else len(input))
        if not tools:
            reply: Any = ANSWER
        elif input[-1].get("type") == "function_call_output":
            reply = message(f"{protocol.SUM_PREFIX}{input[-1]['output']}.")
        else:
            reply = CALL
        return ModelResponse(output=[reply], usage=Usage(), response_id=None)

    async def stream_response(
        self, system_instructions: str | None, input: Any, *rest: Any, **options: Any
    ) -> AsyncIterator[Any]:
        counter.record_call(1 if isinstance(input, str) else len(input))
        for delta in DELTAS:
            yield delta
        yield COMPLETED


@function_tool
async def add(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


bare = Agent(name="bench", model=InstantModel())
with_tool = Agent(name="bench", model=InstantModel(), tools=[add])
config = RunConfig(tracing_disabled=True)


async def plain() -> str:
    return str((await Runner.run(bare, protocol.QUESTION, run_config=config)).final_output)


async def one_tool() -> str:
    return str((await Runner.run(with_tool, protocol.QUESTION, run_config=config)).final_output)


async def stream() -> list[str]:
    run = Runner.run_streamed(bare, protocol.QUESTION, run_config=config)
    return [
        event.data.delta
        async for event in run.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]


if __name__ == "__main__":
    protocol.serve(
        {
            "plain": protocol.plain_operation(plain),
            "tool": protocol.tool_operation(one_tool),
            "stream": protocol.stream_operation(stream),
        },
        counter,
        ["openai-agents", "openai"],
    )
