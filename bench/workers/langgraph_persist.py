"""LangGraph through LangChain's `create_agent`, with an `AsyncSqliteSaver`; it replays the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import persist_batches
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from persist_batches import CallLog

call_log = CallLog()


class InstantModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "instant"

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        call_log.record_call(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=persist_batches.ANSWER))])

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError


class ConversationStore:
    async def open(self, path: Path) -> None:
        self._exit_stack = AsyncExitStack()
        self._threads = 0
        saver = await self._exit_stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(path)))
        self._agent: Any = create_agent(InstantModel(), checkpointer=saver)

    async def close(self) -> None:
        await self._exit_stack.aclose()

    async def fill(self, texts: Sequence[str]) -> str:
        id = f"thread_{self._threads}"
        self._threads += 1
        messages = [AIMessage(text) if index % 2 else HumanMessage(text) for index, text in enumerate(texts)]
        await self._agent.aupdate_state(_config(id), {"messages": messages}, as_node="model")
        return id

    async def turn(self, id: str, text: str) -> str:
        payload = {"messages": [{"role": "user", "content": text}]}
        return str((await self._agent.ainvoke(payload, _config(id)))["messages"][-1].content)

    async def load_texts(self, id: str) -> list[str]:
        state = await self._agent.aget_state(_config(id))
        return [self.text(message) for message in state.values["messages"]]

    def window(self, length: int) -> int:
        return length + 1

    def text(self, message: Any) -> str:
        return str(message.content)


def _config(id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": id}}


if __name__ == "__main__":
    persist_batches.serve(
        ConversationStore(), call_log, ["langgraph", "langchain", "langchain-core", "langgraph-checkpoint-sqlite"]
    )
