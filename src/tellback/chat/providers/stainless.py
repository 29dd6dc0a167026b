"""What the `anthropic` and `openai` SDKs have in common, being made by one generator."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from tellback.chat.providers.failures import (
    error_fields,
    sdk_cause,
    status_failure,
    status_of,
    transport_failure,
    unreadable,
)
from tellback.errors import ConfigurationError, ProviderError


def without_retries(client: Any, create: Any, example: str) -> Any:
    """A client that was passed in, with its own retries off."""
    if not inspect.iscoroutinefunction(inspect.unwrap(create)):
        raise ConfigurationError(f"client= must be an async client, such as {example}.")
    return client.with_options(max_retries=0)


def arguments(body: Mapping[str, Any], config: dict[str, Any], timeout: float) -> dict[str, Any]:
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


def failure(sdk: Any, error: Any, provider: str, model: str) -> ProviderError | None:
    """The SDK's exception in our words."""
    if isinstance(error, sdk.APIStatusError):
        message, kind, code = error_fields(error.body)
        status = error.status_code if error.status_code >= 400 else status_of(kind, code)
        return status_failure(
            *(provider, model, status, message or str(error)),
            headers=error.response.headers,
            body=error.body,
            request_id=error.request_id,
        )
    if isinstance(error, sdk.APIConnectionError):
        return transport_failure(provider, model, sdk_cause(error))
    if isinstance(error, sdk.APIResponseValidationError):
        return unreadable(provider, model, error)
    if isinstance(error, sdk.APIError):  # an error inside a stream that began well
        message, kind, code = error_fields(error.body)
        return status_failure(provider, model, status_of(kind, code), message or str(error), body=error.body)
    return transport_failure(provider, model, error)


def as_dict(value: Any) -> dict[str, Any]:
    """An SDK object as the JSON it came from."""
    if isinstance(value, Mapping):
        return dict(value)
    dumped: dict[str, Any] = value.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dumped
