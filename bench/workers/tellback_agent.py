"""Tellback: `Agent.respond` along routes, the same as a stream, and with a memory in a copy of a filled file."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import agent_routes
import tellback_turn
from agent_routes import FIELDS, GUIDELINES, STATES, TRUE_CONDITIONS, CallLog, PromptSize, Turn, TurnOutcome
from memory_batches import load_data
from protocol import expect

from tellback import Tellback
from tellback.agent import END_ROUTE, Agent, Response, SessionState, create_session
from tellback.chat import ChatRequest
from tellback.testing import FunctionModel
from tellback.types import ChatReply, Message, ReplyDelta, StreamStop, TextDelta, message_text
from tellback.types.ids import slug

USER = "maya"
REPLY = ChatReply(text=agent_routes.REPLY)
DELTAS: tuple[ReplyDelta, ...] = (*map(TextDelta, agent_routes.PIECES), StreamStop("end_turn"))
SCHEMA = {"type": "object", "properties": FIELDS, "required": list(FIELDS)}


def build_agent(count: int, model: Any, **agent_options: Any) -> Agent:
    """Build an agent with the given number of routes."""
    agent = Agent(agent_routes.NAME, goal=agent_routes.GOAL, model=model, **agent_options)
    for spec in agent_routes.build_routes(count):
        route = agent.create_route(
            spec.title, description=spec.description, conditions=[spec.condition], gather_schema=SCHEMA
        )
        state: Any = route.initial_state
        for text, name in zip(STATES, (*FIELDS, None), strict=True):
            state = state.transition_to(chat_state=text, gather=() if name is None else [name])
        state.transition_to(state=END_ROUTE)
    for number in range(1, GUIDELINES + 1):
        condition, action = agent_routes.build_guideline(number)
        agent.create_guideline(action=action, condition=condition)
    agent.check()
    return agent


@dataclass
class ConversationHandle:
    """The state of a conversation, and its messages or the id of the stored log."""

    session: SessionState
    history: list[Message] | None = None
    id: str = ""


class RouteAgent:
    def __init__(self) -> None:
        self.call_log = CallLog()
        self._agents: dict[int, Agent] = {}
        self._model = FunctionModel(self._answer, stream_fn=self._stream)
        self._tb: Tellback | None = None

    async def fill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Store as many memories as bench/turn.py, in the same way."""
        self._prepared_folder = Path(request["folder"])
        self._prepared_folder.mkdir(parents=True, exist_ok=True)
        size = request["size"]
        await tellback_turn.TurnRunner().fill(self._prepared_folder, load_data(request["data_folder"]), size)
        return {"filled": size}

    async def open(self, kind: str, count: int, folder: Path) -> None:
        self._kind = kind
        if count not in self._agents:
            self._agents[count] = build_agent(count, self._model)
        self._agent = self._agents[count]
        if kind == "memory":
            shutil.copy(self._prepared_folder / tellback_turn.FILE, folder / tellback_turn.FILE)
            # A summary would be an additional model call, which no other contender makes.
            self._tb = Tellback(folder / tellback_turn.FILE, model=self._model, summary_every=None)
            await self._tb.open()
            self._user = self._tb.user(USER)
            options = {"namespace": tellback_turn.NAMESPACE}
            self._agent = build_agent(count, self._model, memory=self._user, memory_options=options)

    async def close(self) -> None:
        if self._tb is not None:
            await self._tb.close()
            self._tb = None

    def reading(self, turn: Turn) -> ChatReply:
        answer = {
            "routes": [{"route": slug(title), "score": score} for title, score in turn.scores.items()],
            "data": [
                {"field": f"{slug(turn.route)}.{name}", "words": turn.message, "value": value}
                for name, value in turn.values.items()
            ],
            "forget": [],
            "answered": True,
            "conditions": [f"c{number}" for number in TRUE_CONDITIONS],
        }
        return ChatReply(text=json.dumps(answer))

    async def create_conversation(self, texts: Sequence[str]) -> ConversationHandle:
        session = create_session()
        messages = tellback_turn.to_messages(texts)
        if self._tb is None:
            return ConversationHandle(session, [Message(each["role"], each["content"]) for each in messages])
        conversations = self._user.conversations
        conversation = await conversations.find_or_create(
            tellback_turn.NAMESPACE, session.id, close_after=tellback_turn.CLOSE_AFTER
        )
        await conversations.append_messages(conversation.id, messages)
        return ConversationHandle(session, id=conversation.id)

    async def turn(self, conversation: ConversationHandle, text: str) -> tuple[Response, int]:
        message: Any = text if conversation.history is None else [*conversation.history, Message("user", text)]
        pieces = 1
        if self._kind == "stream":
            pieces = 0
            async for chunk in self._agent.respond_stream(message, conversation.session):
                pieces += not chunk.done
            assert chunk.response is not None
            response = chunk.response
        else:
            response = await self._agent.respond(message, conversation.session)
        conversation.session = response.session
        if conversation.history is not None:
            conversation.history = [*message, Message("assistant", response.message)]
        return response, pieces

    def to_outcome(self, result: tuple[Response, int]) -> TurnOutcome:
        response, pieces = result
        expect("problems", (response.problems, response.trace.problems), ((), ()))
        expect(
            "guidelines", len(response.trace.guidelines), GUIDELINES - agent_routes.CONDITIONAL + len(TRUE_CONDITIONS)
        )
        expect("memories", bool(response.atoms_used), self._kind == "memory")
        state = None if response.state is None else STATES.index(str(response.state.description))
        known = response.session.extracted
        plain_values = {name: value.isoformat() if isinstance(value, date) else value for name, value in known.items()}
        return TurnOutcome(
            response.message, None if response.route is None else response.route.title, state, plain_values, pieces
        )

    def prompt_size(self, call: ChatRequest) -> PromptSize:
        schema = 0 if call.output_schema is None else len(json.dumps(call.output_schema, separators=(",", ":")))
        prompt = len(call.system or "") + sum(len(message_text(message)) for message in call.messages)
        return PromptSize(prompt, schema)

    async def stored_count(self, conversation: ConversationHandle) -> int | None:
        return len(await self._user.conversations.messages(conversation.id)) if conversation.id else None

    def _answer(self, request: ChatRequest) -> ChatReply:
        self.call_log.calls.append(request)
        return REPLY if request.output_schema is None else self.call_log.reading

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        self.call_log.calls.append(request)
        for delta in DELTAS:
            yield delta


if __name__ == "__main__":
    agent = RouteAgent()
    agent_routes.serve(agent, ["respond", "stream", "memory"], ["tellback"], {"fill": agent.fill})
