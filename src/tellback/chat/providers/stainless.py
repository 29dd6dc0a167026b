"""What the `anthropic` and `openai` SDKs have in common, being made by one generator."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tellback.chat.providers.errors import (
    error_from_status,
    error_from_transport,
    parse_error_body,
    status_from_error,
    unreadable_response_error,
    unwrap_sdk_error,
)
from tellback.errors import ConfigurationError, ProviderError


def disable_sdk_retries(client: Any, create: Any, example: str) -> Any:
    """A client that was passed in, with its own retries off."""
    if not inspect.iscoroutinefunction(inspect.unwrap(create)):
        raise ConfigurationError(f"client= must be an async client, such as {example}.")
    return client.with_options(max_retries=0)


def build_arguments(body: Mapping[str, Any], config: dict[str, Any], timeout: float) -> dict[str, Any]:
    """The arguments of `create`: `config` goes into the body as it is, whatever this version of the SDK knows.

    What the request itself says wins over `config`, and tools of the provider's own are added to ours.
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
    """The SDK's exception in our words."""
    if isinstance(error, sdk.APIStatusError):
        message, error_type, code = parse_error_body(error.body)
        status = error.status_code if error.status_code >= 400 else status_from_error(error_type, code)
        return error_from_status(
            *(provider, model, status, message or str(error)),
            headers=error.response.headers,
            body=error.body,
            request_id=error.request_id,
        )
    if isinstance(error, sdk.APIConnectionError):
        return error_from_transport(provider, model, unwrap_sdk_error(error))
    if isinstance(error, sdk.APIResponseValidationError):
        return unreadable_response_error(provider, model, error)
    if isinstance(error, sdk.APIError):  # an error inside a stream that began well
        message, error_type, code = parse_error_body(error.body)
        return error_from_status(
            provider, model, status_from_error(error_type, code), message or str(error), body=error.body
        )
    return error_from_transport(provider, model, error)


def as_dict(value: Any) -> dict[str, Any]:
    """An SDK object as the JSON it came from."""
    if isinstance(value, Mapping):
        return dict(value)
    dumped: dict[str, Any] = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped
