"""Tellback: `run_loop` for turns, and both ways of streaming for deltas."""

from __future__ import annotations

from collections.abc import AsyncIterator

import protocol
from protocol import CallCounter

from tellback import ChatOptions, LoopResult, run_loop, run_loop_stream, stream_loop, tool
from tellback.chat import ChatRequest, ModelBase
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ToolCall

counter = CallCounter()

CALL = ChatReply(
    tool_calls=(ToolCall(protocol.CALL_ID, protocol.TOOL, protocol.ARGUMENTS),),
    stop_reason="tool_use",
)
ANSWER = ChatReply(text=protocol.ANSWER)
DELTAS: tuple[ReplyDelta, ...] = (*map(TextDelta, protocol.PIECES), StreamStop("end_turn"))


class InstantModel(ModelBase):
    """Calls the tool, if there is one without a result yet."""

    model = "instant"
    provider = "bench"

    async def _complete(self, request: ChatRequest) -> ChatReply:
        messages = request.messages
        counter.record_call(len(messages))
        if not request.tools:
            return ANSWER
        if messages[-1].role == "tool":
            return ChatReply(text=f"{protocol.SUM_PREFIX}{messages[-1].content}.")
        return CALL

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        counter.record_call(len(request.messages))
        for delta in DELTAS:
            yield delta


@tool
async def add(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


@tool(name=protocol.TOOL)
def add_in_thread(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


model = InstantModel()
bare = ChatOptions(model=model)
with_tool = ChatOptions(model=model, tools=[add])
with_sync_tool = ChatOptions(model=model, tools=[add_in_thread])


async def plain() -> str:
    return (await run_loop(bare, protocol.QUESTION)).text


async def one_tool() -> str:
    return (await run_loop(with_tool, protocol.QUESTION)).text


async def one_sync_tool() -> str:
    return (await run_loop(with_sync_tool, protocol.QUESTION)).text


async def stream_to_callback() -> list[str]:
    pieces: list[str] = []

    def on_delta(delta: ReplyDelta) -> None:
        if isinstance(delta, TextDelta):
            pieces.append(delta.text)

    await run_loop_stream(bare, protocol.QUESTION, on_delta)
    return pieces


async def stream_by_iterating() -> list[str]:
    pieces: list[str] = []
    async for item in stream_loop(bare, protocol.QUESTION):
        if isinstance(item, TextDelta):
            pieces.append(item.text)
        elif isinstance(item, LoopResult) and len(item.text) != len(protocol.STREAMED_TEXT):
            raise AssertionError("the result's text differs from the stream's")
    return pieces


if __name__ == "__main__":
    protocol.serve(
        {
            "plain": protocol.plain_operation(plain),
            "tool": protocol.tool_operation(one_tool),
            "tool_sync": protocol.tool_operation(one_sync_tool),
            "stream_callback": protocol.stream_operation(stream_to_callback),
            "stream_iterator": protocol.stream_operation(stream_by_iterating),
        },
        counter,
        ["tellback"],
    )
