"""`LocalModel`: a GGUF file that answers in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tellback.chat.model import ChatRequest, Model, close_stream
from tellback.chat.providers.base import IdleTimeout, ProviderModel, read_stream
from tellback.chat.providers.errors import error_from_status
from tellback.chat.providers.local.codec import (
    AnswerReader,
    LocalStreamReader,
    build_answer_schema,
    encode,
    offered_tools,
)
from tellback.chat.providers.local.engine import EngineSettings, Generation, LlamaEngine, LlamaError, get_engine
from tellback.errors import ConfigurationError, ProviderConnectionError, ProviderError, ProviderRequestError
from tellback.types import ChatReply, ReplyDelta, StreamStop

PREFIX = "local/"


class LocalModel(ProviderModel):
    """A model in a GGUF file, run by llama.cpp in this process. No key, no server, no network.

    `model` is the file's path. It is loaded by the first request, once for all objects of the same path and settings,
    and given back when the last of them is closed. Requests are answered one at a time, in the order they came.
    `context` is how many tokens a request and its answer may have together; `threads` is left to llama.cpp where it is
    None; `chat_template` (Jinja) replaces the file's own. `timeout` does not count while other requests are answered or
    the file is loaded. An answer has 1,024 tokens at most, unless `max_output_tokens` or `config={"max_tokens": ...}`
    says otherwise. Tools and `output_schema` work with any file: the answer is held to a schema.

    >>> LocalModel("models/qwen3-4b-q4.gguf", context=4096, config={"temperature": 0})
    LocalModel('models/qwen3-4b-q4.gguf')
    """

    provider = "local"

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        context: int = 8_192,
        threads: int | None = None,
        chat_template: str | None = None,
        backup_models: Sequence[str | Model] = (),
        config: Mapping[str, Any] | None = None,
        timeout: float = 60,
        retries: int = 0,
    ) -> None:
        super().__init__(os.fspath(model), backup_models=backup_models, config=config, timeout=timeout, retries=retries)
        if context < 1 or (threads is not None and threads < 1):
            raise ConfigurationError(f"context and threads must be 1 or more, not {context} and {threads}.")
        self.context = context
        self.threads = threads
        self.chat_template = chat_template
        self._engines: dict[str, LlamaEngine] = {}

    async def load(self) -> None:
        """Load the file now, so that the first request need not wait for it; raises why it cannot be.

        A server does so before it takes requests: for the last moment of it, about a second, nothing else runs.
        """
        _ = self.client  # what is opened on this event loop is what aclose() closes
        await asyncio.wrap_future(self._get_engine(self.model).load())

    def _open_client(self, user_client: Any) -> set[Generation]:
        return set()  # the answers that are under way on an event loop

    async def _close_client(self, client: set[Generation]) -> None:
        for generation in client:
            generation.close()
        if all(loop.is_closed() for loop in self._clients):
            self._engines.clear()

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        deltas = self._stream_once(model, request, idle_timeout)
        try:
            async for delta in deltas:
                if isinstance(delta, StreamStop) and delta.reply is not None:
                    return delta.reply
        finally:
            await close_stream(deltas)
        raise ProviderConnectionError(
            f"{model} was closed before its answer was complete.", provider=self.provider, model=model
        )

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        _validate_tool_choice(request, model)
        generations: set[Generation] = self.client
        answer_reader = AnswerReader(expects_json=request.output_schema is not None) if offered_tools(request) else None
        generation = self._get_engine(model).generate(encode(request), build_answer_schema(request))
        generations.add(generation)
        try:
            await generation.wait_started()
            stream_reader = LocalStreamReader(self.provider, Path(model).stem, answer_reader)
            async for delta in read_stream(idle_timeout.iterate(generation.chunks()), stream_reader, model):
                yield delta
        finally:
            generation.close()
            generations.discard(generation)

    def _get_engine(self, path: str) -> LlamaEngine:
        engine = self._engines.get(path)
        if engine is None or not engine.is_in_this_process:
            settings = EngineSettings(_resolve_path(path), self.context, self.threads, self.chat_template)
            engine = self._engines[path] = get_engine(settings)
        return engine

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        if isinstance(error, LlamaError):
            return error_from_status(self.provider, model, 400 if error.is_refusal else 500, str(error))
        return None


def _resolve_path(path: str) -> Path:
    """The file that is meant: `local/` before a path only says whose it is, unless there is such a folder."""
    found = Path(path).expanduser()
    if path.lower().startswith(PREFIX) and not found.exists():
        found = Path(path[len(PREFIX) :]).expanduser()
    return found.resolve()


def _validate_tool_choice(request: ChatRequest, model: str) -> None:
    if request.tool_choice not in (None, "auto", "none") and not offered_tools(request):
        raise ProviderRequestError(
            f"tool_choice={request.tool_choice!r} asks for a tool that is not offered: there are"
            f" {', '.join(tool.name for tool in request.tools) or 'none'}.",
            provider=LocalModel.provider,
            model=model,
            status=400,
        )
