"""Pydantic AI: one agent that reads the message into a schema, and one that replies, with plain code in between.

The library has no flows, so this measures two runs and the handwritten code (handwritten_agent.py). The caller passes
the messages on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import agent_routes
import handwritten_agent
from agent_routes import TRUE_CONDITIONS, CallLog, PromptSize, Turn, TurnOutcome
from protocol import expect
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel, FunctionStreamedResponse
from pydantic_ai.usage import RequestUsage

call_log = CallLog()
USAGE = RequestUsage(input_tokens=1, output_tokens=1)
"""With a given usage, the function model spends no time on an estimate."""


async def read(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    [tool] = info.output_tools
    call_log.calls.append((list(messages), info.instructions, tool.parameters_json_schema))
    return ModelResponse(parts=[ToolCallPart(tool.name, call_log.reading, "call_1")], usage=USAGE)


async def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    call_log.calls.append((list(messages), info.instructions, None))
    return ModelResponse(parts=[TextPart(agent_routes.REPLY)], usage=USAGE)


async def in_pieces(messages: list[ModelMessage], info: Any) -> AsyncIterator[str]:
    call_log.calls.append((list(messages), info, None))
    for piece in agent_routes.PIECES:
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
        pieces = in_pieces(messages, messages[-1].instructions)
        yield InstantStream(model_request_parameters=parameters, _model_name=self.model_name, _iter=pieces)


REPLIER: Agent[None, str] = Agent(InstantModel(reply, stream_function=in_pieces))


@dataclass
class ConversationHandle:
    """The current state of a conversation."""

    messages: list[ModelMessage]
    route: str | None = None
    state_index: int | None = None
    conditions: Sequence[str] = ()
    data: dict[str, dict[str, Any]] = field(default_factory=dict)


class RouteAgent:
    def __init__(self) -> None:
        self.call_log = call_log

    async def open(self, kind: str, count: int, folder: Path) -> None:
        self._kind = kind
        specs = agent_routes.build_routes(count)
        self._specs = {spec.title: spec for spec in specs}
        self._prompt = handwritten_agent.reading_prompt(specs)
        self._reader = Agent(FunctionModel(read), output_type=handwritten_agent.reading_schema(specs))

    async def close(self) -> None:
        pass

    def reading(self, turn: Turn) -> dict[str, Any]:
        return handwritten_agent.reading(turn)

    async def create_conversation(self, texts: Sequence[str]) -> ConversationHandle:
        return ConversationHandle(
            [
                ModelResponse(parts=[TextPart(text)]) if index % 2 else ModelRequest(parts=[UserPromptPart(text)])
                for index, text in enumerate(texts)
            ]
        )

    async def turn(self, conversation: ConversationHandle, text: str) -> TurnOutcome:
        system = f"{self._prompt}\n{handwritten_agent.reading_state(conversation.route, conversation.data)}"
        reading: Any = (await self._reader.run(text, message_history=conversation.messages, instructions=system)).output
        values = handwritten_agent.stated_values(reading)
        known = conversation.data[reading.route] = {**conversation.data.get(reading.route, {}), **values}
        conversation.state_index = handwritten_agent.next_state(known, conversation.state_index, changed=bool(values))
        conversation.route, conversation.conditions = reading.route, reading.conditions
        system = handwritten_agent.reply_prompt(
            self._specs[reading.route], known, conversation.conditions, conversation.state_index
        )
        answer, pieces = await self._reply(conversation, text, system)
        expect("true conditions", len(conversation.conditions), len(TRUE_CONDITIONS))
        return TurnOutcome(answer, conversation.route, conversation.state_index, handwritten_agent.plain(known), pieces)

    async def _reply(self, conversation: ConversationHandle, text: str, system: str) -> tuple[str, int]:
        if self._kind == "stream":
            async with REPLIER.run_stream(text, message_history=conversation.messages, instructions=system) as run:
                pieces = [piece async for piece in run.stream_text(delta=True, debounce_by=None)]
            conversation.messages = run.all_messages()
            return "".join(pieces), len(pieces)
        result = await REPLIER.run(text, message_history=conversation.messages, instructions=system)
        conversation.messages = result.all_messages()
        return result.output, 1

    def to_outcome(self, outcome: TurnOutcome) -> TurnOutcome:
        return outcome

    def prompt_size(self, call: Any) -> PromptSize:
        messages, system, schema = call
        texts = [str(getattr(part, "content", "")) for message in messages for part in message.parts]
        prompt = len(system or "") + sum(map(len, texts))
        return PromptSize(prompt, 0 if schema is None else len(json.dumps(schema, separators=(",", ":"))))

    async def stored_count(self, conversation: ConversationHandle) -> int | None:
        return None


if __name__ == "__main__":
    agent_routes.serve(RouteAgent(), ["respond", "stream"], ["pydantic-ai-slim"], {})
