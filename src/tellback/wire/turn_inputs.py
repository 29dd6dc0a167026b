"""What one asks of a turn, on the wire: only what is safe in the hands of callers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from tellback.wire.base import InputModel
from tellback.wire.blocks import ContentIn, validate_url
from tellback.wire.bounds import CountIn, IdIn, NameIn
from tellback.wire.context import RecallIn

MAX_TOOLS = 128
MAX_CYCLES = 50
MAX_TAIL = 500
MAX_TURN_WAIT_SECONDS = 300.0
MAX_MEMORY_WAIT_SECONDS = 60.0
HOUR_SECONDS = 3_600.0
YEAR_SECONDS = 365 * 24 * 3_600.0

KeyIn = Annotated[str, Field(min_length=1, max_length=500)]
CallIdIn = Annotated[str, Field(min_length=1, max_length=500, examples=["tu_1"])]


class ToolIn(InputModel):
    """A tool that you run yourself: calls of it end the turn, and go on with `toolResults`."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["lookup"])
    description: str = Field(default="", max_length=20_000, examples=["Look up an order."])
    parameters: dict[str, Any] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON schema of its arguments.",
        examples=[{"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}],
    )


class ToolResultIn(InputModel):
    """What your tool gave for a call in `pending`."""

    tool_use_id: CallIdIn
    content: ContentIn = Field(examples=["shipped"])
    is_error: bool = False


class ApprovalIn(InputModel):
    """A decision on a call in `pending`."""

    approved: bool
    reason: str = Field(default="", max_length=10_000)
    input: dict[str, Any] | None = None


class OptionsIn(InputModel):
    """How the model is to answer."""

    system_prompt: str | None = Field(default=None, examples=["You are a support assistant. Be brief."])
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_context_tokens: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    tool_choice: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, examples=["auto"], description="auto, none, required or a tool's name"
    )

    def arguments(self) -> dict[str, Any]:
        """The fields of `ChatOptions`."""
        arguments = {name: value for name, value in super().arguments().items() if value is not None}
        config = {name: arguments.pop(name) for name in ("temperature", "top_p") if name in arguments}
        return {**arguments, "config": config} if config else arguments


class AttachmentIn(InputModel):
    """A file that goes along with a message: its text, or its bytes as base64 or behind a url."""

    name: str = Field(min_length=1, max_length=500, examples=["receipt.png"])
    mime: str | None = Field(default=None, max_length=200, examples=["image/png"])
    text: str | None = None
    data: str | None = Field(default=None, description="base64")
    url: Annotated[str, AfterValidator(validate_url), Field(max_length=4_000)] | None = None
    size: CountIn | None = None


class BaseTurnInput(InputModel):
    """What `run-turn` and `chat` have in common."""

    model: NameIn | None = Field(default=None, description="The server's own, or another that it allows.")
    tools: list[ToolIn] | None = Field(default=None, max_length=MAX_TOOLS)
    tool_results: list[ToolResultIn] | None = Field(
        default=None, min_length=1, max_length=MAX_TOOLS, description="In the place of a text, with the same `tools`."
    )
    approvals: dict[CallIdIn, bool | ApprovalIn] | None = Field(
        default=None, max_length=MAX_TOOLS, description="In the place of a text: calls that are not to be made."
    )
    options: OptionsIn | None = None
    max_cycles: Annotated[int, Field(ge=1, le=MAX_CYCLES)] | None = Field(
        default=None, examples=[10], description="Calls of the model in this turn at most."
    )
    recall: RecallIn | None = None
    metadata: dict[str, Any] | None = None
    trace_id: KeyIn | None = Field(default=None, description="By default the one of the header traceparent.")
    idempotency_key: KeyIn | None = Field(default=None, description="Or the header Idempotency-Key.")
    wait: Annotated[float, Field(ge=0, le=MAX_TURN_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds to wait for another turn of the conversation."
    )
    stream: bool = Field(default=False, description="Or the header Accept: text/event-stream.")

    def arguments(self) -> dict[str, Any]:
        """What was given and is not null, but for what the server makes something of."""
        arguments = {name: value for name, value in super().arguments().items() if value is not None}
        return {name: value for name, value in arguments.items() if name not in SERVER_FIELDS}

    @model_validator(mode="after")
    def _validate_unique_tools(self) -> BaseTurnInput:
        names = [tool.name for tool in self.tools or ()]
        if len(set(names)) != len(names):
            raise ValueError("two tools have the same name")
        return self


NULLABLE_FIELDS = frozenset(("space", "close_after"))
"""Of a chat: null says something, which leaving them out does not."""
SERVER_FIELDS = frozenset(("model", "tools", "tool_results", "approvals", "stream", "provider"))


class RunTurn(BaseTurnInput):
    """A turn of a conversation: `userText` or `content`, or what goes on with one."""

    provider: NameIn | None = Field(default=None, examples=["anthropic"], description="Who serves the model.")
    user_text: str | None = Field(default=None, examples=["Where is my refund?"])
    content: ContentIn | None = None
    tail_limit: Annotated[int, Field(ge=1, le=MAX_TAIL)] | None = Field(default=None, examples=[30])
    memory_space_id: IdIn | None = Field(default=None, description="What to remember.")


class ChatInput(BaseTurnInput):
    """A message, to be answered by a model that remembers."""

    text: str | None = Field(default=None, examples=["Where should we eat tonight?"])
    namespace: str = Field(default="chat", min_length=1, max_length=200)
    space: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default="default", description="The memory space by name; null remembers nothing."
    )
    system: str | None = Field(default=None, examples=["You are a travel assistant."])
    session_id: KeyIn | None = Field(default=None, description="Keeps chats of one namespace apart.")
    conversation_id: IdIn | None = Field(default=None, description="To go on with a certain one.")
    close_after: Annotated[float, Field(ge=0, le=YEAR_SECONDS)] | None = Field(
        default=HOUR_SECONDS,
        description="Seconds without a message, after which a conversation that is opened closes; null: it never does.",
    )
    memory_wait: Annotated[float, Field(ge=0, le=MAX_MEMORY_WAIT_SECONDS)] | None = Field(
        default=None, description="Seconds."
    )
    attachments: list[AttachmentIn] | None = Field(default=None, max_length=50)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `user.chat`; `space` and `close_after` may be null. `max_cycles` is for its options."""
        arguments = super().arguments()
        arguments.pop("max_cycles", None)
        return {**arguments, **{name: getattr(self, name) for name in NULLABLE_FIELDS & self.model_fields_set}}
