"""`/ai-conversations`: create, find, close and import conversations, append and list messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.auth import CallerDep, UserDep
from tellback.server.client_tools import validate_appended
from tellback.server.idempotency import KEY_HEADER, LONG_RUNNING
from tellback.server.lifecycle import cancel_on_disconnect
from tellback.server.requests import StrictRoute
from tellback.server.responses import (
    CursorParam,
    LimitParam,
    decode_cursor,
    encode_cursor,
    json_response,
    page_response,
    problem_responses,
    resolve_page_size,
)
from tellback.types.conversations import StoredMessage
from tellback.wire.base import Page
from tellback.wire.conversations import (
    AppendAssistantTurn,
    AppendSystemMessage,
    AppendToolResult,
    AppendTurn,
    AppendUserMessage,
    CloseStale,
    CreateConversation,
    FindOrCreateConversation,
    ImportMessages,
    RefreshSummary,
)
from tellback.wire.values import AppendedTurnWire, ConversationWire, MessageWire, RollingSummaryWire, ToolCallOut

router = APIRouter(prefix="/ai-conversations", tags=["conversations"], route_class=StrictRoute)

ConversationIdPath = Annotated[str, Path(max_length=200, examples=["conv_018f3c0de0a17b2c4d5e6f708192"])]
BATCH_SIZE = 20
MAX_PAGE_CHARACTERS = 4_000_000
"""After how many characters a page ends early."""

SeqParam = Annotated[int | None, Query(ge=0, le=2**62, description="The `seq` of a message.")]
IdempotencyKeyHeader = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=500)]

fixed_path_router = APIRouter(prefix="/ai-conversations", tags=["conversations"], route_class=StrictRoute)


@router.post("", status_code=201, response_model=ConversationWire, responses=problem_responses())
async def create_conversation(user: UserDep, body: CreateConversation) -> Response:
    """Open a conversation."""
    return json_response(ConversationWire.from_value(await user.conversations.create(**body.arguments())), 201)


@router.get("", response_model=Page[ConversationWire], responses=problem_responses())
async def list_conversations(
    caller: CallerDep,
    namespace: Annotated[str | None, Query(max_length=200)] = None,
    status: Literal["open", "closed"] | None = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The user's conversations, the newest first."""
    page_size = resolve_page_size(caller, limit)
    found = await caller.user.conversations.list(namespace, status, page_size + 1, decode_cursor(cursor))
    return page_response(ConversationWire, found, page_size, lambda each: str(each.id))


@router.get("/{id}", response_model=ConversationWire, responses=problem_responses(404))
async def get_conversation(user: UserDep, id: ConversationIdPath) -> Response:
    """A conversation."""
    found = await user.conversations.get(id)
    if found is None:
        raise NotFoundError("conversation", id)
    return json_response(ConversationWire.from_value(found))


@router.post("/{id}/close", response_model=ConversationWire, responses=problem_responses(404))
async def close_conversation(user: UserDep, id: ConversationIdPath) -> Response:
    """Close a conversation, which is when its memories are made. Closing it again changes nothing."""
    return json_response(ConversationWire.from_value(await user.conversations.close(id)))


@router.post("/{id}/user-messages", status_code=201, response_model=MessageWire, responses=problem_responses(404, 409))
async def append_user_message(
    user: UserDep, id: ConversationIdPath, body: AppendUserMessage, key: IdempotencyKeyHeader = None
) -> Response:
    """Append what the person said. With an idempotency key, a retry gives the message that was stored first."""
    arguments = with_idempotency_key(body.arguments(), key)
    await validate_appended(user, id, body.content)
    return json_response(MessageWire.from_value(await user.conversations.append_user_message(id, **arguments)), 201)


@router.post(
    "/{id}/assistant-turns", status_code=201, response_model=MessageWire, responses=problem_responses(404, 409)
)
async def append_assistant_turn(user: UserDep, id: ConversationIdPath, body: AppendAssistantTurn) -> Response:
    """Append what the assistant said, in the turn that is going on."""
    await validate_appended(user, id, body.content)
    return json_response(
        MessageWire.from_value(await user.conversations.append_assistant_turn(id, **body.arguments())), 201
    )


@router.post("/{id}/tool-results", status_code=201, response_model=MessageWire, responses=problem_responses(404, 409))
async def append_tool_result(user: UserDep, id: ConversationIdPath, body: AppendToolResult) -> Response:
    """Append what a tool of yours gave; what an agent's tools give is for the agent to append."""
    await validate_appended(user, id, [{"type": "tool_result", "tool_use_id": body.tool_use_id, "content": ""}])
    return json_response(
        MessageWire.from_value(await user.conversations.append_tool_result(id, **body.arguments())), 201
    )


@router.post(
    "/{id}/system-messages", status_code=201, response_model=MessageWire, responses=problem_responses(404, 409)
)
async def append_system_message(user: UserDep, id: ConversationIdPath, body: AppendSystemMessage) -> Response:
    """Append an instruction or a note; by default the model sees it and the person does not."""
    await validate_appended(user, id, body.content)
    return json_response(
        MessageWire.from_value(await user.conversations.append_system_message(id, **body.arguments())), 201
    )


@router.post("/{id}/turns", status_code=201, response_model=AppendedTurnWire, responses=problem_responses(404, 409))
async def append_turn(request: Request, user: UserDep, id: ConversationIdPath, body: AppendTurn) -> Response:
    """Append both sides of a turn that you ran yourself.

    With `idempotencyKey` the user's message is stored once, and the assistant's is a new one each time; with the header
    both are.
    """
    arguments = with_idempotency_key(body.arguments(), request.headers.get(KEY_HEADER))
    await validate_appended(user, id, body.user_content, body.assistant.content)
    return json_response(AppendedTurnWire.from_value(await user.conversations.append_turn(id, **arguments)), 201)


@router.get("/{id}/messages", response_model=Page[MessageWire], responses=problem_responses(404))
async def get_messages(
    caller: CallerDep,
    id: ConversationIdPath,
    include_internal: Annotated[bool, Query(alias="includeInternal")] = False,
    include_hidden: Annotated[bool, Query(alias="includeHidden")] = False,
    before: SeqParam = None,
    after: SeqParam = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The newest messages, oldest first: what a chat shows. `nextCursor` leads to those before them.

    With `after` (a `seq`) they are those that follow it, and `nextCursor` leads on from there.
    """
    return await _message_page(caller, id, include_internal, include_hidden, before, after, limit, cursor)


@router.get("/{id}/raw-turns", response_model=Page[MessageWire], responses=problem_responses(404))
async def get_raw_turns(
    caller: CallerDep,
    id: ConversationIdPath,
    before: SeqParam = None,
    after: SeqParam = None,
    limit: LimitParam = None,
    cursor: CursorParam = None,
) -> Response:
    """The same with internal messages: what a model sees."""
    return await _message_page(caller, id, True, False, before, after, limit, cursor)


@router.post(
    "/{id}/rolling-summary",
    response_model=RollingSummaryWire,
    responses=problem_responses(404, 502, 504),
    openapi_extra=LONG_RUNNING,
)
async def refresh_rolling_summary(
    request: Request, caller: CallerDep, id: ConversationIdPath, body: RefreshSummary | None = None
) -> Response:
    """Bring the rolling summary forward to the newest message, with a model if there is one.

    If the connection ends early, so does the model's call.
    """
    model = None if body is None or body.model is None else caller.resolve_model(body.model)
    work = caller.user.conversations.refresh_rolling_summary(id, model)
    return json_response(RollingSummaryWire.from_value(await cancel_on_disconnect(request, work)))


async def _message_page(
    caller: CallerDep,
    id: str,
    include_internal: bool,
    include_hidden: bool,
    before: int | None,
    after: int | None,
    limit: int | None,
    cursor: str | None,
) -> Response:
    page_size, position = resolve_page_size(caller, limit), decode_cursor(cursor)
    forward = after is not None and before is None
    if position is not None:
        if not position.isdecimal():
            raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
        before, after = (before, int(position[:18])) if forward else (int(position[:18]), after)
    messages, has_more = await _read_bounded(
        caller, id, page_size, before, after, internal=include_internal, hidden=include_hidden
    )
    next_cursor = encode_cursor(str(messages[-1 if forward else 0].seq)) if has_more else None
    return json_response(Page[Any](items=[MessageWire.from_value(each) for each in messages], next_cursor=next_cursor))


async def _read_bounded(
    caller: CallerDep,
    id: str,
    max_messages: int,
    before: int | None,
    after: int | None,
    *,
    internal: bool,
    hidden: bool,
) -> tuple[list[StoredMessage], bool]:
    """Up to `max_messages` messages, fewer if they are large, and whether there may be more."""
    forward = after is not None and before is None
    messages: list[StoredMessage] = []
    while True:
        # A few at a time, as a page of pictures would fill the memory.
        size = min(max_messages + 1 - len(messages), BATCH_SIZE)
        batch = await caller.user.conversations.messages(id, size, internal, before, after, hidden)
        messages = [*messages, *batch] if forward else [*batch, *messages]
        if len(batch) < size:
            return messages, False
        if len(messages) > max_messages:
            return (messages[:max_messages] if forward else messages[-max_messages:]), True
        if sum(map(_character_count, messages)) > MAX_PAGE_CHARACTERS:
            return messages, True
        before, after = (before, messages[-1].seq) if forward else (messages[0].seq, after)


def _character_count(message: StoredMessage) -> int:
    """About how many characters a message has."""
    return sum(len(value) for block in message.content for value in block.values() if isinstance(value, str))


def get_append_route() -> APIRoute:
    """The route of `append_user_message`."""
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    return next(route for route in routes if route.endpoint is append_user_message)


def with_idempotency_key(arguments: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Arguments with the idempotency key of the header, unless the body has the same one."""
    if key is None:
        return arguments
    if arguments.get("idempotency_key") not in (None, key):
        raise InvalidArgumentError("The header Idempotency-Key and idempotencyKey are not the same.")
    return {**arguments, "idempotency_key": key}


@fixed_path_router.post("/find-or-create", response_model=ConversationWire, responses=problem_responses())
async def find_or_create_conversation(user: UserDep, body: FindOrCreateConversation) -> Response:
    """The newest open conversation of a namespace and session, or a new one. Of many who ask at once, one opens it."""
    return json_response(ConversationWire.from_value(await user.conversations.find_or_create(**body.arguments())))


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
    return json_response(ConversationWire.from_value(found))


@fixed_path_router.post("/close-stale", response_model=Page[ConversationWire], responses=problem_responses())
async def close_stale_conversations(user: UserDep, body: CloseStale) -> Response:
    """Close the user's open conversations in which nothing happened for that long. Gives those that were closed."""
    closed = await user.conversations.close_stale(body.older_than)
    return json_response(Page[Any](items=[ConversationWire.from_value(each) for each in closed]))


@fixed_path_router.get("/messages/{message_id}", response_model=MessageWire, responses=problem_responses(404))
async def get_message(user: UserDep, message_id: Annotated[str, Path(max_length=200)]) -> Response:
    """One message by its id: what a citation points to."""
    found = await user.conversations.message(message_id)
    if found is None:
        raise NotFoundError("message", message_id)
    return json_response(MessageWire.from_value(found))


@fixed_path_router.post(
    "/{id}/messages", status_code=201, response_model=Page[MessageWire], responses=problem_responses(404, 409)
)
async def append_messages(user: UserDep, id: ConversationIdPath, body: ImportMessages) -> Response:
    """Append many messages in one transaction, for imports: all are stored, or none. A user's message begins a turn."""
    await validate_appended(user, id, *(message.content for message in body.messages))
    stored = await user.conversations.append_messages(id, **body.arguments())
    return json_response(Page[Any](items=[MessageWire.from_value(each) for each in stored]), 201)


@fixed_path_router.get("/{id}/pending", response_model=Page[ToolCallOut], responses=problem_responses(404))
async def get_pending_calls(user: UserDep, id: ConversationIdPath) -> Response:
    """The tool calls that wait for a person's decision; a turn with `approvals` takes it."""
    if await user.conversations.get(id) is None:
        raise NotFoundError("conversation", id)
    return json_response(
        Page[Any](items=[ToolCallOut.from_value(call) for call in await user.conversations.pending(id)])
    )
