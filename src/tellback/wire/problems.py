"""Errors on the wire: `application/problem+json`, with a `code` for each class of `tellback.errors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from tellback import errors
from tellback.errors import RemoteError, RemoteUnavailableError, TellbackError
from tellback.wire.base import WireModel, camel

# The first match wins, so subclasses come before their base classes.
ERROR_CODES: tuple[tuple[type[TellbackError], int, str], ...] = (
    (errors.NotAuthenticatedError, 401, "not-authenticated"),
    (errors.NotAllowedError, 403, "not-allowed"),
    (errors.RateLimitedError, 429, "rate-limited"),
    (errors.RequestTooLargeError, 413, "too-large"),
    (errors.PreconditionFailedError, 412, "precondition-failed"),
    (errors.IdempotencyConflictError, 422, "idempotency-conflict"),
    (errors.RequestInProgressError, 409, "request-in-progress"),
    (errors.InvalidArgumentError, 422, "invalid-argument"),
    (errors.NotFoundError, 404, "not-found"),
    (errors.ConversationClosedError, 409, "conversation-closed"),
    (errors.TurnConflictError, 409, "turn-conflict"),
    (errors.SessionConflictError, 409, "session-conflict"),
    (errors.AlreadyAnsweredError, 409, "already-answered"),
    (errors.AlreadyDecidedError, 409, "already-decided"),
    (errors.AtomSupersededError, 409, "atom-superseded"),
    (errors.CannedResponseError, 422, "canned-response"),
    (errors.AgentSpecError, 422, "agent-spec"),
    (errors.UnknownModelError, 422, "unknown-model"),
    (errors.BudgetExceededError, 422, "budget-exceeded"),
    (errors.MaxIterationsError, 422, "max-iterations"),
    (errors.OutputValidationError, 502, "output-validation"),
    (errors.ProviderRateLimitError, 503, "provider-rate-limited"),
    (errors.ProviderOverloadedError, 503, "provider-overloaded"),
    (errors.ProviderTimeoutError, 504, "provider-timeout"),
    (errors.ProviderError, 502, "provider-failed"),
    (errors.ConfigurationError, 503, "not-configured"),
    (errors.StoreFullError, 507, "store-full"),
    (errors.StoreBusyError, 503, "store-busy"),
    (errors.StoreError, 503, "store-unavailable"),
    (errors.EmbeddingError, 502, "embedding-failed"),
    (errors.SkillError, 422, "skill"),
    (errors.ToolError, 502, "tool"),
    (errors.TellbackError, 500, "failed"),
)

UNAVAILABLE_STATUSES = (502, 503, 504)
"""Statuses of servers that are starting or stopping, and of proxies in front of unreachable servers."""

_SENT_ATTRIBUTES: dict[type[TellbackError], dict[str, Any]] = {
    errors.RateLimitedError: {"retry_after": 1.0},
    errors.IdempotencyConflictError: {"key": ""},
    errors.RequestInProgressError: {"key": ""},
    errors.NotFoundError: {"kind": "", "id": ""},
    errors.ConversationClosedError: {"id": ""},
    errors.TurnConflictError: {"id": "", "turn_id": ""},
    errors.SessionConflictError: {"id": "", "version": 0, "stored": None},
    errors.AlreadyAnsweredError: {"text": ""},
    errors.AlreadyDecidedError: {"id": "", "call_ids": ()},
    errors.AtomSupersededError: {"id": "", "superseded_by": ""},
    errors.CannedResponseError: {"place": "", "missing": ()},
    errors.AgentSpecError: {"path": "", "problem": "", "agent": ""},
    errors.UnknownModelError: {"model": "", "known": ()},
    errors.BudgetExceededError: {"breakdown": {}, "total": 0, "limit": 0},
    errors.MaxIterationsError: {"max_iterations": 0},
    errors.OutputValidationError: {"problem": ""},
    errors.ProviderError: {"provider": "", "model": "", "status": None, "retryable": False, "retry_after": None},
    errors.StoreError: {"in_doubt": False},
    errors.EmbeddingError: {"retryable": False},
    errors.SkillError: {"skill": "", "problem": ""},
}
"""Attributes of an error that are sent in addition to its message, with their defaults."""

_WITHHELD_ATTRIBUTES: dict[type[TellbackError], dict[str, Any]] = {
    errors.MaxIterationsError: {"messages": (), "usage": None},
    errors.OutputValidationError: {"text": "", "messages": ()},
    errors.ProviderError: {"request_id": None, "body": None, "partial_text": "", "attempts": ()},
}
"""Attributes that are not sent: message texts and provider responses."""

_CLASS_BY_CODE: dict[str, type[TellbackError]] = {
    **{code: kind for kind, _, code in reversed(ERROR_CODES)},
    "unknown-path": errors.NotFoundError,  # an id with a slash is a different path
}


class Problem(WireModel):
    """An error."""

    type: str = Field(examples=["urn:tellback:problem:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    code: str = Field(examples=["not-found"], description="The last part of `type`.")
    detail: str = Field(examples=["There is no conversation 'conv_1' for this user."])
    request_id: str | None = None
    errors: list[dict[str, Any]] | None = Field(default=None, description="The invalid fields and their problems.")
    data: dict[str, Any] | None = Field(default=None, description="Attributes of the error.")


def status_and_code(error: TellbackError) -> tuple[int, str]:
    """Return the status and the code of an error."""
    return next((status, code) for kind, status, code in ERROR_CODES if isinstance(error, kind))


def encode_error_data(error: TellbackError) -> dict[str, Any] | None:
    """Encode the attributes in `_SENT_ATTRIBUTES`, which a client needs to raise the same error."""
    kind = next(kind for kind, _, _ in ERROR_CODES if isinstance(error, kind))
    return {
        camel(name): getattr(error, name)
        for name in _collect_attributes(_SENT_ATTRIBUTES, kind)
        if hasattr(error, name)
    } or None


def error_from_problem(problem: Mapping[str, Any], status: int) -> TellbackError:
    """Build the error of a problem, of the class that the in-process call would raise.

    All attributes of the class are set; those that were not sent have defaults.

    >>> error_from_problem({"code": "not-found", "detail": "There is no atom 'atom_1'.", "data": {"id": "atom_1"}}, 404)
    NotFoundError("There is no atom 'atom_1'.")
    """
    detail, code = str(problem.get("detail") or f"The server responded with {status}."), str(problem.get("code"))
    kind = _CLASS_BY_CODE.get(code)
    if kind is None:
        return (RemoteUnavailableError if status in UNAVAILABLE_STATUSES else RemoteError)(detail, status)
    error = kind.__new__(kind)
    error.args = (detail,)
    data = problem.get("data")
    attributes = data if isinstance(data, Mapping) else {}
    sent = _collect_attributes(_SENT_ATTRIBUTES, kind)
    for name, default in {**_collect_attributes(_WITHHELD_ATTRIBUTES, kind), **sent}.items():
        value = attributes.get(camel(name), default) if name in sent else default
        setattr(error, name, _copy_value(value))
    return error


def _collect_attributes(
    table: Mapping[type[TellbackError], Mapping[str, Any]], kind: type[TellbackError]
) -> dict[str, Any]:
    """Merge the table's entries of a class and its bases."""
    return {name: value for each in kind.__mro__ if each in table for name, value in table[each].items()}


def _copy_value(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else dict(value) if isinstance(value, dict) else value
