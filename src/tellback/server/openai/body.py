"""What `/v1/chat/completions` takes, as OpenAI's clients send it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

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
