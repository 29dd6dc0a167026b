"""Errors survive the roundtrip: their class, message and attributes."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest

from tellback import errors
from tellback.errors import ProviderError, RemoteError, RemoteUnavailableError, TellbackError
from tellback.types import ChatUsage, user_message
from tellback.wire.base import camel
from tellback.wire.problems import ERROR_CODES, encode_error_data, error_from_problem, status_and_code

SECRET = "a user's text"

EXAMPLES: dict[type[TellbackError], TellbackError] = {
    errors.RateLimitedError: errors.RateLimitedError("Too many requests.", 2.5),
    errors.IdempotencyConflictError: errors.IdempotencyConflictError("k"),
    errors.RequestInProgressError: errors.RequestInProgressError("k"),
    errors.NotFoundError: errors.NotFoundError("atom", "atom_1"),
    errors.ConversationClosedError: errors.ConversationClosedError("conv_1"),
    errors.TurnConflictError: errors.TurnConflictError("conv_1", "turn_1", 3.0),
    errors.SessionConflictError: errors.SessionConflictError("web-1", 2, 3),
    errors.AlreadyAnsweredError: errors.AlreadyAnsweredError("Hello!"),
    errors.AlreadyDecidedError: errors.AlreadyDecidedError("conv_1", ["call_1"]),
    errors.AtomSupersededError: errors.AtomSupersededError("atom_1", "atom_2"),
    errors.CannedResponseError: errors.CannedResponseError("route 'Book'", ["city"]),
    errors.AgentSpecError: errors.AgentSpecError("tools[1]", "no such tool", "Wanda"),
    errors.UnknownModelError: errors.UnknownModelError("gpt-x", ["openai"]),
    errors.BudgetExceededError: errors.BudgetExceededError({"system": 3}, 3, 2),
    errors.MaxIterationsError: errors.MaxIterationsError(7, [user_message(SECRET)], ChatUsage(1)),
    errors.OutputValidationError: errors.OutputValidationError("Flight", "no city", SECRET, [user_message(SECRET)]),
    errors.EmbeddingError: errors.EmbeddingError("No vectors.", retryable=True),
    errors.SkillError: errors.SkillError("maps", "cannot be read"),
    errors.StoreFullError: errors.StoreFullError("The disk is full.", in_doubt=True),
    errors.StoreBusyError: errors.StoreBusyError("Locked."),
    errors.StoreError: errors.StoreError("The connection broke.", in_doubt=True),
}


def make_error(kind: type[TellbackError]) -> TellbackError:
    if kind in EXAMPLES:
        return EXAMPLES[kind]
    if issubclass(kind, ProviderError):
        return kind(
            "No.", provider="anthropic", model="m", status=529, retry_after=3.0, request_id="r", body={"a": SECRET}
        )
    return kind("An error.")


def public_attributes(kind: type[TellbackError]) -> set[str]:
    return {name for name in vars(make_error(kind)) if not name.startswith("_")}


def encode_problem(error: TellbackError) -> dict[str, Any]:
    status, code = status_and_code(error)
    problem: dict[str, Any] = json.loads(
        json.dumps({"code": code, "status": status, "detail": str(error), "data": encode_error_data(error)})
    )
    return problem


@pytest.mark.parametrize("kind", [kind for kind, _, _ in ERROR_CODES], ids=lambda kind: kind.__name__)
def test_every_error_is_decoded_with_all_attributes(kind: type[TellbackError]) -> None:
    error = make_error(kind)
    problem = encode_problem(error)
    found = error_from_problem(problem, problem["status"])
    assert (type(found), str(found)) == (kind, str(error))
    data = problem["data"] or {}
    assert all("_" not in name for name in data)
    assert SECRET not in json.dumps(data)
    for name in public_attributes(kind):
        if camel(name) in data:
            assert getattr(found, name) == getattr(error, name), name
        else:
            assert getattr(found, name) in ((), None, ""), name


@pytest.mark.parametrize("kind", [kind for kind, _, _ in ERROR_CODES], ids=lambda kind: kind.__name__)
def test_errors_without_data_are_decoded_with_defaults(kind: type[TellbackError]) -> None:
    status, code = next((status, code) for each, status, code in ERROR_CODES if each is kind)
    found = error_from_problem({"code": code, "data": None}, status)
    assert type(found) is kind
    assert public_attributes(kind) <= vars(found).keys()


def test_every_error_class_with_a_constructor_is_tested() -> None:
    with_own = {
        kind
        for kind, _, _ in ERROR_CODES
        if "__init__" in vars(kind) and "self." in inspect.getsource(vars(kind)["__init__"])
    }
    assert with_own <= {*EXAMPLES, ProviderError}


@pytest.mark.parametrize(
    "error",
    [
        errors.MissingKeyError("OpenAI", ["OPENAI_API_KEY"]),
        errors.FlowError("route 'Secret'", "is wrong"),
        errors.MissingExtraError("fastembed", "embed", "It"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_servers_configuration_is_not_sent(error: TellbackError) -> None:
    assert encode_error_data(error) is None


@pytest.mark.parametrize("code", ["stopping", "not-ready", "issuer-unavailable"])
def test_a_starting_or_stopping_server_is_unavailable(code: str) -> None:
    found = error_from_problem({"code": code, "detail": "In a moment."}, 503)
    assert isinstance(found, RemoteUnavailableError)
    assert found.status == 503


def test_an_unknown_code_becomes_a_remote_error_with_its_status() -> None:
    found = error_from_problem({"code": "teapot", "detail": "I am one."}, 418)
    assert (type(found), str(found)) == (RemoteError, "I am one.")
    assert isinstance(found, RemoteError)
    assert found.status == 418
