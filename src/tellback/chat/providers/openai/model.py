"""`OpenAIModel` and its kin: everything that speaks OpenAI's chat API, through the `openai` SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

from tellback.chat.discovery import build_ollama_url
from tellback.chat.model import ChatRequest, ModelOptions
from tellback.chat.providers.base import IdleTimeout, ProviderModel, read_stream, watch_bytes
from tellback.chat.providers.errors import (
    build_arguments,
    disable_sdk_retries,
    error_from_sdk,
    unreadable_response_error,
)
from tellback.chat.providers.openai.codec import (
    COMPATIBLE_DIALECT,
    OPENAI_DIALECT,
    OPENROUTER_DIALECT,
    OpenAIDialect,
    OpenAIStreamReader,
    decode,
    encode,
)
from tellback.errors import ConfigurationError, MissingExtraError, MissingKeyError, ProviderError
from tellback.types import ChatReply, ReplyDelta


class OpenAIModel(ProviderModel):
    """OpenAI's models. The key is `api_key` or OPENAI_API_KEY.

    >>> OpenAIModel("gpt-5", config={"reasoning_effort": "low"}, timeout=30)
    OpenAIModel('gpt-5')
    """

    provider = "OpenAI"
    dialect: OpenAIDialect = OPENAI_DIALECT
    key_variables: tuple[str, ...] = ("OPENAI_API_KEY",)
    default_base_url: str | None = None
    headers: Mapping[str, str] | None = None

    def _resolve_api_key(self) -> str:
        key = self._api_key or next(filter(None, map(os.environ.get, self.key_variables)), None)
        if not key:
            raise MissingKeyError(self.provider, self.key_variables)
        return key

    def _open_client(self, user_client: Any) -> Any:
        try:
            import openai
        except ImportError as error:
            raise MissingExtraError("openai", "openai", type(self).__name__) from error
        if user_client is not None:
            return disable_sdk_retries(user_client, user_client.chat.completions.create, "openai.AsyncOpenAI()")
        return openai.AsyncOpenAI(
            api_key=self._resolve_api_key(),
            base_url=self._base_url or self.default_base_url,
            default_headers=self.headers,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(),  # the SDK's own, less the task it starts when dropped
        )

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        body, config = encode(model, request, self.dialect)
        return build_arguments(body, config, self.timeout)

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        completion = await idle_timeout.wait(
            self.client.chat.completions.create(**self._build_arguments(model, request))
        )
        if not hasattr(completion, "model_dump"):
            raise unreadable_response_error(self.provider, model, f"{completion!r:.200}")
        return decode(completion, self.provider, model, self.dialect)

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        arguments = self._build_arguments(model, request)
        if self.dialect.stream_usage:
            arguments["stream_options"] = {"include_usage": True}
        stream = await idle_timeout.wait(self.client.chat.completions.create(**arguments, stream=True))
        # The SDK swallows the closing [DONE]. Without it, a connection closed half-way cannot be told from a host
        # that never says why it stops.
        tail = b""

        def on_chunk(chunk: bytes) -> None:
            nonlocal tail
            tail = (tail + chunk)[-64:]
            idle_timeout.reset()

        watch_bytes(stream.response, on_chunk)
        async with stream:
            reader = OpenAIStreamReader(self.provider, model, self.dialect, saw_end=lambda: b"[DONE]" in tail)
            async for delta in read_stream(idle_timeout.iterate(stream), reader, model):
                yield delta

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        import openai

        return error_from_sdk(openai, error, self.provider, model)


class OpenRouterModel(OpenAIModel):
    """Any model by way of OpenRouter, named `vendor/model`. The key is `api_key` or OPENROUTER_API_KEY.

    `site_url` and `site_name` say who is calling, for OpenRouter's rankings.

    >>> OpenRouterModel("anthropic/claude-sonnet-5", site_name="My app")
    OpenRouterModel('anthropic/claude-sonnet-5')
    """

    provider = "OpenRouter"
    dialect = OPENROUTER_DIALECT
    key_variables = ("OPENROUTER_API_KEY",)
    default_base_url = "https://openrouter.ai/api/v1"

    def __init__(
        self, model: str, *, site_url: str | None = None, site_name: str | None = None, **options: Unpack[ModelOptions]
    ) -> None:
        super().__init__(model, **options)
        site_headers = {"HTTP-Referer": site_url, "X-Title": site_name}
        self.headers = {name: value for name, value in site_headers.items() if value}


class CompatibleModel(OpenAIModel):
    """A model on any server that speaks OpenAI's chat API: vLLM, LM Studio, llama.cpp, a gateway.

    `provider` is the name used in errors and usage. `json_schema=False` is for servers that cannot hold a model to a
    schema, `stream_usage=False` for those that refuse `stream_options`.

    >>> CompatibleModel("qwen3", base_url="http://127.0.0.1:8000/v1")
    CompatibleModel('qwen3')
    """

    provider = "compatible server"
    dialect = COMPATIBLE_DIALECT

    def __init__(
        self,
        model: str,
        *,
        provider: str | None = None,
        json_schema: bool = True,
        stream_usage: bool = True,
        **options: Unpack[ModelOptions],
    ) -> None:
        super().__init__(model, **options)
        if not (self._base_url or self.default_base_url or self._user_client):
            raise ConfigurationError("CompatibleModel needs base_url=, such as 'http://127.0.0.1:8000/v1'.")
        if provider is not None:
            self.provider = provider
        self.dialect = OpenAIDialect(json_schema=json_schema, stream_usage=stream_usage)

    def _resolve_api_key(self) -> str:
        return self._api_key or "not-needed"  # the SDK insists on one; most such servers do not


class XaiModel(OpenAIModel):
    """xAI's Grok models. The key is `api_key` or XAI_API_KEY.

    >>> XaiModel("grok-4")
    XaiModel('grok-4')
    """

    provider = "xAI"
    dialect = COMPATIBLE_DIALECT
    key_variables = ("XAI_API_KEY",)
    default_base_url = "https://api.x.ai/v1"


class OllamaModel(CompatibleModel):
    """A model of an Ollama server: OLLAMA_HOST, or this machine's.

    >>> OllamaModel("llama3.3").provider
    'Ollama'
    """

    provider = "Ollama"
    default_base_url = "http://127.0.0.1:11434/v1"

    def __init__(self, model: str, **options: Unpack[ModelOptions]) -> None:
        host = os.environ.get("OLLAMA_HOST")
        if host and options.get("base_url") is None and options.get("client") is None:
            options["base_url"] = f"{build_ollama_url(host)}/v1"
        super().__init__(model, **options)
