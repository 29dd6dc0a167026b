"""LangGraph: a node that reads the message with structured output, and conditional edges to one node for each route.

Plain code in the route's node finds the next state, and the node calls the model once (handwritten_agent.py). Without a
checkpointer the caller passes the state to the next turn.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import agent_routes
import handwritten_agent
from agent_routes import TRUE_CONDITIONS, CallLog, PromptSize, RouteSpec, Turn, TurnOutcome
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from protocol import expect

call_log = CallLog()
READ = "read"


class InstantReader(BaseChatModel):
    """Returns the turn's reading as a call of the tool that represents the schema."""

    @property
    def _llm_type(self) -> str:
        return "instant-reader"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        call_log.calls.append((list(messages), options["tools"]))
        call = {"name": "Reading", "args": call_log.reading, "id": "call_1"}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=[call]))])

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError


class InstantReplier(BaseChatModel):
    """Creates new messages each time, because the framework writes ids and metadata into them."""

    @property
    def _llm_type(self) -> str:
        return "instant-replier"

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> ChatResult:
        call_log.calls.append((list(messages), None))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=agent_routes.REPLY))])

    def _generate(self, *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError


class StreamingReplier(InstantReplier):
    async def _astream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        call_log.calls.append((list(messages), None))
        for piece in agent_routes.PIECES:
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    route: str | None
    state_index: int | None
    data: dict[str, dict[str, Any]]
    conditions: list[str]
    changed: bool


@dataclass
class ConversationHandle:
    """A conversation: the whole state, or the name of its thread."""

    state: dict[str, Any]
    config: dict[str, Any] | None


class RouteAgent:
    def __init__(self) -> None:
        self.call_log = call_log
        self._graphs: dict[tuple[str, int], Any] = {}
        self._threads = 0

    async def open(self, kind: str, count: int, folder: Path) -> None:
        self._kind = kind
        self._exit_stack = AsyncExitStack()
        if kind == "persisted":
            path = str(folder / "kept.db")
            saver = await self._exit_stack.enter_async_context(AsyncSqliteSaver.from_conn_string(path))
            self._graph = build_graph(count, InstantReplier(), saver)
            return
        if (kind, count) not in self._graphs:
            replier = StreamingReplier() if kind == "stream" else InstantReplier()
            self._graphs[kind, count] = build_graph(count, replier, None)
        self._graph = self._graphs[kind, count]

    async def close(self) -> None:
        await self._exit_stack.aclose()

    def reading(self, turn: Turn) -> dict[str, Any]:
        return handwritten_agent.reading(turn)

    async def create_conversation(self, texts: Sequence[str]) -> ConversationHandle:
        messages = [AIMessage(text) if index % 2 else HumanMessage(text) for index, text in enumerate(texts)]
        state = {
            "messages": messages,
            "route": None,
            "state_index": None,
            "data": {},
            "conditions": [],
            "changed": False,
        }
        if self._kind != "persisted":
            return ConversationHandle(state, None)
        config: Any = {"configurable": {"thread_id": f"thread_{self._threads}"}}
        self._threads += 1
        await self._graph.aupdate_state(config, state, as_node=START)
        return ConversationHandle({}, config)

    async def turn(self, conversation: ConversationHandle, text: str) -> tuple[dict[str, Any], int]:
        message = HumanMessage(text)
        if conversation.config is not None:
            return await self._graph.ainvoke({"messages": [message]}, conversation.config), 1
        payload = {**conversation.state, "messages": [*conversation.state["messages"], message]}
        pieces = 1
        if self._kind == "stream":
            pieces = 0
            async for mode, item in self._graph.astream(payload, stream_mode=["messages", "values"]):
                if mode == "values":
                    conversation.state = item
                elif isinstance(item[0], AIMessageChunk) and item[0].content:
                    pieces += 1
        else:
            conversation.state = await self._graph.ainvoke(payload)
        return conversation.state, pieces

    def to_outcome(self, result: tuple[dict[str, Any], int]) -> TurnOutcome:
        state, pieces = result
        expect("true conditions", len(state["conditions"]), len(TRUE_CONDITIONS))
        known = handwritten_agent.plain(state["data"].get(state["route"], {}))
        return TurnOutcome(str(state["messages"][-1].content), state["route"], state["state_index"], known, pieces)

    async def stored_count(self, conversation: ConversationHandle) -> int | None:
        if conversation.config is None:
            return None
        return len((await self._graph.aget_state(conversation.config)).values["messages"])

    def prompt_size(self, call: Any) -> PromptSize:
        messages, tools = call
        prompt = sum(len(str(message.content)) for message in messages)
        return PromptSize(prompt, 0 if tools is None else len(json.dumps(tools, separators=(",", ":"))))


def build_graph(count: int, replier: BaseChatModel, saver: Any) -> Any:
    """Build the graph for the given number of routes."""
    specs = agent_routes.build_routes(count)
    graph = StateGraph(State)
    graph.add_node(READ, _reading_node(specs))
    graph.add_edge(START, READ)
    for spec in specs:
        graph.add_node(spec.title, _route_node(spec, replier))
        graph.add_edge(spec.title, END)
    graph.add_conditional_edges(READ, lambda state: state["route"], [spec.title for spec in specs])
    return graph.compile(checkpointer=saver)


def _reading_node(specs: Sequence[RouteSpec]) -> Any:
    prompt = handwritten_agent.reading_prompt(specs)
    model = InstantReader().with_structured_output(handwritten_agent.reading_schema(specs))

    async def read(state: State) -> dict[str, Any]:
        system = f"{prompt}\n{handwritten_agent.reading_state(state['route'], state['data'])}"
        reading: Any = await model.ainvoke([SystemMessage(system), *state["messages"]])
        values = handwritten_agent.stated_values(reading)
        data = {**state["data"], reading.route: {**state["data"].get(reading.route, {}), **values}}
        return {"route": reading.route, "data": data, "conditions": reading.conditions, "changed": bool(values)}

    return read


def _route_node(spec: RouteSpec, replier: BaseChatModel) -> Any:
    async def answer(state: State) -> dict[str, Any]:
        known = state["data"].get(spec.title, {})
        state_index = handwritten_agent.next_state(known, state["state_index"], changed=state["changed"])
        system = handwritten_agent.reply_prompt(spec, known, state["conditions"], state_index)
        reply = await replier.ainvoke([SystemMessage(system), *state["messages"]])
        return {"messages": [reply], "state_index": state_index}

    return answer


if __name__ == "__main__":
    agent_routes.serve(
        RouteAgent(),
        ["respond", "persisted", "stream"],
        ["langgraph", "langchain-core", "langgraph-checkpoint-sqlite"],
        {},
    )
