"""`/ai-conversations`, besides talking: finding the open one, importing, closing what was left."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from tellback.errors import NotFoundError
from tellback.server.answers import json_response, problem_responses
from tellback.server.callers import UserDep
from tellback.server.external_tools import validate_appended
from tellback.server.route import StrictRoute
from tellback.server.routes.conversations import ConversationIdPath
from tellback.wire.base import Page
from tellback.wire.conversation_tasks import CloseStale, FindOrCreateConversation, ImportMessages
from tellback.wire.conversations import ConversationWire, MessageWire
from tellback.wire.messages import ToolCallOut

fixed_path_router = APIRouter(prefix="/ai-conversations", tags=["conversations"], route_class=StrictRoute)


@fixed_path_router.post("/find-or-create", response_model=ConversationWire, responses=problem_responses())
async def find_or_create_conversation(user: UserDep, body: FindOrCreateConversation) -> Response:
    """The newest open conversation of a namespace and session, or a new one. Of many who ask at once, one opens it."""
    return json_response(ConversationWire.of(await user.conversations.find_or_create(**body.arguments())))


@fixed_path_router.get("/open", response_model=ConversationWire, responses=problem_responses(404))
async def find_conversation(
    user: UserDep,
    namespace: Annotated[str, Query(max_length=200)],
    session_id: Annotated[str | None, Query(alias="sessionId", max_length=500)] = None,
) -> Response:
    """The newest open conversation of a namespace and session."""
    found = await user.conversations.find(namespace, session_id)
    if found is None:
        raise NotFoundError("open conversation", namespace if session_id is None else session_id)
    return json_response(ConversationWire.of(found))


@fixed_path_router.post("/close-stale", response_model=Page[ConversationWire], responses=problem_responses())
async def close_stale_conversations(user: UserDep, body: CloseStale) -> Response:
    """Close the user's open conversations in which nothing happened for that long. Gives those that were closed."""
    closed = await user.conversations.close_stale(body.older_than)
    return json_response(Page[Any](items=[ConversationWire.of(each) for each in closed]))


@fixed_path_router.get("/messages/{message_id}", response_model=MessageWire, responses=problem_responses(404))
async def get_message(user: UserDep, message_id: Annotated[str, Path(max_length=200)]) -> Response:
    """One message by its id: what a citation points to."""
    found = await user.conversations.message(message_id)
    if found is None:
        raise NotFoundError("message", message_id)
    return json_response(MessageWire.of(found))


@fixed_path_router.post(
    "/{id}/messages", status_code=201, response_model=Page[MessageWire], responses=problem_responses(404, 409)
)
async def append_messages(user: UserDep, id: ConversationIdPath, body: ImportMessages) -> Response:
    """Append many messages in one transaction, for imports: all are stored, or none. A user's message begins a turn."""
    await validate_appended(user, id, *(message.content for message in body.messages))
    stored = await user.conversations.append_messages(id, **body.arguments())
    return json_response(Page[Any](items=[MessageWire.of(each) for each in stored]), 201)


@fixed_path_router.get("/{id}/pending", response_model=Page[ToolCallOut], responses=problem_responses(404))
async def get_pending_calls(user: UserDep, id: ConversationIdPath) -> Response:
    """The tool calls that wait for a person's decision; a turn with `approvals` takes it."""
    if await user.conversations.get(id) is None:
        raise NotFoundError("conversation", id)
    return json_response(Page[Any](items=[ToolCallOut.of(call) for call in await user.conversations.pending(id)]))
