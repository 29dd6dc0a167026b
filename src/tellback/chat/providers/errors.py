"""Convert providers' failures to `ProviderError`s, with the same status codes and error types for every vendor.

The `anthropic` and `openai` SDKs come from one generator; the functions for both are at the end."""

from __future__ import annotations

import inspect
import json
import socket
from collections.abc import Mapping
from typing import Any

from tellback.chat.providers.retry import RETRYABLE_STATUSES, parse_retry_after
from tellback.errors import (
    ConfigurationError,
    ProviderAuthError,
    ProviderConnectionError,
    ProviderError,
    ProviderOverloadedError,
    ProviderRateLimitError,
    ProviderRequestError,
    ProviderResponseError,
    ProviderTimeoutError,
)

STATUS_BY_ERROR_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "timeout_error": 504,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "api_error": 500,
    "server_error": 500,
    "overloaded_error": 529,
}
"""The statuses of errors within a stream, which have only a type."""

HTTP_LIBRARIES = frozenset(
    {"httpx", "httpx2", "httpcore", "httpcore2", "aiohttp", "h11", "h2", "anyio", "ssl", "requests", "urllib3"}
)


def error_from_status(
    provider: str,
    model: str,
    status: int | None,
    message: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    request_id: str | None = None,
    retry_after: float | None = None,
) -> ProviderError:
    """Build the error for an HTTP status, or for a failure within a stream (`status` from its type, or None)."""
    error_class, advice = _error_class_for(status)
    should_retry = (headers or {}).get("x-should-retry")
    if should_retry in ("true", "false"):
        retryable = should_retry == "true"
    else:
        # A failure within a stream without a known type is the provider's and temporary.
        retryable = status is None or status in RETRYABLE_STATUSES or status > 500
        _, error_type, code = parse_error_body(body)
        if "insufficient_quota" in (error_type, code):
            retryable = False  # the status is 429, but waiting does not help
    where = f"{provider} ({status})" if status else provider
    return error_class(
        f"{where} failed for {model}: {message.rstrip('.')}.{advice}",
        provider=provider,
        model=model,
        status=status,
        retryable=retryable,
        retry_after=parse_retry_after(headers) if retry_after is None else retry_after,
        request_id=request_id,
        body=body,
    )


def _error_class_for(status: int | None) -> tuple[type[ProviderError], str]:
    if status in (401, 403):
        return ProviderAuthError, " Check the API key and what it is allowed to use."
    if status == 404:
        return ProviderRequestError, " Check the model's name and the base URL."
    if status == 429:
        return ProviderRateLimitError, ""
    if status in (408, 504):
        return ProviderTimeoutError, ""
    if status is not None and status < 500:
        return ProviderRequestError, ""
    return ProviderOverloadedError, ""


def error_from_transport(provider: str, model: str, error: Exception) -> ProviderError | None:
    """Build the error for an exception of an HTTP library or of a decoder; None for other exceptions."""
    details: dict[str, Any] = {"provider": provider, "model": model, "retryable": True}
    library = type(error).__module__.partition(".")[0]
    name = type(error).__name__
    if isinstance(error, TimeoutError) or (library in HTTP_LIBRARIES and "Timeout" in name):
        return ProviderTimeoutError(f"{provider} timed out for {model}: {error or name}", **details)
    if library in HTTP_LIBRARIES or isinstance(error, (ConnectionError, EOFError, socket.gaierror)):
        return ProviderConnectionError(f"The connection to {provider} failed for {model}: {error or name}", **details)
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return unreadable_response_error(provider, model, error)
    return None


def unreadable_response_error(provider: str, model: str, problem: object) -> ProviderResponseError:
    """Build the error for a response in a form that the provider's SDK does not know."""
    return ProviderResponseError(
        f"{provider} sent an unreadable response for {model}: {problem}",
        provider=provider,
        model=model,
        retryable=True,
    )


def parse_error_body(body: Any) -> tuple[str | None, str | None, Any]:
    """Return the message, type and code of an error body, with or without the wrapper `error`."""
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(inner, str):
        return inner, None, None
    if not isinstance(inner, Mapping):
        return None, None, None
    message, error_type = inner.get("message"), inner.get("type")
    return (
        message if isinstance(message, str) else None,
        error_type if isinstance(error_type, str) else None,
        inner.get("code"),
    )


def error_from_body(body: Mapping[str, Any], provider: str, model: str) -> ProviderError:
    """Build the error that a host reports in the body of a response with status 200."""
    message, error_type, code = parse_error_body(body)
    return error_from_status(
        provider, model, status_from_error(error_type, code), message or "it reported an error", body=dict(body)
    )


def status_from_error(error_type: str | None, code: Any) -> int | None:
    """Return the status for an error's type or code."""
    if isinstance(code, str) and code.isdigit():
        code = int(code)
    if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600:
        return code
    for name in (error_type, code):
        if isinstance(name, str) and name in STATUS_BY_ERROR_TYPE:
            return STATUS_BY_ERROR_TYPE[name]
    return None


def disable_sdk_retries(client: Any, create: Any, example: str) -> Any:
    """Return the user's client with its retries turned off."""
    if not inspect.iscoroutinefunction(inspect.unwrap(create)):
        raise ConfigurationError(f"client must be an async client, such as {example}.")
    return client.with_options(max_retries=0)


def build_arguments(body: Mapping[str, Any], config: dict[str, Any], timeout: float) -> dict[str, Any]:
    """Build the arguments of `create`; `config` goes into the body unchanged, even fields that the SDK does not know.

    The request's fields win over `config`, but tools in `config` are added to the request's tools.
    """
    headers = config.pop("extra_headers", None)
    config.update(config.pop("extra_body", None) or {})
    merged = dict(body)
    if "tools" in config:
        merged["tools"] = [*body.get("tools", ()), *config["tools"]]
    extra = {name: value for name, value in config.items() if name not in merged}
    # The SDK's own read timeout must not undercut ours.
    return {**merged, "extra_body": extra or None, "extra_headers": headers, "timeout": timeout + 30}


def error_from_sdk(sdk: Any, error: Any, provider: str, model: str) -> ProviderError | None:
    """Convert an exception of the `anthropic` or `openai` SDK to a `ProviderError`."""
    if isinstance(error, sdk.APIError):
        message, error_type, code = parse_error_body(error.body)
    if isinstance(error, sdk.APIStatusError):
        status = error.status_code if error.status_code >= 400 else status_from_error(error_type, code)
        return error_from_status(
            *(provider, model, status, message or str(error)),
            headers=error.response.headers,
            body=error.body,
            request_id=error.request_id,
        )
    if isinstance(error, sdk.APIConnectionError):  # for errors other than timeouts, the cause has more details
        is_timeout = "Timeout" in type(error).__name__
        cause = TimeoutError(str(error)) if is_timeout else ConnectionError(str(error.__cause__ or error))
        return error_from_transport(provider, model, cause)
    if isinstance(error, sdk.APIResponseValidationError):
        return unreadable_response_error(provider, model, error)
    if isinstance(error, sdk.APIError):  # an error within a stream
        return error_from_status(
            provider, model, status_from_error(error_type, code), message or str(error), body=error.body
        )
    return error_from_transport(provider, model, error)


def as_dict(value: Any) -> dict[str, Any]:
    """Convert an SDK object to JSON values."""
    if isinstance(value, Mapping):
        return dict(value)
    dumped: dict[str, Any] = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped
