"""Pydantic models of `/v1`: the request of a chat completion, and the responses for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tellback.server.openai.errors import ErrorOut

MAX_MESSAGES = 2_000
MAX_PARTS = 1_000
MAX_TOOLS = 512

Id = Annotated[str, Field(max_length=500)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Count = Annotated[int, Field(ge=1, le=10_000_000)]


class LenientModel(BaseModel):
    """Part of a request. What it does not know is left out: clients send more than is meant for us."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class ChatMessage(LenientModel):
    """A message of the client's history."""

    role: str = Field(max_length=50, examples=["user"])
    content: str | Annotated[list[dict[str, Any]], Field(max_length=MAX_PARTS)] | None = Field(
        default=None, examples=["Where should we eat tonight?"]
    )
    name: Id | None = None
    refusal: str | None = None
    tool_calls: list[dict[str, Any]] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_call_id: Id | None = None


class StreamOptions(LenientModel):
    """How to stream."""

    include_usage: bool | None = Field(default=None, description="A last chunk says how many tokens it took.")


class CompletionRequest(LenientModel):
    """A chat to go on with. Fields that are not here are left out of account."""

    model: str = Field(min_length=1, max_length=200, examples=["tellback"])
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: Id | None = Field(default=None, description="Whose memory it is, where the key is for any user of its app.")
    metadata: dict[Id, Id] | None = Field(default=None, max_length=16, description="Kept with the message.")
    tools: list[dict[str, Any]] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Fraction | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stop: Id | Annotated[list[Id], Field(max_length=16)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[Id, float] | None = Field(default=None, max_length=1_000)
    reasoning_effort: Annotated[str, Field(max_length=50)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    modalities: list[Id] | None = Field(default=None, max_length=16)
    audio: dict[str, Any] | None = None
    functions: list[Any] | None = Field(default=None, max_length=MAX_TOOLS)
    function_call: Any = None
    web_search_options: dict[str, Any] | None = None


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
