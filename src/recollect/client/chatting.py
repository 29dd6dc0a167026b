"""`user.chat` of a server."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from recollect.chat import Model
from recollect.client.conversations import RemoteConversations
from recollect.client.handle import RemoteHandle
from recollect.client.legs import DEFAULT_CYCLES, Legs, cycles_of, joined_calls
from recollect.client.tools import LocalTools
from recollect.client.transport import path_of
from recollect.client.turns import model_name, options_json, refuse_local
from recollect.client.values import given, jsonable, metadata_json, named, seconds_json
from recollect.errors import InvalidArgumentError
from recollect.turn.attachments import attachments_of
from recollect.turn.chatting import ChatArguments
from recollect.turn.values import TurnResult
from recollect.types import ReplyDelta
from recollect.wire.turns import TurnResultWire, delta_value

PATH = path_of("ai-conversations", "chat")


class RemoteChat(RemoteHandle):
    """What a user says, and what a server answers."""

    async def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Say something, and be answered by a model that remembers: `reply.text`, `reply.atoms_used`.

        The arguments are those of `rc.user(...).chat`; `tools` are called here.
        """
        legs = await self._legs(text, namespace, space, model, more)
        result: TurnResult | None = None
        while (body := legs.body) is not None:
            told = await self._post(PATH, body, key=legs.key, native=legs.is_first)
            result = await legs.go_on(_joined(result, TurnResultWire.model_validate(told).value()))
        assert result is not None
        return result

    async def chat_stream(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> AsyncGenerator[ReplyDelta | TurnResult, None]:
        """`chat` as an iterator over deltas, whose last item is the `TurnResult`. Closing it cancels the turn."""
        legs = await self._legs(text, namespace, space, model, more)
        result: TurnResult | None = None
        while (body := legs.body) is not None:
            ended: TurnResult | None = None
            async with aclosing(self._streamed(PATH, body, legs.key)) as found:
                async for event, data in found:
                    if event == "result":
                        ended = TurnResultWire.model_validate(data).value()
                    elif (delta := delta_value(event, data)) is not None:
                        yield delta
            assert ended is not None
            result = await legs.go_on(_joined(result, ended))
        assert result is not None
        yield result

    async def _legs(
        self, text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
    ) -> Legs:
        legs = _legs_of(text, namespace, space, model, more)
        if more.get("approvals") is None:
            return legs
        talks, id = RemoteConversations(self._transport, self._user), more.get("conversation_id")
        if id is None:
            found = await talks.find(namespace, more.get("session_id"))
            if found is None:
                raise InvalidArgumentError("nothing waits for a decision in that chat: pass its conversation_id.")
            id = found.id
        assert legs.body is not None
        legs.body["conversationId"] = id
        await legs.resume(await talks.pending(id))
        return legs


def _legs_of(
    text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
) -> Legs:
    unknown = more.keys() - ChatArguments.__annotations__.keys()
    if unknown:
        raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
    if more.get("skills") is not None:
        raise InvalidArgumentError("skills cannot be sent to a server: give them to an agent that it serves.")
    refuse_local(more)
    local = LocalTools(more.get("tools"), None, more.get("approvals"))
    cycles = cycles_of(None, more.get("options"))
    rest = given(
        namespace=namespace,
        model=model_name(model),
        system=more.get("system"),
        tools=local.described(),
        options=options_json(more.get("options")),
        max_cycles=None if cycles == DEFAULT_CYCLES else cycles,
        recall=named(more.get("recall")),
        session_id=more.get("session_id"),
        conversation_id=more.get("conversation_id"),
        memory_wait=more.get("memory_wait"),
        trace_id=more.get("trace_id"),
        wait=more.get("wait"),
    )
    rest["space"] = space  # null remembers nothing, and below it never closes: that is not what leaving them out is
    if "close_after" in more:
        rest["closeAfter"] = seconds_json("close_after", more["close_after"])
    first: dict[str, Any] = given(text=text, metadata=metadata_json(more.get("metadata")))
    if more.get("attachments") is not None:
        first["attachments"] = [_attachment(each) for each in attachments_of(more["attachments"])]
    return Legs(local, rest, first, key=more.get("idempotency_key"), cycles=cycles)


def _attachment(attachment: Any) -> dict[str, Any]:
    data = attachment.data
    found = given(
        name=attachment.name, mime=attachment.mime, text=attachment.text, url=attachment.url, size=attachment.size
    )
    if data is not None:
        found["data"] = base64.b64encode(data).decode("ascii")
    return {name: jsonable(value) for name, value in found.items()}


def _joined(before: TurnResult | None, after: TurnResult) -> TurnResult:
    """One answer of its parts."""
    if before is None:
        return after
    known = {message.id for message in before.messages}
    new = tuple(message for message in after.messages if message.id not in known)
    usage = before.usage + after.usage
    return replace(after, usage=usage, messages=(*before.messages, *new), **joined_calls(before, after))
