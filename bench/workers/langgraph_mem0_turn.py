"""LangGraph with an `AsyncSqliteSaver`, and handwritten code that puts mem0's results into the system prompt.

It is measured twice: through LangChain's `create_agent` with a `dynamic_prompt`, and as a graph of one node. mem0
uses precomputed vectors, so embedding costs it nothing, and its search runs in the event loop, without a thread.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from mem0_memory import MemoryLibrary  # isort: skip
import turn_batches
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from memory_batches import MemoryData
from persist_batches import ANSWER
from turn_batches import HITS, SYSTEM, USER, CallLog, ExpectedTurn, ModelCall, TurnAnswer

call_log = CallLog()


class InstantModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "instant"

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        call_log.record_call(messages, len(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=ANSWER))])

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError


class SearchableMemory(MemoryLibrary):
    def search(self, question: str) -> list[str]:
        response = self._memory.search(question, top_k=HITS, filters={"user_id": USER}, threshold=0.0)
        return [hit["memory"] for hit in response["results"]]


class TurnRunner:
    def __init__(self) -> None:
        self.call_log = call_log
        self._threads = 0
        self._recalled: list[str] = []

    async def fill(self, folder: Path, data: MemoryData, size: int) -> None:
        self._mem0 = SearchableMemory()
        await self._mem0.open(folder, data)
        await self._mem0.fill(USER, data.memories[:size])

    async def open(self, kind: str, folder: Path) -> None:
        self._exit_stack = AsyncExitStack()
        saver = await self._exit_stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(folder / "kept.db")))
        self._node, self._graph = self._build_graph(kind, saver)

    async def close(self, count: int) -> None:
        await self._exit_stack.aclose()

    async def create_conversation(self, texts: Sequence[str]) -> dict[str, Any]:
        config = {"configurable": {"thread_id": f"thread_{self._threads}"}}
        self._threads += 1
        messages = [AIMessage(text) if index % 2 else HumanMessage(text) for index, text in enumerate(texts)]
        await self._graph.aupdate_state(config, {"messages": messages}, as_node=self._node)
        return config

    async def turn(self, kind: str, conversation: dict[str, Any], text: str) -> Any:
        if kind == "search":
            return "", self._mem0.search(text)
        payload = {"messages": [{"role": "user", "content": text}]}
        state = await self._graph.ainvoke(payload, conversation)
        return str(state["messages"][-1].content), self._recalled

    def to_answer(self, kind: str, outcome: Any) -> TurnAnswer:
        text, recalled = outcome
        return TurnAnswer(text, recalled=recalled)

    def expected_turn(self, kind: str, length: int) -> ExpectedTurn:
        if kind == "search":
            return ExpectedTurn("", None, persists=False)
        return ExpectedTurn(ANSWER, length + 1, recalls=kind != "agent")

    def to_model_call(self, call: Any) -> ModelCall:
        messages, count = call
        first, *rest = messages[:count]
        return ModelCall(str(first.content), [str(message.content) for message in rest])

    async def load_texts(self, conversation: dict[str, Any]) -> list[str]:
        state = await self._graph.aget_state(conversation)
        return [str(message.content) for message in state.values["messages"]]

    def _build_graph(self, kind: str, saver: Any) -> tuple[str, Any]:
        """Build the graph with the one node that answers."""
        model = InstantModel()
        if kind == "graph_memory":

            async def answer(state: MessagesState) -> dict[str, Any]:
                system = SystemMessage(self._prompt(str(state["messages"][-1].content)))
                return {"messages": [await model.ainvoke([system, *state["messages"]])]}

            graph = StateGraph(MessagesState)
            graph.add_node("answer", answer)
            graph.add_edge(START, "answer")
            graph.add_edge("answer", END)
            return "answer", graph.compile(checkpointer=saver)
        if kind == "agent_memory":

            @dynamic_prompt
            async def prompt_with_memories(request: Any) -> str:
                return self._prompt(str(request.messages[-1].content))

            return "model", create_agent(model, middleware=[prompt_with_memories], checkpointer=saver)
        return "model", create_agent(model, system_prompt=SYSTEM, checkpointer=saver)

    def _prompt(self, question: str) -> str:
        self._recalled = self._mem0.search(question)
        known = "\n".join(f"- {memory}" for memory in self._recalled)
        return f"{SYSTEM}\n\nWhat you know about the user:\n{known}"


if __name__ == "__main__":
    atexit.register(shutil.rmtree, os.environ["MEM0_DIR"], ignore_errors=True)
    turn_batches.serve(
        TurnRunner(),
        ["agent", "agent_memory", "graph_memory", "search"],
        ["langgraph", "langchain", "langgraph-checkpoint-sqlite", "mem0ai", "qdrant-client", "faiss-cpu"],
    )
