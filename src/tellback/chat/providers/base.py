"""`ProviderModel`, the base class of all adapters: idle timeouts, stream reading, retries and backup models.

An adapter has a client, a request, a streamed request, and the mapping of SDK exceptions to `ProviderError`."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

from tellback.chat.model import ChatRequest, Model, ModelBase, ReplyBuilder, close_stream
from tellback.chat.providers.retry import RetryAttempts, StreamContinuation
from tellback.chat.registry import BuiltinProvider
from tellback.chat.usage import load_price_list, make_usage
from tellback.errors import ConfigurationError, ProviderConnectionError, ProviderError, ProviderTimeoutError
from tellback.types import ChatReply, ReplyDelta, StreamStop, TextDelta, ThinkingDelta, ToolCall

log = logging.getLogger("tellback.chat")

T = TypeVar("T")
D = TypeVar("D", bound=ReplyDelta)

FINAL_SECONDS = 1.0


class IdleTimeout:
    """A limit of `timeout` seconds on each period of silence in one call."""

    def __init__(self, provider: str, model: str, timeout: float) -> None:
        self._provider = provider
        self._model = model
        self._timeout = timeout
        self._timer: asyncio.Timeout | None = None
        self._deadline: float | None = None

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await something for at most `timeout` seconds; raises `ProviderTimeoutError`."""
        try:
            async with asyncio.timeout_at(self._next_deadline()) as limit:
                self._timer = limit
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise ProviderTimeoutError(
                f"{self._provider} sent nothing for {self._timeout:g} seconds ({self._model})."
                " Increase timeout=, or try again.",
                provider=self._provider,
                model=self._model,
                retryable=True,
            ) from error
        finally:
            self._timer = None

    async def iterate(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        iterator = aiter(items)
        while True:
            try:
                item = await self.wait(anext(iterator))
            except StopAsyncIteration:
                return
            yield item

    def start_final_deadline(self) -> None:
        """Set a short deadline for the rest of a stream after its reply is complete."""
        self._deadline = asyncio.get_running_loop().time() + FINAL_SECONDS

    def reset(self) -> None:
        """Restart the timeout, because bytes arrived, even if they are no item: a ping, a comment, half an event."""
        if self._timer is not None:
            self._timer.reschedule(self._next_deadline())

    def _next_deadline(self) -> float:
        return self._deadline or asyncio.get_running_loop().time() + self._timeout


def watch_bytes(response: Any, on_chunk: Callable[[bytes], None]) -> None:
    """Call `on_chunk` with each chunk of a response's body when the SDK reads it."""
    read_chunks = response.aiter_bytes

    async def watched(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        async for chunk in read_chunks(*args, **kwargs):
            on_chunk(chunk)
            yield chunk

    response.aiter_bytes = watched


async def close_iterator(iterator: Any) -> None:
    """Release the connection of an SDK's iterator.

    Closing an async generator does not close the generators within it, but cancelling its `anext` does. A finished
    iterator stays unchanged.
    """
    while True:
        step = asyncio.ensure_future(anext(iterator, close_iterator))
        await asyncio.sleep(0)
        if not step.done():
            step.cancel()
        await asyncio.wait([step])
        if step.cancelled() or step.exception() is not None or step.result() is close_iterator:
            return


class StreamReader(ABC):
    """The state of one call's stream; `is_finished` is true once the provider has sent the end of the stream."""

    is_finished = False

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._usage: Mapping[str, Any] | None = None

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether the reply is complete, even if a closing event or the usage is still missing."""

    @abstractmethod
    def add(self, event: Any) -> Iterator[ReplyDelta]:
        """Add one event and yield its deltas; unknown events have none."""

    def close(self) -> Iterator[ReplyDelta]:
        """Yield the deltas that were withheld until the end of the stream."""
        return iter(())

    @abstractmethod
    def reply(self) -> ChatReply:
        """Build the whole reply."""

    def read(self, *events: Any) -> ChatReply:
        """Build the reply of these events."""
        for event in events:
            for _ in self.add(event):
                pass
        for _ in self.close():
            pass
        return self.reply()

    def _record(self, delta: D) -> D:
        if isinstance(delta, TextDelta):
            self._text.append(delta.text)
        elif isinstance(delta, ThinkingDelta):
            self._thinking.append(delta.text)
        return delta

    def _build_reply(
        self, calls: Sequence[ToolCall], stop_reason: str, raw: Any, meta: Mapping[str, Any] | None = None
    ) -> ChatReply:
        return ChatReply(
            text="".join(self._text),
            tool_calls=tuple(calls),
            stop_reason=stop_reason,
            usage=make_usage(self._usage, self._provider, self._model) if self._usage else None,
            raw=raw,
            thinking="".join(self._thinking),
            meta=meta,
        )


async def read_stream(events: AsyncIterator[Any], reader: StreamReader, model: str) -> AsyncIterator[ReplyDelta]:
    """Yield the deltas of a stream, and finally a `StreamStop` with the whole reply, unless the stream broke off."""
    has_stopped = False
    try:
        async for event in events:
            for delta in reader.add(event):
                yield delta
            if reader.is_finished and not has_stopped:
                has_stopped = True
                yield _build_stop(reader)
    except Exception as error:
        if not reader.is_complete:
            raise
        log.debug("%s failed after the end of its reply", model, exc_info=error)
    if has_stopped:
        return
    for delta in reader.close():
        yield delta
    if reader.is_complete:
        yield _build_stop(reader)


def _build_stop(reader: StreamReader) -> StreamStop:
    reply = reader.reply()
    return StreamStop(reply.stop_reason, reply.usage, reply)


class ProviderModel(ModelBase):
    """A model that is called through its provider's own SDK.

    `client` is the SDK's own async client, for proxies, gateways and clouds. `config` is added to every request
    unchanged. `timeout` is the number of seconds to wait for the answer, or for each chunk of a stream. `retries` is
    how often a failed request is repeated (0: never). If all retries fail, `backup_models` are tried in order; each is
    a name for the same provider, or a model object of any provider.
    """

    provider = ""
    declaration: ClassVar[BuiltinProvider]

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: Any = None,
        backup_models: Sequence[str | Model] = (),
        config: Mapping[str, Any] | None = None,
        timeout: float = 60,
        retries: int = 3,
    ) -> None:
        if not model:
            raise ConfigurationError(f"{type(self).__name__} needs the name of a model.")
        if retries < 0 or timeout <= 0:
            raise ConfigurationError(f"retries must be at least 0 and timeout above 0, got {retries} and {timeout}.")
        if client is not None and (api_key is not None or base_url is not None):
            raise ConfigurationError("Pass either client=, or api_key= and base_url=: a client has its own.")
        self.model = model
        self.backup_models = (backup_models,) if isinstance(backup_models, str) else tuple(backup_models)
        self.config: Mapping[str, Any] = dict(config or {})
        self.timeout = timeout
        self.retries = retries
        self._api_key = api_key
        self._base_url = base_url
        self._user_client = client
        self._clients: dict[asyncio.AbstractEventLoop, Any] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    @property
    def client(self) -> Any:
        """The SDK's client, opened when first used. Connections belong to an event loop, so each loop has its own
        client; clients of closed loops are dropped."""
        loop = asyncio.get_running_loop()
        sdk_client = self._clients.get(loop)
        if sdk_client is None:
            sdk_client = self._open_client(self._user_client)
            load_price_list()
            self._clients = {old: client for old, client in self._clients.items() if not old.is_closed()}
            self._clients[loop] = sdk_client
        return sdk_client

    async def aclose(self) -> None:
        """Close this event loop's client, unless it was passed in."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and self._user_client is None:
            await self._close_client(client)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # Methods that adapters implement.

    def _open_client(self, user_client: Any) -> Any:
        raise NotImplementedError

    async def _close_client(self, client: Any) -> None:
        await client.close()

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        """Request the whole reply; the default reads a stream."""
        reply = await self._collect_stream(model, request, idle_timeout)
        if reply is None:
            raise self._broken_stream_error(model)
        return reply

    async def _collect_stream(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply | None:
        """Return the whole reply of a stream, or None if the stream broke off."""
        deltas = self._stream_once(model, request, idle_timeout)
        try:
            async for delta in deltas:
                if isinstance(delta, StreamStop) and delta.reply is not None:
                    return delta.reply
        finally:
            await close_stream(deltas)
        return None

    def _stream_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> AsyncIterator[ReplyDelta]:
        """Yield deltas up to the `StreamStop`; ending without a `StreamStop` means that the stream broke off."""
        raise NotImplementedError

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        """Convert an SDK exception to a `ProviderError`, or return None if the provider did not cause it."""
        raise NotImplementedError

    async def request_embeddings(
        self, texts: list[str], dimensions: int | None, query: bool, idle_timeout: IdleTimeout
    ) -> Any:
        """Request one vector per text, in order and in any shape that numpy can read.

        `dimensions` is set if the model should make shorter vectors; `query` means that the texts are questions.
        """
        raise ConfigurationError(f"{self.provider} has no embedding models in Tellback.")

    # Shared by all adapters.

    async def _complete(self, request: ChatRequest) -> ChatReply:
        request = replace(request, config={**self.config, **request.config})
        attempts = self._new_attempts()
        while (target := await attempts.next_target()) is not None:
            started = time.monotonic()
            try:
                if isinstance(target, str):
                    idle_timeout = IdleTimeout(self.provider, target, self.timeout)
                    return _with_latency(await self._complete_once(target, request, idle_timeout), started)
                return await target.complete(**_build_call_arguments(request))
            except Exception as error:
                if not attempts.record_failure(error):
                    raise
        raise attempts.final_error()

    async def _stream(self, request: ChatRequest) -> AsyncIterator[ReplyDelta]:
        request = replace(request, config={**self.config, **request.config})
        attempts = self._new_attempts()
        continuation = StreamContinuation()
        while (target := await attempts.next_target()) is not None:
            started = time.monotonic()
            continuation.start_attempt()
            idle_timeout = IdleTimeout(self.provider, str(target), self.timeout)
            if isinstance(target, str):
                deltas = self._stream_once(target, continuation.build_request(request), idle_timeout)
            else:
                deltas = target.stream(**_build_call_arguments(continuation.build_request(request)))
            builder = ReplyBuilder()
            try:
                async for delta in deltas:
                    if builder.stopped:
                        continue  # after reading the whole response, the connection can be used again
                    builder.add(delta)
                    for new_delta in continuation.filter_delta(delta):
                        yield new_delta
                    if isinstance(delta, StreamStop):
                        yield continuation.build_stop(_with_latency(builder.reply(), started))
                        idle_timeout.start_final_deadline()
                if builder.stopped:
                    return
                raise self._broken_stream_error(str(target))
            except Exception as error:
                if builder.stopped:
                    log.debug("%s failed after the end of its reply", target, exc_info=error)
                    return
                if not attempts.record_failure(error, continuation.text):
                    raise
            finally:
                await close_stream(deltas)
        raise attempts.final_error()

    def _broken_stream_error(self, model: str) -> ProviderConnectionError:
        return ProviderConnectionError(
            f"{self.provider} ended the stream of {model} before the reply was complete.",
            provider=self.provider,
            model=model,
            retryable=True,
        )

    def _new_attempts(self) -> RetryAttempts:
        return RetryAttempts((self.model, *self.backup_models), self.retries, self._provider_error)


def _build_call_arguments(request: ChatRequest) -> dict[str, Any]:
    """Convert a request to the arguments of another model's `complete` or `stream`, without this provider's config."""
    arguments: dict[str, Any] = {"messages": request.messages, "system": request.system, "tools": request.tools}
    for name in ("tool_choice", "max_output_tokens", "output_schema"):
        value = getattr(request, name)
        if value is not None:
            arguments[name] = value
    return arguments


def _with_latency(reply: ChatReply, started: float) -> ChatReply:
    if reply.usage is None:
        return reply
    return replace(reply, usage=replace(reply.usage, latency_ms=round((time.monotonic() - started) * 1000)))
