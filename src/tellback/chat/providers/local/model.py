"""`LocalModel`: a model in a GGUF file, and the engine that loads and runs it in this process."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from tellback.chat.model import ChatRequest, Model
from tellback.chat.providers.base import IdleTimeout, ProviderModel, read_stream
from tellback.chat.providers.errors import error_from_status
from tellback.chat.providers.local import PROVIDER
from tellback.chat.providers.local.codec import (
    AnswerReader,
    LocalStreamReader,
    build_answer_schema,
    encode,
    offered_tools,
)
from tellback.errors import (
    ConfigurationError,
    MissingExtraError,
    ProviderConnectionError,
    ProviderError,
    ProviderRequestError,
)
from tellback.types import ChatReply, ReplyDelta

PROMPT_BATCH_TOKENS: Final = 128
"""The number of prompt tokens in one batch; cancelling a request waits for the end of a batch."""

PROMPT_CACHE_MIB: Final = 512
"""The memory limit of llama.cpp's cache of prompts."""

_MAGIC = b"GGUF"
_READ_SIZE = 1 << 24
_STARTED: Final = object()
_ENDED: Final = object()

_engines: WeakValueDictionary[EngineSettings, LlamaEngine] = WeakValueDictionary()
_engines_lock = threading.Lock()
_abandoned_engines: list[LlamaEngine] = []


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The model file to load, and how to load it. Equal settings share one engine."""

    path: Path
    context: int
    threads: int | None = None
    chat_template: str | None = None


class LlamaError(Exception):
    """An error of llama.cpp; `is_refusal` means that the request caused it."""

    def __init__(self, message: str, is_refusal: bool) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


def get_engine(settings: EngineSettings) -> LlamaEngine:
    """Return the engine for these settings. It is freed when there are no more references to it."""
    with _engines_lock:
        engine = _engines.get(settings)
        if engine is None:
            engine = _engines[settings] = LlamaEngine(settings)
        return engine


def _after_fork() -> None:
    # An engine's threads exist only in the parent process. Freeing the engine here would wait for them forever.
    _abandoned_engines.extend(_engines.values())
    _engines.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class LlamaEngine:
    """A model file, loaded by the first request."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._server: Any = None
        self.process_id = os.getpid()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tellback-llama")

    def generate(self, body: Mapping[str, Any], schema: Mapping[str, Any] | None) -> Generation:
        """Queue a request. Call this on the event loop that receives the chunks."""
        generation = Generation(asyncio.get_running_loop())
        generation.watch(self._thread.submit(self._run, generation, body, schema))
        return generation

    def load(self) -> Future[None]:
        return self._thread.submit(self._load)

    def _load(self) -> None:
        if self._server is None:
            self._server = _load(self._settings)

    def _run(self, generation: Generation, body: Mapping[str, Any], schema: Mapping[str, Any] | None) -> None:
        if generation.is_abandoned:
            return
        self._load()
        generation.put(_STARTED)
        try:
            request = dict(body)
            if schema is not None:
                import xllamacpp  # type: ignore[import-untyped]

                # Pass the schema as a grammar: llama.cpp ignores ranges and patterns of a schema in `response_format`.
                request["grammar"] = xllamacpp.json_schema_to_grammar(json.dumps(schema))
                request["reasoning_format"] = "none"
            self._server.handle_chat_completions(request, generation.on_chunk)
        except ValueError as error:
            raise LlamaError(str(error), is_refusal=True) from error
        except (RuntimeError, MemoryError) as error:
            raise LlamaError(str(error) or type(error).__name__, is_refusal=False) from error


class Generation:
    """A queue that passes the chunks of one answer from the engine's thread to an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._abandoned = threading.Event()
        self._work: Future[None] | None = None

    @property
    def is_abandoned(self) -> bool:
        return self._abandoned.is_set()

    def watch(self, work: Future[None]) -> None:
        """End the chunks when the work is done."""
        self._work = work
        work.add_done_callback(lambda _: self.put(_ENDED))

    def put(self, item: Any) -> None:
        """Pass an item to the event loop, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop is closed, so nothing reads the chunks
            self._abandoned.set()

    def on_chunk(self, chunk: Any) -> bool:
        """Receive a chunk from llama.cpp; returning True stops it."""
        if not self.is_abandoned:
            self.put(chunk)
        return self.is_abandoned

    async def wait_started(self) -> None:
        """Wait until earlier answers are finished and the file is loaded; raises the error of a failed load."""
        if await self._queue.get() is _ENDED:
            self._raise_failure()
            self._queue.put_nowait(_ENDED)  # cancelled before it started, so there are no chunks

    async def chunks(self) -> AsyncIterator[Mapping[str, Any]]:
        """Iterate over the chunks, after `wait_started`."""
        while (item := await self._queue.get()) is not _ENDED:
            yield item
        self._raise_failure()

    def close(self) -> None:
        """Cancel the answer in any phase: waiting, reading the prompt, or writing."""
        self._abandoned.set()
        if self._work is not None:
            self._work.cancel()

    def _raise_failure(self) -> None:
        if self._work is not None and not self._work.cancelled():
            self._work.result()


def _load(settings: EngineSettings) -> Any:
    path = settings.path
    _validate_file(path)
    try:
        import xllamacpp
    except ImportError as error:
        raise MissingExtraError("xllamacpp", "local", "LocalModel") from error
    _preload_file(path)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = settings.context
    params.n_batch = PROMPT_BATCH_TOKENS
    params.n_parallel = 1
    params.fit_params = False
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.warmup = False
    params.prefill_assistant = False
    params.verbosity = -1
    # The server also listens on a local port, which is not used; a random key protects it from other processes.
    params.api_keys = [secrets.token_hex(16)]
    if settings.threads is not None:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    if settings.chat_template is not None:
        params.chat_template = settings.chat_template
    try:
        return xllamacpp.Server(params)
    except (RuntimeError, MemoryError, ValueError) as error:
        raise ConfigurationError(
            f"llama.cpp cannot load {str(path)!r}, {path.stat().st_size / 1e9:.1f} GB, with a context of"
            f" {settings.context} tokens{_format_free_memory()}. The file is damaged, this version of xllamacpp does"
            " not support it, or there is too little memory: pass a smaller context=, or use a smaller file."
        ) from error


def _validate_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except FileNotFoundError as error:
        raise ConfigurationError(
            f"There is no model file {str(path)!r}: download one in the GGUF format, or correct the path."
        ) from error
    except OSError as error:
        raise ConfigurationError(f"The model file {str(path)!r} cannot be read: {error.strerror}.") from error
    if magic != _MAGIC:
        raise ConfigurationError(
            f"{str(path)!r} is not a GGUF file: it does not begin with {_MAGIC.decode()}. The download may be"
            " incomplete, or the model has another format."
        )


def _preload_file(path: Path) -> None:
    """Read the file into the system's cache, since xllamacpp blocks all of Python while it reads from the disk."""
    piece = memoryview(bytearray(_READ_SIZE))
    with path.open("rb", buffering=0) as file:
        while file.readinto(piece):
            pass


def _format_free_memory() -> str:
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not available on every system
        return ""
    return f", with {free / 1e9:.1f} GB of memory free"


PREFIX = "local/"


class LocalModel(ProviderModel):
    """A model in a GGUF file, which llama.cpp runs in this process, without a key, a server or a network.

    `model` is the file's path. The first request loads the file, once for all objects with the same path and settings;
    the memory is freed when the last of these objects is closed. Requests are answered one at a time, in order.
    `context` is the largest number of tokens of a request and its answer together. If `threads` is None, llama.cpp
    chooses the number. `chat_template` (Jinja) replaces that of the file. `timeout` does not count while a request
    waits for other requests or for the file to load. An answer has at most 1,024 tokens, unless `max_output_tokens` or
    `config={"max_tokens": ...}` is set. Tools and `output_schema` work with any file, since a schema constrains
    answers.

    >>> LocalModel("models/qwen3-4b-q4.gguf", context=4096, config={"temperature": 0})
    LocalModel('models/qwen3-4b-q4.gguf')
    """

    declaration = PROVIDER
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
            raise ConfigurationError(f"context and threads must be at least 1, got {context} and {threads}.")
        self.context = context
        self.threads = threads
        self.chat_template = chat_template
        self._engines: dict[str, LlamaEngine] = {}

    async def load(self) -> None:
        """Load the file, so that the first request does not wait for it; raises an error if this fails.

        A server does this before it accepts requests, since the end of loading blocks the process for about a second.
        """
        _ = self.client  # aclose() closes what is opened on this event loop
        await asyncio.wrap_future(self._get_engine(self.model).load())

    def _open_client(self, user_client: Any) -> set[Generation]:
        return set()  # the unfinished answers of an event loop

    async def _close_client(self, client: set[Generation]) -> None:
        for generation in client:
            generation.close()
        if all(loop.is_closed() for loop in self._clients):
            self._engines.clear()

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        reply = await self._collect_stream(model, request, idle_timeout)
        if reply is None:
            raise ProviderConnectionError(
                f"{model} was closed before its answer was complete.", provider=self.provider, model=model
            )
        return reply

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
        if engine is None or engine.process_id != os.getpid():
            settings = EngineSettings(_resolve_path(path), self.context, self.threads, self.chat_template)
            engine = self._engines[path] = get_engine(settings)
        return engine

    def _broken_stream_error(self, model: str) -> ProviderConnectionError:
        return ProviderConnectionError(
            f"{model} was closed before its answer was complete.", provider=self.provider, model=model
        )

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        if isinstance(error, LlamaError):
            return error_from_status(self.provider, model, 400 if error.is_refusal else 500, str(error))
        return None


def _resolve_path(path: str) -> Path:
    """Return the file's path. A prefix `local/` selects this provider and is removed, unless there is such a folder."""
    found = Path(path).expanduser()
    if path.lower().startswith(PREFIX) and not found.exists():
        found = Path(path[len(PREFIX) :]).expanduser()
    return found.resolve()


def _validate_tool_choice(request: ChatRequest, model: str) -> None:
    if request.tool_choice not in (None, "auto", "none") and not offered_tools(request):
        raise ProviderRequestError(
            f"tool_choice={request.tool_choice!r} is not a tool of the request; its tools are:"
            f" {', '.join(tool.name for tool in request.tools) or 'none'}.",
            provider=LocalModel.provider,
            model=model,
            status=400,
        )
