"""agno: `Agent.arun` with a `SqliteDb` and `add_history_to_context`; by default it replays the last three runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import persist_batches
from agno.agent import Agent
from agno.db.base import SessionType
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.agent import RunOutput
from persist_batches import CallLog

USER = "maya"
RUNS_REPLAYED = 3
call_log = CallLog()


@dataclass
class InstantModel(Model):
    id: str = "instant"
    name: str = "Instant"
    provider: str = "bench"

    async def ainvoke(self, messages: list[Message], **options: Any) -> ModelResponse:
        call_log.record_call(messages)
        return ModelResponse(role="assistant", content=persist_batches.ANSWER)

    def invoke(self, *args: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def invoke_stream(self, *args: Any, **options: Any) -> Iterator[ModelResponse]:
        raise NotImplementedError

    def ainvoke_stream(self, *args: Any, **options: Any) -> AsyncIterator[ModelResponse]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        raise NotImplementedError


class ConversationStore:
    async def open(self, path: Path) -> None:
        self._db = SqliteDb(db_file=str(path))
        self._agent = Agent(model=InstantModel(), db=self._db, add_history_to_context=True, telemetry=False)
        self._sessions = 0

    async def close(self) -> None:
        self._db.close()

    async def fill(self, texts: Sequence[str]) -> str:
        """Create the session with one real run, and copy that run under new ids."""
        id = f"session_{self._sessions}"
        self._sessions += 1
        first = await self._agent.arun(texts[0], session_id=id, user_id=USER)
        for index in range(0, len(texts), 2):
            run = _copy_run(first, texts[index], texts[index + 1], keep_id=index == 0)
            self._db.upsert_run(run=run, session_id=id, user_id=USER, run_index=index // 2)
        return id

    async def turn(self, id: str, text: str) -> str:
        return str((await self._agent.arun(text, session_id=id, user_id=USER)).content)

    async def load_texts(self, id: str) -> list[str]:
        session: Any = self._db.get_session(session_id=id, session_type=SessionType.AGENT, user_id=USER)
        return [self.text(message) for run in session.runs for message in run.messages if not message.from_history]

    def window(self, length: int) -> int:
        return min(length, 2 * RUNS_REPLAYED) + 1

    def text(self, message: Any) -> str:
        return str(message.content)


def _copy_run(run: RunOutput, question: str, answer: str, *, keep_id: bool) -> RunOutput:
    values = run.to_dict()
    if not keep_id:
        values["run_id"] = str(uuid4())
    user_message, assistant_message = values["messages"]
    values["messages"] = [
        {**user_message, "id": str(uuid4()), "content": question},
        {**assistant_message, "id": str(uuid4()), "content": answer},
    ]
    return RunOutput.from_dict({**values, "content": answer, "input": {"input_content": question}})


if __name__ == "__main__":
    persist_batches.serve(ConversationStore(), call_log, ["agno", "sqlalchemy"])
