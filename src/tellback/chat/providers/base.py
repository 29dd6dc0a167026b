"""What every provider's adapter shares: retries, backup models, timeouts, and streams that survive a failure.

An adapter supplies four things: its client, one plain request, one streamed request, and how its SDK's exceptions
read as `ProviderError`s. The rest means the same for every provider.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from tellback.chat.assemble import ReplyBuilder
from tellback.chat.model import ChatRequest, Model, ModelBase, close_stream
from tellback.chat.providers.attempts import RetryAttempts
from tellback.chat.providers.continuation import StreamContinuation
from tellback.chat.providers.pace import IdleTimeout
from tellback.chat.usage import load_price_list
from tellback.errors import ConfigurationError, ProviderConnectionError, ProviderError
from tellback.types import ChatReply, ReplyDelta, StreamStop

log = logging.getLogger("tellback.chat")


class ModelOptions(TypedDict, total=False):
    """What every adapter's constructor takes; `ProviderModel` explains it."""

    api_key: str | None
    base_url: str | None
    client: Any
    backup_models: Sequence[str | Model]
    config: Mapping[str, Any] | None
    timeout: float
    retries: int


class ProviderModel(ModelBase):
    """A vendor's model behind its own SDK.

    `client` is the SDK's own async client, for proxies, gateways and clouds. `config` goes into every request as it is.
    `timeout` is how many seconds to wait for the answer, or for a stream's first and each later chunk. `retries` is how
    often a failed request is made again (0: never). `backup_models` are tried in order when that did not help; each is
    a name for the same provider, or a model object of any other.
    """

    provider = ""

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
            raise ConfigurationError(f"{type(self).__name__} needs a model's name.")
        if retries < 0 or timeout <= 0:
            raise ConfigurationError(f"retries must be 0 or more and timeout above 0, not {retries} and {timeout}.")
        if client is not None and (api_key is not None or base_url is not None):
            raise ConfigurationError("Pass either client= or api_key=/base_url=: a client brings its own.")
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
        """The SDK's client, opened when first used. Its connections belong to the event loop they were opened on, so
        there is one for each; those of loops that are gone are dropped."""
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

    async def __aenter__(self) -> ProviderModel:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    # What an adapter supplies.

    def _open_client(self, user_client: Any) -> Any:
        raise NotImplementedError

    async def _close_client(self, client: Any) -> None:
        await client.close()

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        raise NotImplementedError

    def _stream_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> AsyncIterator[ReplyDelta]:
        """Deltas up to the `StreamStop`; to end without one says that the stream broke off."""
        raise NotImplementedError

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        """The SDK's exception in our words, or None if it is not the provider's doing."""
        raise NotImplementedError

    # The rest is the same for all.

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
                        continue  # read to its end, a response leaves its connection fit for the next request
                    builder.add(delta)
                    for new_delta in continuation.filter_delta(delta):
                        yield new_delta
                    if isinstance(delta, StreamStop):
                        yield continuation.build_stop(_with_latency(builder.reply(), started))
                        idle_timeout.start_final_deadline()
                if builder.stopped:
                    return
                raise ProviderConnectionError(
                    f"{self.provider} ended the stream of {target} before the reply was complete.",
                    provider=self.provider,
                    model=str(target),
                    retryable=True,
                )
            except Exception as error:
                if builder.stopped:
                    log.debug("%s failed after the end of its reply", target, exc_info=error)
                    return
                if not attempts.record_failure(error, continuation.text):
                    raise
            finally:
                await close_stream(deltas)
        raise attempts.final_error()

    def _new_attempts(self) -> RetryAttempts:
        return RetryAttempts((self.model, *self.backup_models), self.retries, self._provider_error)


def _build_call_arguments(request: ChatRequest) -> dict[str, Any]:
    """A request as the arguments of another model's `complete` or `stream`; this provider's config stays behind."""
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
