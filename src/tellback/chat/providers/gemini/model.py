"""`GeminiModel`: Google's models through the `google-genai` SDK."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

from tellback.chat.model import ChatRequest
from tellback.chat.providers.base import IdleTimeout, ModelOptions, ProviderModel, close_iterator, read_stream
from tellback.chat.providers.errors import error_from_status, error_from_transport, unreadable_response_error
from tellback.chat.providers.gemini.codec import GeminiStreamReader, decode, encode
from tellback.errors import ConfigurationError, MissingExtraError, MissingKeyError, ProviderError
from tellback.types import ChatReply, ReplyDelta

_CLOUD_VARIABLES = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


class GeminiModel(ProviderModel):
    """Gemini models. The key is `api_key`, GEMINI_API_KEY or GOOGLE_API_KEY; for Google Cloud, pass `client=`.

    >>> GeminiModel("gemini-2.5-flash", config={"temperature": 0})
    GeminiModel('gemini-2.5-flash')
    """

    provider = "Gemini"

    def __init__(self, model: str = "gemini-2.5-flash", **options: Unpack[ModelOptions]) -> None:
        super().__init__(model, **options)
        self._http_client: Any = None

    def _open_client(self, user_client: Any) -> Any:
        try:
            import httpx2
            from google import genai
        except ImportError as error:
            raise MissingExtraError("google-genai", "gemini", "GeminiModel") from error
        if user_client is not None:
            return user_client
        key = self._api_key or os.environ.get("GEMINI_API_KEY") or os.environ.get("GOOGLE_API_KEY")
        if not key and not any(map(os.environ.get, _CLOUD_VARIABLES)):
            raise MissingKeyError(self.provider, ["GEMINI_API_KEY", "GOOGLE_API_KEY"])
        # With aiohttp installed for some other reason the SDK would use it, which behaves differently when cancelled.
        self._http_client = httpx2.AsyncClient(follow_redirects=True)
        return genai.Client(
            api_key=key,
            http_options=genai.types.HttpOptions(base_url=self._base_url, httpx_async_client=self._http_client),
        )

    async def _close_client(self, client: Any) -> None:
        await client.aio.aclose()
        client.close()
        await self._http_client.aclose()

    def _build_arguments(self, model: str, request: ChatRequest) -> dict[str, Any]:
        from google.genai import types
        from pydantic import ValidationError

        contents, config = encode(model, request)
        # One attempt: the SDK would retry on its own. Its timeout must not undercut ours.
        http_options = {"retry_options": {"attempts": 1}, "timeout": round((self.timeout + 30) * 1000)}
        config["http_options"] = {**http_options, **config.get("http_options", {})}
        try:
            checked = types.GenerateContentConfig.model_validate(config)
        except ValidationError as error:
            fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
            raise ConfigurationError(
                f"Gemini does not take {fields}: see google-genai's GenerateContentConfig."
            ) from error
        return {"model": model, "contents": contents, "config": checked}

    @property
    def _models(self) -> Any:
        client = self.client
        return getattr(client, "aio", client).models

    async def _complete_once(self, model: str, request: ChatRequest, idle_timeout: IdleTimeout) -> ChatReply:
        response = await idle_timeout.wait(self._models.generate_content(**self._build_arguments(model, request)))
        return decode(response, self.provider, model)

    async def _stream_once(
        self, model: str, request: ChatRequest, idle_timeout: IdleTimeout
    ) -> AsyncIterator[ReplyDelta]:
        responses = await idle_timeout.wait(
            self._models.generate_content_stream(**self._build_arguments(model, request))
        )
        try:
            async for delta in read_stream(
                idle_timeout.iterate(responses), GeminiStreamReader(self.provider, model), model
            ):
                yield delta
        finally:
            await close_iterator(responses)

    def _provider_error(self, error: Exception, model: str) -> ProviderError | None:
        from google.genai import errors
        from pydantic import ValidationError

        if isinstance(error, errors.APIError):
            return error_from_status(
                *(self.provider, model, error.code if isinstance(error.code, int) else None),
                error.message or str(error),
                headers=getattr(error.response, "headers", None),
                body=error.details,
                retry_after=_parse_retry_delay(error.details),
            )
        if isinstance(error, (errors.UnknownApiResponseError, ValidationError)):
            return unreadable_response_error(self.provider, model, error)
        return error_from_transport(self.provider, model, error)


def _parse_retry_delay(body: Any) -> float | None:
    """Seconds from the RetryInfo that Google puts into an error's details."""
    inner = body.get("error", body) if isinstance(body, Mapping) else {}
    for detail in (inner.get("details") if isinstance(inner, Mapping) else None) or ():
        delay = detail.get("retryDelay") if isinstance(detail, Mapping) else None
        if isinstance(delay, str) and delay.endswith("s"):
            try:
                return float(delay[:-1])
            except ValueError:
                return None
    return None
