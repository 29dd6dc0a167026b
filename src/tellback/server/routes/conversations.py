"""`/ai-conversations`: what was said."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.routing import APIRoute

from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.answers import (
    CursorIs,
    LimitIs,
    answer,
    page,
    page_limit,
    problems,
    read_cursor,
    write_cursor,
)
from tellback.server.callers import CallerIs, UserIs
from tellback.server.disconnects import while_awaited
from tellback.server.external_tools import check_appended
from tellback.server.idempotency import HEADER, TURN
from tellback.server.route import Route
from tellback.types.conversations import StoredMessage
from tellback.wire.base import Page
from tellback.wire.conversation_tasks import RefreshSummary
from tellback.wire.conversations import (
    AppendAssistantTurn,
    AppendedTurnWire,
    AppendSystemMessage,
    AppendToolResult,
    AppendTurn,
    AppendUserMessage,
    ConversationWire,
    CreateConversation,
    MessageWire,
    RollingSummaryWire,
)

router = APIRouter(prefix="/ai-conversations", tags=["conversations"], route_class=Route)

IdIs = Annotated[str, Path(max_length=200, examples=["conv_018f3c0de0a17b2c4d5e6f708192"])]
PORTION = 20
LARGEST_PAGE = 4_000_000
"""After how many characters a page ends early."""

SeqIs = Annotated[int | None, Query(ge=0, le=2**62, description="The `seq` of a message.")]
KeyIs = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=500)]


@router.post("", status_code=201, response_model=ConversationWire, responses=problems())
async def create_conversation(user: UserIs, body: CreateConversation) -> Response:
    """Open a conversation."""
    return answer(ConversationWire.of(await user.conversations.create(**body.arguments())), 201)


@router.get("", response_model=Page[ConversationWire], responses=problems())
async def list_conversations(
    caller: CallerIs,
    namespace: Annotated[str | None, Query(max_length=200)] = None,
    status: Literal["open", "closed"] | None = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The user's conversations, the newest first."""
    most = page_limit(caller, limit)
    found = await caller.user.conversations.list(namespace, status, most + 1, read_cursor(cursor))
    return page(ConversationWire, found, most, lambda each: str(each.id))


@router.get("/{id}", response_model=ConversationWire, responses=problems(404))
async def get_conversation(user: UserIs, id: IdIs) -> Response:
    """A conversation."""
    found = await user.conversations.get(id)
    if found is None:
        raise NotFoundError("conversation", id)
    return answer(ConversationWire.of(found))


@router.post("/{id}/close", response_model=ConversationWire, responses=problems(404))
async def close_conversation(user: UserIs, id: IdIs) -> Response:
    """Close a conversation, which is when its memories are made. Closing it again changes nothing."""
    return answer(ConversationWire.of(await user.conversations.close(id)))


@router.post("/{id}/user-messages", status_code=201, response_model=MessageWire, responses=problems(404, 409))
async def append_user_message(user: UserIs, id: IdIs, body: AppendUserMessage, key: KeyIs = None) -> Response:
    """Append what the person said. With an idempotency key, a retry gives the message that was stored first."""
    given = with_key(body.arguments(), key)
    await check_appended(user, id, body.content)
    return answer(MessageWire.of(await user.conversations.append_user_message(id, **given)), 201)


@router.post("/{id}/assistant-turns", status_code=201, response_model=MessageWire, responses=problems(404, 409))
async def append_assistant_turn(user: UserIs, id: IdIs, body: AppendAssistantTurn) -> Response:
    """Append what the assistant said, in the turn that is going on."""
    await check_appended(user, id, body.content)
    return answer(MessageWire.of(await user.conversations.append_assistant_turn(id, **body.arguments())), 201)


@router.post("/{id}/tool-results", status_code=201, response_model=MessageWire, responses=problems(404, 409))
async def append_tool_result(user: UserIs, id: IdIs, body: AppendToolResult) -> Response:
    """Append what a tool of yours gave; what an agent's tools give is for the agent to append."""
    await check_appended(user, id, [{"type": "tool_result", "tool_use_id": body.tool_use_id, "content": ""}])
    return answer(MessageWire.of(await user.conversations.append_tool_result(id, **body.arguments())), 201)


@router.post("/{id}/system-messages", status_code=201, response_model=MessageWire, responses=problems(404, 409))
async def append_system_message(user: UserIs, id: IdIs, body: AppendSystemMessage) -> Response:
    """Append an instruction or a note; by default the model sees it and the person does not."""
    await check_appended(user, id, body.content)
    return answer(MessageWire.of(await user.conversations.append_system_message(id, **body.arguments())), 201)


@router.post("/{id}/turns", status_code=201, response_model=AppendedTurnWire, responses=problems(404, 409))
async def append_turn(request: Request, user: UserIs, id: IdIs, body: AppendTurn) -> Response:
    """Append both sides of a turn that you ran yourself.

    With `idempotencyKey` the user's message is stored once, and the assistant's is a new one each time; with the header
    both are.
    """
    given = with_key(body.arguments(), request.headers.get(HEADER))
    await check_appended(user, id, body.user_content, body.assistant.content)
    return answer(AppendedTurnWire.of(await user.conversations.append_turn(id, **given)), 201)


@router.get("/{id}/messages", response_model=Page[MessageWire], responses=problems(404))
async def get_messages(
    caller: CallerIs,
    id: IdIs,
    include_internal: Annotated[bool, Query(alias="includeInternal")] = False,
    include_hidden: Annotated[bool, Query(alias="includeHidden")] = False,
    before: SeqIs = None,
    after: SeqIs = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The newest messages, oldest first: what a chat shows. `nextCursor` leads to those before them.

    With `after` (a `seq`) they are those that follow it, and `nextCursor` leads on from there.
    """
    return await _messages(caller, id, include_internal, include_hidden, before, after, limit, cursor)


@router.get("/{id}/raw-turns", response_model=Page[MessageWire], responses=problems(404))
async def get_raw_turns(
    caller: CallerIs,
    id: IdIs,
    before: SeqIs = None,
    after: SeqIs = None,
    limit: LimitIs = None,
    cursor: CursorIs = None,
) -> Response:
    """The same with internal messages: what a model sees."""
    return await _messages(caller, id, True, False, before, after, limit, cursor)


@router.post(
    "/{id}/rolling-summary", response_model=RollingSummaryWire, responses=problems(404, 502, 504), openapi_extra=TURN
)
async def refresh_rolling_summary(
    request: Request, caller: CallerIs, id: IdIs, body: RefreshSummary | None = None
) -> Response:
    """Bring the rolling summary forward to the newest message, with a model if there is one.

    If the connection ends early, so does the model's call.
    """
    model = None if body is None or body.model is None else caller.model(body.model)
    work = caller.user.conversations.refresh_rolling_summary(id, model)
    return answer(RollingSummaryWire.of(await while_awaited(request, work)))


async def _messages(
    caller: CallerIs,
    id: str,
    include_internal: bool,
    include_hidden: bool,
    before: int | None,
    after: int | None,
    limit: int | None,
    cursor: str | None,
) -> Response:
    most, place = page_limit(caller, limit), read_cursor(cursor)
    forward = after is not None and before is None
    if place is not None:
        if not place.isdecimal():
            raise InvalidArgumentError("cursor is what nextCursor of the page before was.")
        before, after = (before, int(place[:18])) if forward else (int(place[:18]), after)
    shown, has_more = await _bounded(caller, id, most, before, after, internal=include_internal, hidden=include_hidden)
    following = write_cursor(str(shown[-1 if forward else 0].seq)) if has_more else None
    return answer(Page[Any](items=[MessageWire.of(each) for each in shown], next_cursor=following))


async def _bounded(
    caller: CallerIs, id: str, most: int, before: int | None, after: int | None, *, internal: bool, hidden: bool
) -> tuple[list[StoredMessage], bool]:
    """Up to `most` messages, fewer if they are large, and whether there may be more."""
    forward = after is not None and before is None
    found: list[StoredMessage] = []
    while True:
        # A few at a time, as a page of pictures would fill the memory.
        size = min(most + 1 - len(found), PORTION)
        more = await caller.user.conversations.messages(id, size, internal, before, after, hidden)
        found = [*found, *more] if forward else [*more, *found]
        if len(more) < size:
            return found, False
        if len(found) > most:
            return (found[:most] if forward else found[-most:]), True
        if sum(map(_size, found)) > LARGEST_PAGE:
            return found, True
        before, after = (before, found[-1].seq) if forward else (found[0].seq, after)


def _size(message: StoredMessage) -> int:
    """About how many characters a message has."""
    return sum(len(value) for block in message.content for value in block.values() if isinstance(value, str))


def append_route() -> APIRoute:
    """The route of `append_user_message`."""
    routes = (route for route in router.routes if isinstance(route, APIRoute))
    return next(route for route in routes if route.endpoint is append_user_message)


def with_key(given: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Arguments with the idempotency key of the header, unless the body has the same one."""
    if key is None:
        return given
    if given.get("idempotency_key") not in (None, key):
        raise InvalidArgumentError("The header Idempotency-Key and idempotencyKey are not the same.")
    return {**given, "idempotency_key": key}
