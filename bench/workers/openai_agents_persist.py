"""OpenAI Agents SDK: `Runner.run` with a `SQLiteSession` per conversation, all in one file; it replays all messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import persist_batches
from agents import Agent, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from persist_batches import CallLog

set_tracing_disabled(True)
call_log = CallLog()
config = RunConfig(tracing_disabled=True)
numbers = count()


def message(text: str) -> ResponseOutputMessage:
    # The SDK treats messages with the same id as one message.
    content = ResponseOutputText(text=text, type="output_text", annotations=[])
    id = f"msg_{next(numbers)}"
    return ResponseOutputMessage(id=id, content=[content], role="assistant", status="completed", type="message")


class InstantModel(Model):
    async def get_response(
        self, system_instructions: str | None, input: Any, *rest: Any, **options: Any
    ) -> ModelResponse:
        call_log.record_call(input)
        return ModelResponse(output=[message(persist_batches.ANSWER)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def items(texts: Sequence[str]) -> Iterator[Any]:
    for index, text in enumerate(texts):
        if index % 2:
            yield message(text).model_dump(exclude_unset=True)
        else:
            yield {"role": "user", "content": text}


class ConversationStore:
    def __init__(self) -> None:
        self._agent = Agent(name="bench", model=InstantModel())
        self._sessions: dict[str, SQLiteSession] = {}

    async def open(self, path: Path) -> None:
        self._path = path

    async def close(self) -> None:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def fill(self, texts: Sequence[str]) -> str:
        id = f"conversation_{len(self._sessions)}"
        await self._session(id).add_items([*items(texts)])
        return id

    async def turn(self, id: str, text: str) -> str:
        return str((await Runner.run(self._agent, text, session=self._sessions[id], run_config=config)).final_output)

    async def load_texts(self, id: str) -> list[str]:
        return [self.text(item) for item in await self._session(id).get_items()]

    def window(self, length: int) -> int:
        return length + 1

    def text(self, message: Any) -> str:
        content = message["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    def _session(self, id: str) -> SQLiteSession:
        if id not in self._sessions:
            self._sessions[id] = SQLiteSession(id, self._path)
        return self._sessions[id]


if __name__ == "__main__":
    persist_batches.serve(ConversationStore(), call_log, ["openai-agents", "openai"])
