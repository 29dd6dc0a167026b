"""`AnthropicModel`: Claude through the `anthropic` SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Unpack

from tellback.chat.model import ChatRequest
from tellback.chat.providers import stainless
from tellback.chat.providers.anthropic.codec import AnthropicStreamReader, decode, encode
from tellback.chat.providers.base import IdleTimeout, ModelOptions, ProviderModel, read_stream, watch_bytes
from tellback.errors import MissingExtraError, MissingKeyError, ProviderError
from tellback.types import ChatReply, ReplyDelta, StreamStop

DEFAULT_MAX_TOKENS = 8_192
STREAM_ABOVE_TOKENS = 8_192
"""A plain request for more than this may outlive the connection: it is streamed and collected instead."""


class AnthropicModel(ProviderModel):
    """Claude models.

    The key is `api_key` or ANTHROPIC_API_KEY. `cache=True` marks the tools, the system prompt and the conversation for
    Anthropic's prompt cache (`cache="1h"`: for an hour); single parts are marked by `meta={"cache_control": ...}`.

    >>> AnthropicModel("claude-sonnet-5", backup_models=["claude-haiku-5-5"], config={"temperature": 0})
    AnthropicModel('claude-sonnet-5')
    """

    provider = "Anthropic"

    def __init__(self, model: str, *, cache: bool | str = False, **options: Unpack[ModelOptions]) -> None:
        super().__init__(model, **options)
        self.cache = cache

    def _open_client(self, user_client: Any) -> Any:
        try:
            import anthropic
        except ImportError as error:
            raise MissingExtraError("anthropic", "anthropic", "AnthropicModel") from error
        if user_client is not None:
            return stainless.disable_sdk_retries(user_client, user_client.messages.create, "anthropic.AsyncAnthropic()")
        client = anthropic.AsyncAnthropic(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(),  # the SDK's own, less the task it starts when dropped
        )
        if not (client.api_key or client.auth_token or getattr(client, "credentials", None)):
            raise MissingKeyError(self.provider, ["ANTHROPIC_API_KEY"])
        return client

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        body, config = encode(model, request, default_max_tokens=DEFAULT_MAX_TOKENS, cache=self.cache)
        return stainless.build_arguments(body, config, self.timeout)

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        arguments = self._build_arguments(model, request)
        if arguments["max_tokens"] <= STREAM_ABOVE_TOKENS:
            return decode(await idle_timeout.wait(self.client.messages.create(**arguments)), self.provider, model)
        async for delta in self._stream_once(model, request, idle_timeout):
            if isinstance(delta, StreamStop) and delta.reply is not None:
                return delta.reply
        raise ConnectionResetError("the stream ended before the reply was complete")

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        stream = await idle_timeout.wait(
            self.client.messages.create(**self._build_arguments(model, request), stream=True)
        )
        watch_bytes(stream.response, lambda _: idle_timeout.reset())
        async with stream:
            async for delta in read_stream(
                idle_timeout.iterate(stream), AnthropicStreamReader(self.provider, model), model
            ):
                yield delta

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        import anthropic

        return stainless.error_from_sdk(anthropic, error, self.provider, model)
