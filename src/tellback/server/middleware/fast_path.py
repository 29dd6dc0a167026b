"""Fast path for the most frequent request: appending a user's message.

The ordinary route takes twice as long, mostly for routing and parsing. Unusual requests are forwarded to it with the
body already read, so there is a single set of rules and responses.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tellback.errors import TellbackError
from tellback.server.auth import Caller
from tellback.server.problems import error_response
from tellback.wire.base import InputModel
from tellback.wire.operations import body_model
from tellback.wire.values import encode_message

PATH_PREFIX, PATH_SUFFIX = "/ai-conversations/", "/user-messages"
MAX_BODY_BYTES = 64 * 1024
"""Larger bodies take the ordinary route; they are rare."""

_AppendUserMessage = body_model("append_user_message")
_JSON_HEADERS = [(b"content-type", b"application/json")]


class FastPathMiddleware:
    """Handles `POST /ai-conversations/{id}/user-messages` with a plain text, and forwards all other requests."""

    def __init__(self, app: ASGIApp, route: Any) -> None:
        self._app = app
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        id = _conversation_id(scope)
        if id is None:
            await self._app(scope, receive, send)
            return
        parts = [await receive()]
        while parts[-1].get("more_body") and sum(len(part["body"]) for part in parts) <= MAX_BODY_BYTES:
            parts.append(await receive())
        message = _parse_text_message(scope, parts)
        if message is None:
            await self._app(scope, _ReplayedBody(parts, receive).receive, send)
            return
        scope["route"] = self._route  # for logs and metrics
        caller: Caller = scope["state"]["caller"]
        try:
            stored = await caller.user.conversations.append_user_message(id, **message.arguments())
        except TellbackError as error:
            await error_response(error, scope["state"].get("request_id"))(scope, receive, send)
            return
        body = encode_message(stored)
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 201, "headers": [*_JSON_HEADERS, length]})
        await send({"type": "http.response.body", "body": body})


class _ReplayedBody:
    """Replays the body parts that were already read."""

    def __init__(self, parts: list[Message], receive: Receive) -> None:
        self._parts = iter(parts)
        self._receive = receive

    async def receive(self) -> Message:
        """Return the replayed parts first, then new ones."""
        return next(self._parts, None) or await self._receive()


def _conversation_id(scope: Scope) -> str | None:
    """Return the conversation id, if this is a plain request for the fast path."""
    if scope["type"] != "http" or scope["method"] != "POST" or scope.get("root_path") or scope["query_string"]:
        return None
    path: str = scope["path"]
    if not path.startswith(PATH_PREFIX) or not path.endswith(PATH_SUFFIX):
        return None
    id = path[len(PATH_PREFIX) : -len(PATH_SUFFIX)]
    return id if id.isascii() and id.replace("_", "").isalnum() and len(id) < 100 else None


def _parse_text_message(scope: Scope, parts: list[Message]) -> InputModel | None:
    """Parse the message, if it is a complete JSON body with a text, and the headers have no idempotency key."""
    if parts[-1]["type"] != "http.request" or parts[-1].get("more_body"):
        return None
    body = parts[0]["body"] if len(parts) == 1 else b"".join(part["body"] for part in parts)
    is_json = False
    for name, value in scope["headers"]:
        if name == b"content-type":
            is_json = value == b"application/json"
        elif name == b"idempotency-key":
            return None
    if not is_json:
        return None
    try:
        message: Any = _AppendUserMessage.model_validate_json(body)
    except ValidationError:
        return None
    limit = scope["state"]["caller"].server.settings.text_length
    return message if isinstance(message.content, str) and len(body) <= limit else None
