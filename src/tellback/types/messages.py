"""Messages, their parts and tool calls, and a model's replies with their deltas and usage.

All of them are frozen values that are compared by content.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import unquote_to_bytes

from tellback.types.jsontext import dump_json, parse_arguments

PartKind = Literal["text", "image", "audio", "file", "tool-result"]
Role = Literal["user", "assistant", "system", "tool"]

INSTRUCTIONS = "instructions"
"""The key in a part's `meta` that marks instructions of the application for one request. They end the newest user
message and are not part of the conversation, so the next request does not contain them."""


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One part of a message: text, an image, audio or a file.

    `data` is base64. A part that is on a server has a `url` instead. `meta` contains hints for one provider, such as
    `{"cache_control": {"type": "ephemeral"}}` (Anthropic) or `{"detail": "low"}` (OpenAI).

    >>> MessagePart(kind="text", text="hello").text
    'hello'
    """

    kind: PartKind | str
    text: str | None = None
    mime: str | None = None
    data: str | None = None
    url: str | None = None
    name: str | None = None
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call by a model.

    `invalid_input` is the raw text if the model wrote arguments that are not a JSON object; `input` is then empty, and
    the call gets an error result. `meta` is provider state that must be sent back with the call. Both are ignored in
    comparisons.

    >>> ToolCall(id="call_1", name="add", input={"x": 1, "y": 2}).name
    'add'
    """

    id: str
    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    invalid_input: str | None = field(default=None, compare=False)
    meta: Mapping[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call: `content` is the text for the model, `value` the function's return value.

    A tool may return one to report a failure without an exception, or with parts. `data` then sets `value`, and
    `content` as JSON; `error` sets `is_error`, and `content` too. Its id and name are those of the call.

    >>> ToolResult(id="call_1", content="3").is_error
    False
    >>> failed = ToolResult(error="No seats left")
    >>> failed.is_error, failed.content
    (True, 'No seats left')
    """

    id: str = ""
    content: str = ""
    is_error: bool = False
    name: str = ""
    parts: tuple[MessagePart, ...] | None = None
    value: Any = field(default=None, compare=False, repr=False)
    data: Any = field(default=None, compare=False, repr=False)
    error: str | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.data is not None and self.value is None:
            object.__setattr__(self, "value", self.data)
        if self.error:
            object.__setattr__(self, "is_error", True)
            object.__setattr__(self, "content", self.content or self.error)
        elif self.data is not None and not self.content:
            text = self.data if isinstance(self.data, str) else dump_json(self.data)
            object.__setattr__(self, "content", text)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, the same for every provider.

    `role` is "user", "assistant", "system" or "tool". When `parts` is set, `content` is the plain-text
    fallback. `name` and `is_error` are for tool results. `meta` is provider state (such as signed thinking
    blocks) that must be sent back unchanged; it is ignored in comparisons.

    >>> Message(role="user", content="Hi") == user_message("Hi")
    True
    """

    role: Role | str
    content: Any = ""
    parts: tuple[MessagePart, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    meta: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.tool_calls) is not tuple:
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        if self.parts is not None and type(self.parts) is not tuple:
            object.__setattr__(self, "parts", tuple(self.parts))


def text_part(text: str) -> MessagePart:
    """Build a text part.

    >>> text_part("hello").kind
    'text'
    """
    return MessagePart(kind="text", text=text)


def instructions_part(text: str) -> MessagePart:
    """Build a text part with instructions of the application that are valid for one request.

    >>> find_instructions([user_message(["Hello", instructions_part("Be brief.")])])
    'Be brief.'
    """
    return MessagePart(kind="text", text=text, meta={INSTRUCTIONS: True})


def find_instructions(messages: Sequence[Message]) -> str:
    """Return the instructions in a request's messages, or an empty string.

    >>> find_instructions([user_message("Hello")])
    ''
    """
    for message in reversed(messages):
        for part in message.parts or ():
            if is_instructions(part):
                return part.text or ""
    return ""


def remove_instructions(messages: Sequence[Message]) -> list[Message]:
    """Return the messages of the conversation, without instructions for this request.

    >>> remove_instructions([user_message(["Hello", instructions_part("Be brief.")])])[0].content
    'Hello'
    """
    return [
        user_message([part for part in message.parts if not is_instructions(part)])
        if message.parts and any(map(is_instructions, message.parts))
        else message
        for message in messages
    ]


def is_instructions(part: MessagePart) -> bool:
    """Whether a part contains instructions of the application.

    >>> is_instructions(text_part("Hello"))
    False
    """
    return part.meta is not None and INSTRUCTIONS in part.meta


class MediaFields(TypedDict, total=False):
    """The arguments of media parts: a `url`, or `data` (bytes or base64 text) with its `mime` type."""

    url: str | None
    data: bytes | str | None
    mime: str | None
    name: str | None
    meta: Mapping[str, Any] | None


def image_part(**media: Unpack[MediaFields]) -> MessagePart:
    """Build an image part from a `url`, or from `data` (bytes or base64 text) and `mime`.

    >>> image_part(data=b"...", mime="image/png").data
    'Li4u'
    """
    return _media_part("image", **media)


def audio_part(**media: Unpack[MediaFields]) -> MessagePart:
    """Build an audio part from a `url`, or from `data` and `mime`.

    >>> audio_part(url="https://example.com/a.mp3").kind
    'audio'
    """
    return _media_part("audio", **media)


def file_part(**media: Unpack[MediaFields]) -> MessagePart:
    """Build a file part from a `url`, or from `data` and `mime`.

    >>> file_part(data=b"%PDF-1.7", mime="application/pdf", name="bill.pdf").name
    'bill.pdf'
    """
    return _media_part("file", **media)


def _media_part(
    kind: str,
    *,
    url: str | None = None,
    data: bytes | str | None = None,
    mime: str | None = None,
    name: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> MessagePart:
    if (url is None) == (data is None):
        raise ValueError(f"{kind}_part needs exactly one of url= and data=.")
    if url is not None and url.startswith("data:"):
        url_mime, data = split_data_url(url)
        url, mime = None, mime or url_mime
    if data is not None and not mime:
        raise ValueError(f"{kind}_part(data=...) needs mime=, such as 'image/png'.")
    encoded = base64.b64encode(data).decode("ascii") if isinstance(data, bytes) else data
    return MessagePart(kind=kind, url=url, data=encoded, mime=mime, name=name, meta=meta)


def split_data_url(url: str) -> tuple[str | None, str]:
    """Split a `data:` URL into its media type and base64 data.

    >>> split_data_url("data:image/gif;base64,R0lG")
    ('image/gif', 'R0lG')
    """
    head, _, data = url.removeprefix("data:").partition(",")
    mime, *flags = head.split(";")
    if "base64" not in flags:
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    return mime or None, data


def as_message(message: Message | Mapping[str, Any]) -> Message:
    """Return a message: the message itself, or one built from an equivalent mapping.

    >>> as_message({"role": "user", "content": "Hi"}) == user_message("Hi")
    True
    """
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        raise TypeError(f"a message must be a Message or a mapping with 'role' and 'content', got {message!r:.80}")
    fields = dict(message)
    if "role" not in fields:
        raise TypeError(f"a message needs a 'role', such as 'user', got {message!r:.120}")
    unknown = [name for name in fields if name not in Message.__dataclass_fields__]
    if unknown:
        raise TypeError(
            f"a message has no field {', '.join(unknown)}; known: {', '.join(Message.__dataclass_fields__)}"
        )
    if fields.get("tool_calls"):
        fields["tool_calls"] = tuple(map(as_tool_call, fields["tool_calls"]))
    if isinstance(fields.get("content"), list) and not fields.get("parts"):
        fields["parts"] = fields["content"]
    if fields.get("parts"):
        fields["parts"] = tuple(map(_as_part, fields["parts"]))
        if not isinstance(fields.get("content"), str):
            fields["content"] = flatten_parts(fields["parts"])
    return Message(**fields)


def _as_part(part: Any) -> MessagePart:
    """Return a part: the part itself, or one built from a mapping of its fields or of OpenAI's API."""
    if isinstance(part, MessagePart):
        return part
    if isinstance(part, str):
        return text_part(part)
    match dict(part):
        case {"kind": _}:
            return MessagePart(**part)
        case {"type": "text", "text": str(text)}:
            return text_part(text)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return image_part(url=url)
    raise TypeError(f"not a message part: {part!r:.120}; a part has {', '.join(MessagePart.__dataclass_fields__)}")


def as_tool_call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    """Return a tool call: the call itself, or one built from an equivalent mapping.

    >>> as_tool_call({"id": "c1", "name": "add", "input": {"x": 1}}).name
    'add'
    """
    if isinstance(call, ToolCall):
        return call
    match dict(call):
        case {"id": id, "function": {"name": name, "arguments": str(arguments)}}:  # the format of OpenAI's API
            value, invalid_input = parse_arguments(arguments)
            return ToolCall(id, name, value, invalid_input)
        case {"id": _, "name": _}:
            return ToolCall(**call)
    raise TypeError(f"not a tool call: {call!r:.120}; a call has id, name and input")


def user_message(content: str | Sequence[MessagePart | str]) -> Message:
    """Build a user message from text or a list of parts.

    >>> user_message(["What is this?", image_part(url="https://example.com/cat.png")]).content
    'What is this?\\n\\n[image: https://example.com/cat.png]'
    """
    if isinstance(content, str):
        return Message("user", content)
    parts = tuple(text_part(part) if isinstance(part, str) else part for part in content)
    return Message("user", flatten_parts(parts), parts=parts)


def system_message(text: str) -> Message:
    """Build a system message: an instruction within the history.

    >>> system_message("Be brief.").role
    'system'
    """
    return Message("system", text)


def assistant_message(
    text: str | None = "",
    tool_calls: Sequence[ToolCall] | None = None,
    *,
    meta: Mapping[str, Any] | None = None,
) -> Message:
    """Build an assistant message with its tool calls.

    >>> assistant_message("Hello!").content
    'Hello!'
    """
    return Message("assistant", text or "", tool_calls=tuple(tool_calls or ()), meta=meta)


def tool_result_message(result: ToolResult) -> Message:
    """Build the message with the result of a tool call.

    >>> tool_result_message(ToolResult(id="call_1", content="3")).tool_call_id
    'call_1'
    """
    return Message(
        "tool",
        result.content,
        parts=result.parts,
        tool_call_id=result.id,
        name=result.name or None,
        is_error=result.is_error,
    )


def message_text(message: Message) -> str:
    """Return the text of a message, from its parts or its content.

    >>> message_text(user_message([text_part("a"), text_part("b")]))
    'a\\n\\nb'
    """
    if message.parts:
        return flatten_parts(message.parts)
    content = message.content
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    return json.dumps(content, ensure_ascii=False, default=str)


def flatten_parts(parts: Sequence[MessagePart]) -> str:
    """Join parts into one text: text parts separated by a blank line, other parts as placeholders in brackets.

    >>> flatten_parts([text_part("Look:"), image_part(data=b"x", mime="image/png", name="cat.png")])
    'Look:\\n\\n[image: cat.png]'
    """
    return "\n\n".join(rendered for rendered in map(render_part, parts) if rendered)


def render_part(part: MessagePart) -> str:
    """Render one part as text.

    >>> render_part(audio_part(data=b"x", mime="audio/mp3"))
    '[audio: audio/mp3]'
    """
    if part.kind == "text":
        return part.text or ""
    is_inline = part.url is not None and part.url.startswith("data:")
    label = part.name or (part.mime if is_inline else part.url or part.mime)
    placeholder = f"[{part.kind}: {label}]" if label else f"[{part.kind}]"
    return f"{placeholder} {part.text}" if part.text else placeholder


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """Tokens, cost and time of one call, or the sum of several.

    For every provider, `input_tokens` counts the whole prompt, including cached tokens, and `output_tokens` everything
    generated, including thinking. `cost_usd` is None if the price is unknown.

    >>> (ChatUsage(input_tokens=10, output_tokens=2) + ChatUsage(input_tokens=5, output_tokens=1)).input_tokens
    15
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: int | None = None
    provider: str | None = None
    model: str | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def __add__(self, other: ChatUsage) -> ChatUsage:
        return ChatUsage(
            input_tokens=_add_optional(self.input_tokens, other.input_tokens),
            output_tokens=_add_optional(self.output_tokens, other.output_tokens),
            total_tokens=_add_optional(self.total_tokens, other.total_tokens),
            cost_usd=_add_optional(self.cost_usd, other.cost_usd),
            latency_ms=_add_optional(self.latency_ms, other.latency_ms),
            provider=_same_or_none(self.provider, other.provider),
            model=_same_or_none(self.model, other.model),
            cached_tokens=_add_optional(self.cached_tokens, other.cached_tokens),
            cache_write_tokens=_add_optional(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens=_add_optional(self.reasoning_tokens, other.reasoning_tokens),
        )


def _same_or_none(a: str | None, b: str | None) -> str | None:
    if a is None or b is None:
        return a or b
    return a if a == b else None


def _add_optional(a: Any, b: Any) -> Any:
    if a is None:
        return b
    return a if b is None else a + b


@dataclass(frozen=True, slots=True)
class ChatReply:
    """A complete reply of a model.

    `stop_reason` is "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn", or another value of
    the provider. `raw` is the provider's response object. `meta` is provider state that must be sent back with the
    message.

    >>> ChatReply(text="Hello").message.role
    'assistant'
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "end_turn"
    usage: ChatUsage | None = None
    raw: Any = field(default=None, compare=False, repr=False)
    thinking: str = ""
    meta: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.tool_calls) is not tuple:
            object.__setattr__(self, "tool_calls", tuple(self.tool_calls or ()))
        if self.text is None:
            object.__setattr__(self, "text", "")

    @property
    def message(self) -> Message:
        """The reply as a message for the history."""
        return Message("assistant", self.text, tool_calls=self.tool_calls, meta=self.meta)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the reply's text.

    >>> TextDelta("Hel").text + TextDelta("lo").text
    'Hello'
    """

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking before it answers.

    >>> ThinkingDelta("The user wants ...").text
    'The user wants ...'
    """

    text: str


@dataclass(frozen=True, slots=True)
class ToolUseStart:
    """The start of a tool call; its input follows as `ToolUseInputDelta`s.

    >>> ToolUseStart(id="call_1", name="add").name
    'add'
    """

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolUseInputDelta:
    """A piece of a tool call's input, as JSON text.

    >>> ToolUseInputDelta(id="call_1", partial_input_json='{"x":').partial_input_json
    '{"x":'
    """

    id: str
    partial_input_json: str


@dataclass(frozen=True, slots=True)
class ToolUseEnd:
    """The end of a tool call's input.

    >>> ToolUseEnd(id="call_1").id
    'call_1'
    """

    id: str


@dataclass(frozen=True, slots=True)
class StreamStop:
    """The last delta of a model call. `reply` is the complete reply.

    >>> StreamStop(reason="end_turn").reason
    'end_turn'
    """

    reason: str
    usage: ChatUsage | None = None
    reply: ChatReply | None = field(default=None, compare=False, repr=False)


ReplyDelta = TextDelta | ThinkingDelta | ToolUseStart | ToolUseInputDelta | ToolUseEnd | StreamStop
"""One delta of a streamed reply. New kinds may be added: pass unknown ones through."""


def reply_deltas(reply: ChatReply, chunks: Iterable[str] | None = None) -> Iterable[ReplyDelta]:
    """Split a complete reply into the deltas of an equivalent stream.

    >>> [type(d).__name__ for d in reply_deltas(ChatReply(text="Hi"))]
    ['TextDelta', 'StreamStop']
    """
    if reply.thinking:
        yield ThinkingDelta(reply.thinking)
    for chunk in (reply.text,) if chunks is None else chunks:
        if chunk:
            yield TextDelta(chunk)
    for call in reply.tool_calls:
        yield ToolUseStart(call.id, call.name)
        yield ToolUseInputDelta(call.id, call.invalid_input or dump_json(call.input))
        yield ToolUseEnd(call.id)
    yield StreamStop(reply.stop_reason, reply.usage, reply)
