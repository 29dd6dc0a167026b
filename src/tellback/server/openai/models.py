"""What `/v1` answers, for its description."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from tellback.server.openai.errors import ErrorOut


class FunctionOut(BaseModel):
    """Which function to call, and with what."""

    name: str = Field(examples=["get_weather"])
    arguments: str = Field(examples=['{"city":"Lisbon"}'], description="JSON text.")


class CallOut(BaseModel):
    """A tool that the client is to run."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionOut


class ReplyOut(BaseModel):
    """What the assistant says."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(examples=["You wanted to try the place by the river."])
    refusal: str | None = None
    tool_calls: list[CallOut] | None = None


class ChoiceOut(BaseModel):
    """The one answer there is."""

    index: int = 0
    message: ReplyOut
    logprobs: None = None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]


class UsageOut(BaseModel):
    """The tokens it took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class CompletionOut(BaseModel):
    """A chat completion. With `stream`, it comes in chunks as server-sent events, and `[DONE]` is the last."""

    id: str = Field(examples=["chatcmpl-018f3c0de0a17b2c4d5e6f708192"])
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChoiceOut]
    usage: UsageOut | None = None
    system_fingerprint: str | None = None


class ModelOut(BaseModel):
    """A model that may be named."""

    id: str = Field(examples=["tellback"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "tellback"


class ModelListOut(BaseModel):
    """The models that may be named."""

    object: Literal["list"] = "list"
    data: list[ModelOut]


STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The completion; with `stream`, its chunks as server-sent events, and `[DONE]` at last.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer besides: for OpenAPI."""
    all_statuses = sorted({400, 401, 403, 413, 429, 503, *statuses})
    return {status: {"model": ErrorOut, "description": _DESCRIPTIONS[status]} for status in all_statuses}


_DESCRIPTIONS = {
    400: "The request cannot be used; `param` says which field.",
    401: "No key, or one that is not valid.",
    403: "The key is not for that user.",
    404: "No such model or conversation.",
    409: "Another turn of the conversation is running, or it is closed.",
    413: "The body, or a text in it, is too large.",
    429: "Too many requests; see Retry-After.",
    502: "The model's provider failed.",
    503: "The store or the provider is not available now.",
    504: "The model's provider gave no answer in time.",
}
