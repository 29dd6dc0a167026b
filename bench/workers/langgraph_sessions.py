"""LangGraph: a graph's state with messages and gathered values, in its SQLite or PostgreSQL saver.

A turn is one `aupdate_state`, which reads the state and writes one checkpoint. A run of a graph writes several.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Annotated, Any, TypedDict

import session_batches
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from session_batches import GATHERED


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    gathered: dict[str, Any]


class SessionStore:
    async def open(self, location: str) -> None:
        self._exit_stack = AsyncExitStack()
        saver: Any
        if sys.argv[1] == "sqlite":
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            saver = await self._exit_stack.enter_async_context(AsyncSqliteSaver.from_conn_string(location))
        else:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

            saver = await self._exit_stack.enter_async_context(AsyncPostgresSaver.from_conn_string(location))
        await saver.setup()
        graph = StateGraph(State)
        graph.add_node("turn", lambda state: {})
        graph.add_edge(START, "turn")
        self._graph: Any = graph.compile(checkpointer=saver)

    async def close(self) -> None:
        await self._exit_stack.aclose()

    async def fill(self, id: str, texts: Sequence[str]) -> None:
        messages = [AIMessage(text) if index % 2 else HumanMessage(text) for index, text in enumerate(texts)]
        await self._graph.aupdate_state(_config(id), {"messages": messages, "gathered": GATHERED}, as_node="turn")

    async def save(self, id: str, question: str, answer: str) -> None:
        turn = {"messages": [HumanMessage(question), AIMessage(answer)], "gathered": GATHERED}
        await self._graph.aupdate_state(_config(id), turn, as_node="turn")

    async def load(self, id: str) -> Sequence[str]:
        state = await self._graph.aget_state(_config(id))
        assert state.values["gathered"] == GATHERED
        return [str(message.content) for message in state.values["messages"]]


def _config(id: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": id}}


if __name__ == "__main__":
    session_batches.serve(SessionStore, ["langgraph", f"langgraph-checkpoint-{sys.argv[1]}"])
