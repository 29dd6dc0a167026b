"""LangGraph through LangChain's `create_agent`, on a `BaseChatModel` subclass, without a checkpointer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import protocol
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from protocol import CallCounter

counter = CallCounter()


class InstantModel(BaseChatModel):
    """Calls the tool, if there is one without a result yet.

    Creates new messages each time, because the framework writes ids and metadata into them.
    """

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **options: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=tools)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        counter.record_call(len(messages))
        if not options.get("tools"):
            reply = AIMessage(content=protocol.ANSWER)
        elif messages[-1].type == "tool":
            reply = AIMessage(content=f"{protocol.SUM_PREFIX}{messages[-1].content}.")
        else:
            call = {"name": protocol.TOOL, "args": protocol.ARGUMENTS, "id": protocol.CALL_ID, "type": "tool_call"}
            reply = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        counter.record_call(len(messages))
        for piece in protocol.PIECES:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError


@tool
async def add(x: int, y: int) -> str:
    """Add two numbers."""
    counter.tool_runs += 1
    return str(x + y)


bare = create_agent(InstantModel())
with_tool = create_agent(InstantModel(), [add])


def question() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": protocol.QUESTION}]}


async def plain() -> str:
    return str((await bare.ainvoke(question()))["messages"][-1].content)


async def one_tool() -> str:
    return str((await with_tool.ainvoke(question()))["messages"][-1].content)


async def stream() -> list[str]:
    # The framework ends a stream with an empty chunk.
    return [chunk.content async for chunk, _ in bare.astream(question(), stream_mode="messages") if chunk.content]


if __name__ == "__main__":
    protocol.serve(
        {
            "plain": protocol.plain_operation(plain),
            "tool": protocol.tool_operation(one_tool),
            "stream": protocol.stream_operation(stream),
        },
        counter,
        ["langgraph", "langchain", "langchain-core"],
    )
