"""Chat messages on the wire, as a model is sent them; the state that a provider wants back is not on it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from tellback.types.messages import Message, MessagePart, ToolCall, message_text
from tellback.wire.base import WireModel


def _to_text(content: Any) -> str:
    return content if isinstance(content, str) else message_text(Message("", content))


class PartOut(WireModel):
    """A piece of a message that is more than text."""

    kind_: str = Field(examples=["image"], description="text, image, audio, file or tool-result")
    text: str | None = None
    mime: str | None = None
    data: str | None = Field(default=None, description="base64, where there is no url")
    url: str | None = None
    name: str | None = None
    meta: dict[str, Any] | None = Field(default=None, description="Hints for one provider.")

    def value(self) -> MessagePart:
        """The part."""
        return MessagePart(self.kind_, self.text, self.mime, self.data, self.url, self.name, self.meta)


class ToolCallOut(WireModel):
    """A model's wish to call a tool."""

    value_type: ClassVar[type[Any] | None] = ToolCall

    id: str = Field(examples=["tu_1"])
    name: str = Field(examples=["lookup"])
    input: dict[str, Any] = Field(default_factory=dict, examples=[{"order": 7}])
    invalid_input: str | None = Field(default=None, description="What the model wrote, if it is no JSON object.")


class MessageOut(WireModel):
    """A chat message. With `parts`, `content` is what they come to in plain text."""

    value_type: ClassVar[type[Any] | None] = Message

    role: str = Field(examples=["user"])
    content: Annotated[str, BeforeValidator(_to_text)] = ""
    parts: list[PartOut] | None = None
    tool_calls: list[ToolCallOut] = Field(default_factory=list)
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
