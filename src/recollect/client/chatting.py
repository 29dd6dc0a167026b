"""`user.chat` of a server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Unpack

from recollect.chat import Model
from recollect.client.conversations import RemoteConversations
from recollect.client.handle import RemoteHandle, header_text
from recollect.client.tools import LocalTools
from recollect.client.transport import path_of
from recollect.client.turns import model_name, options_json, refuse_local
from recollect.client.values import given, jsonable, named, seconds_json
from recollect.errors import InvalidArgumentError, RemoteError
from recollect.turn.attachments import attachments_of
from recollect.turn.chatting import ChatArguments
from recollect.turn.values import TurnResult
from recollect.types import ReplyDelta, ToolCall
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
        said = _Said(text, namespace, space, model, more)
        await self._resume(said, namespace, more.get("session_id"))
        result: TurnResult | None = None
        while (body := said.body) is not None:
            told = await self._post(PATH, body, key=said.key, native=True)
            result = _joined(result, TurnResultWire.model_validate(told).value())
            await said.go_on(result.pending, result.conversation_id)
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
        said = _Said(text, namespace, space, model, more)
        await self._resume(said, namespace, more.get("session_id"))
        result: TurnResult | None = None
        while (body := said.body) is not None:
            headers = None if said.key is None else {"Idempotency-Key": header_text("idempotency_key", said.key)}
            frames = self._transport.frames(
                "POST", PATH, user=self._user, body={**body, "stream": True}, headers=headers
            )
            ended: TurnResult | None = None
            async with aclosing(frames):
                async for frame in frames:
                    data = json.loads(frame.data)
                    if frame.event == "result":
                        ended = TurnResultWire.model_validate(data).value()
                    elif (delta := delta_value(frame.event, data)) is not None:
                        yield delta
            if ended is None:
                raise RemoteError("The server's stream ended without the answer's result.")
            result = _joined(result, ended)
            await said.go_on(result.pending, result.conversation_id)
        assert result is not None
        yield result

    async def _resume(self, said: _Said, namespace: str, session_id: str | None) -> None:
        if not said.resumes:
            return
        talks = RemoteConversations(self._transport, self._user)
        id = said.conversation_id
        if id is None:
            found = await talks.find(namespace, session_id)
            if found is None:
                raise InvalidArgumentError("nothing waits for a decision in that chat: pass its conversation_id.")
            id = found.id
        said.be_in(id)
        await said.resume(await talks.pending(id))


class _Said:
    """What is sent next: the message, then what tools gave, until nothing waits for them."""

    def __init__(
        self, text: str | None, namespace: str, space: str | None, model: str | Model | None, more: ChatArguments
    ) -> None:
        unknown = more.keys() - ChatArguments.__annotations__.keys()
        if unknown:
            raise InvalidArgumentError(f"chat takes no {', '.join(sorted(unknown))}.")
        if more.get("skills") is not None:
            raise InvalidArgumentError("skills cannot be sent to a server: give them to an agent that it serves.")
        refuse_local(more)
        self.key = more.get("idempotency_key")
        self._local = LocalTools(more.get("tools"), None, more.get("approvals"))
        self._rest = given(
            namespace=namespace,
            model=model_name(model),
            system=more.get("system"),
            tools=self._local.described(),
            options=options_json(more.get("options")),
            recall=named(more.get("recall")),
            session_id=more.get("session_id"),
            conversation_id=more.get("conversation_id"),
            close_after=seconds_json("close_after", more.get("close_after")),
            memory_wait=more.get("memory_wait"),
            trace_id=more.get("trace_id"),
            wait=more.get("wait"),
        )
        self._rest["space"] = space
        first: dict[str, Any] = given(text=text, metadata=more.get("metadata"))
        if more.get("attachments") is not None:
            first["attachments"] = [_attachment(each) for each in attachments_of(more["attachments"])]
        self.resumes = more.get("approvals") is not None
        self.conversation_id = more.get("conversation_id")
        self.body: dict[str, Any] | None = {**self._rest, **first}

    def be_in(self, conversation_id: str) -> None:
        """Go on with that conversation."""
        assert self.body is not None
        self.body["conversationId"] = conversation_id

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Begin with what was decided on calls that wait."""
        results, rest = await self._local.results(pending), self._local.undecidable()
        assert self.body is not None
        if results:
            self.body["toolResults"] = results
        if rest or not results:
            self.body["approvals"] = rest

    async def go_on(self, pending: tuple[ToolCall, ...], conversation_id: str | None) -> None:
        """Run what waits for its tools, and make ready what came of it."""
        results = await self._local.results(pending)
        where = {} if conversation_id is None else {"conversationId": conversation_id}
        self.body = {**self._rest, **where, "toolResults": results} if results else None
        self.key = None


def _attachment(attachment: Any) -> dict[str, Any]:
    import base64

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
    done = {call.id: call for call in (*before.tool_invocations, *after.tool_invocations)}
    return replace(
        after,
        usage=before.usage + after.usage,
        context=after.context or before.context,
        tool_invocations=tuple(done.values()),
        problems=(*before.problems, *after.problems),
        messages=(*before.messages, *(message for message in after.messages if message.id not in known)),
        model_calls=before.model_calls + after.model_calls - 1,  # the call that asked for the tools is in both
    )
