"""A client's messages in our values: what is the system prompt, what is history, and what of it is new."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.server.openai.body import ChatMessage
from tellback.server.openai.errors import FieldRefusedError, unsupported
from tellback.types import (
    Message,
    MessagePart,
    ToolCall,
    as_tool_call,
    assistant_message,
    audio_part,
    file_part,
    image_part,
    message_text,
    text_part,
    user_message,
)
from tellback.types.messages import split_data_url
from tellback.wire.blocks import is_address

_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}


@dataclass(frozen=True, slots=True)
class Chat:
    """What a client sent: `new` is what came after the assistant's last message, but for instructions."""

    system: str | None
    messages: tuple[Message, ...]
    new: tuple[Message, ...]
    speaker: str | None = None

    @property
    def results(self) -> tuple[Message, ...]:
        """The results of tools among what is new."""
        return tuple(message for message in self.new if message.role == "tool")

    @property
    def said(self) -> tuple[Message, ...]:
        """What the user says that is new."""
        return tuple(message for message in self.new if message.role == "user")

    @property
    def has_past(self) -> bool:
        """Whether the client keeps its history: some of it is an assistant's."""
        return any(message.role == "assistant" for message in self.messages)

    @property
    def topic(self) -> str:
        """The last thing the user said, to recall by."""
        return next((words_of(each) for each in reversed(self.messages) if each.role == "user"), "")


def read_chat(given: Sequence[ChatMessage]) -> Chat:
    """The messages, read; whatever is wrong with them is named."""
    read = [_message(message, f"messages.{number}") for number, message in enumerate(given)]
    opening = next((number for number, each in enumerate(read) if each.role != "system"), len(read))
    rest = _named_results(read[opening:])
    if not rest:
        raise FieldRefusedError("messages", "There is nothing to answer: `messages` holds instructions only.")
    last = max((number for number, each in enumerate(rest) if each.role == "assistant"), default=-1)
    new = tuple(each for each in rest[last + 1 :] if each.role != "system")
    if last >= 0 and new:
        _check_answered(rest[last], new)
    return Chat(
        system="\n\n".join(filter(None, map(message_text, read[:opening]))) or None,
        messages=tuple(rest),
        new=new,
        speaker=next((each.name for each in reversed(given) if each.role == "user"), None),
    )


def words_of(message: Message) -> str:
    """The words of a user's message, without what is attached."""
    if not message.parts:
        return message_text(message)
    return "\n\n".join(part.text for part in message.parts if part.kind == "text" and part.text)


def attached_to(message: Message) -> tuple[MessagePart, ...]:
    """The pictures, sounds and files of a message."""
    return tuple(part for part in message.parts or () if part.kind != "text")


def _message(given: ChatMessage, at: str) -> Message:
    match given.role:
        case "system" | "developer":
            return Message("system", _text(given.content, f"{at}.content"))
        case "user":
            return _user(given, f"{at}.content")
        case "assistant":
            return _assistant(given, at)
        case "tool":
            if not given.tool_call_id:
                raise FieldRefusedError(f"{at}.tool_call_id", "A tool's message says which call it answers.")
            return Message("tool", _text(given.content, f"{at}.content"), tool_call_id=given.tool_call_id)
        case "function":
            raise unsupported(f"{at}.role", "functions are the past; use `tools`, and messages of the role `tool`.")
    known = "system, developer, user, assistant or tool"
    raise FieldRefusedError(f"{at}.role", f"A message's role is {known}, not {given.role!r}.")


def _user(given: ChatMessage, at: str) -> Message:
    if given.content is None or isinstance(given.content, str):
        return user_message(given.content or "")
    if not given.content:
        raise FieldRefusedError(at, "A message's content has at least one part.")
    parts = [_part(part, f"{at}.{number}") for number, part in enumerate(given.content)]
    if all(part.kind == "text" for part in parts):
        return user_message("\n\n".join(part.text or "" for part in parts))
    return user_message(parts)


def _assistant(given: ChatMessage, at: str) -> Message:
    text = _text(given.content, f"{at}.content") or given.refusal or ""
    calls = [_call(call, f"{at}.tool_calls.{number}") for number, call in enumerate(given.tool_calls or ())]
    return assistant_message(text, calls)


def _call(given: Mapping[str, Any], at: str) -> ToolCall:
    match given:
        case {"id": str(id), "function": {"name": str(name), "arguments": str(arguments)}} if id and name:
            return as_tool_call({"id": id, "function": {"name": name, "arguments": arguments}})
    raise FieldRefusedError(at, "A tool call has an id, and a function with a name and its arguments as JSON text.")


def _text(content: str | list[dict[str, Any]] | None, at: str) -> str:
    """The words of a message that holds nothing else."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for number, part in enumerate(content):
        match part:
            case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case _:
                raise FieldRefusedError(f"{at}.{number}", "Only a user's message may hold more than text.")
    return "\n\n".join(texts)


def _part(given: Mapping[str, Any], at: str) -> MessagePart:
    match given:
        case {"type": "text", "text": str(text)}:
            return text_part(text)
        case {"type": "image_url", "image_url": {"url": str(url), **more}}:
            detail = more.get("detail")
            meta = {"detail": detail} if isinstance(detail, str) and len(detail) < 20 else None
            return image_part(url=_address(url, at), mime=_mime(url, "image/png"), meta=meta)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(format)}} if len(format) < 50:
            return audio_part(data=_base64(data, at), mime=_AUDIO.get(format, f"audio/{format}"))
        case {"type": "file", "file": {"file_data": str(data), **more}}:
            return _file(data, more.get("filename"), at)
        case {"type": "file"}:
            raise unsupported(at, "no files are uploaded here; send the file itself, as `file_data`.")
    raise FieldRefusedError(at, "A part is text, image_url, input_audio or file, with the field of that name.")


def _file(data: str, name: Any, at: str) -> MessagePart:
    filename = name if isinstance(name, str) and len(name) <= 500 else None
    if data.startswith("data:"):
        return file_part(url=_address(data, at), mime=_mime(data, "application/octet-stream"), name=filename)
    return file_part(data=_base64(data, at), mime="application/pdf", name=filename)


def _address(url: str, at: str) -> str:
    """An address of the web, or the thing itself: nothing of the server's own machine."""
    if url.startswith("data:"):
        _base64(split_data_url(url)[1], at)
    elif not is_address(url):
        raise FieldRefusedError(at, "A url begins with https:// or http://, or it is a data: URL.")
    return url


def _mime(url: str, otherwise: str) -> str | None:
    return split_data_url(url)[0] or otherwise if url.startswith("data:") else None


def _base64(data: str, at: str) -> str:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FieldRefusedError(at, f"The data is not base64: {error}.") from None
    return data


def _named_results(messages: Sequence[Message]) -> list[Message]:
    """Results with the names of the tools that gave them, which some providers want."""
    names: dict[str | None, str] = {}
    found = []
    for message in messages:
        names.update((call.id, call.name) for call in message.tool_calls)
        is_result = message.role == "tool"
        found.append(replace(message, name=names.get(message.tool_call_id)) if is_result else message)
    return found


def _check_answered(asked: Message, new: Sequence[Message]) -> None:
    answered = {message.tool_call_id for message in new}
    missing = [call.id for call in asked.tool_calls if call.id not in answered]
    if missing:
        raise FieldRefusedError(
            "messages", f"Each tool call is followed by a message of the role tool with its result: {missing} are not."
        )
