"""`/v1`: what OpenAI's clients ask for."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Header, Path, Request, Response

from tellback.conversations import checks
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.callers import Caller, CallerIs
from tellback.server.disconnects import while_awaited
from tellback.server.openai.body import CompletionRequest
from tellback.server.openai.completing import Completion
from tellback.server.openai.errors import FieldRefusedError
from tellback.server.openai.models import STREAMED, CompletionOut, ModelListOut, ModelOut, errors
from tellback.server.openai.options import chat_options, client_tools
from tellback.server.openai.reading import Chat, read_chat
from tellback.server.openai.route import OpenAIRoute
from tellback.server.openai.streaming import conversation_header, streamed
from tellback.server.openai.writing import Writer, model_entry, model_list
from tellback.server.problems import request_id_of
from tellback.server.stopping import Stopping, refusal
from tellback.turn.chatting import ChatArguments
from tellback.types.turns import Identity
from tellback.user import User

router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)

OWN = "tellback"
"""The name that always stands for the server's own model."""

USER_HEADER = "X-Tellback-User"
NO_SPACE = "none"


def _header(name: str, description: str) -> Any:
    return Header(alias=name, max_length=2_000, description=f"{description} Percent-encoded UTF-8.")


ConversationIs = Annotated[
    str | None,
    Header(alias="X-Tellback-Conversation", max_length=200, description="The conversation to go on with."),
]
SessionIs = Annotated[str | None, _header("X-Tellback-Session", "Keeps chats of one namespace apart.")]
NamespaceIs = Annotated[str | None, _header("X-Tellback-Namespace", "Your name for this kind of conversation (chat).")]
SpaceIs = Annotated[str | None, _header("X-Tellback-Space", "The memory space (default); `none` remembers nothing.")]
KeyIs = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=checks.KEY_LENGTH)]


@router.post("/chat/completions", response_model=CompletionOut, responses={**errors(404, 409, 502, 504), **STREAMED})
async def create_chat_completion(
    request: Request,
    caller: CallerIs,
    body: CompletionRequest,
    conversation: ConversationIs = None,
    session: SessionIs = None,
    namespace: NamespaceIs = None,
    space: SpaceIs = None,
    key: KeyIs = None,
) -> Response:
    """Answer a chat whose history the client keeps, with what is remembered of the user.

    The model gets the client's messages as they are, with memories behind the system prompt. What is new in them, and
    the answer, go into the log; the same request sent again, before it is answered, is logged once. The answer says in
    `X-Tellback-Conversation` which conversation it belongs to. With `stream` it comes as server-sent events.
    """
    if Stopping.of(request.app).is_set:
        return refusal(request_id_of(request))
    models = served_models(caller)
    if body.model not in models:
        raise NotFoundError("model", body.model[:120], f"Models: {', '.join(models)}.")
    model, sent = models[body.model], read_chat(body.messages)
    user = acting_user(caller, body.user, USER_HEADER in request.headers)
    named_space = _decoded("X-Tellback-Space", space) or "default"
    completion = Completion(
        user,
        sent,
        _decoded("X-Tellback-Namespace", namespace) or "chat",
        None if named_space == NO_SPACE else named_space,
        model,
        {
            **_arguments(body, sent, user, model),
            "session_id": _decoded("X-Tellback-Session", session),
            "conversation_id": conversation,
            "idempotency_key": key,
            "trace_id": request.scope["state"].get("trace_id"),
        },
    )
    options = body.stream_options
    writer = Writer(_name(model) or OWN, with_usage=bool(options and options.include_usage))
    if body.stream:
        return await streamed(request, completion, writer, caller.home.settings)
    result = await while_awaited(request, completion.answer())
    return _json(writer.whole(result), conversation_header(completion))


@router.get("/models", response_model=ModelListOut, responses=errors())
async def list_models(caller: CallerIs) -> Response:
    """The models that may be named; `tellback` is the server's own."""
    return _json(model_list([*served_models(caller)]))


@router.get("/models/{id:path}", response_model=ModelOut, responses=errors(404))
async def get_model(caller: CallerIs, id: Annotated[str, Path(max_length=200, examples=[OWN])]) -> Response:
    """A model that may be named."""
    models = served_models(caller)
    if id not in models:
        raise NotFoundError("model", id, f"Models: {', '.join(models)}.")
    return _json(model_entry(id))


def served_models(caller: Caller) -> dict[str, Any]:
    """The models that may be named, by their names."""
    own = caller.home.rc.model
    name = _name(own)
    return {OWN: own, **({} if name is None else {name: own}), **{each: each for each in caller.home.settings.models}}


def acting_user(caller: Caller, named: str | None, by_header: bool) -> User:
    """Whose memory it is: the key's user, or the one that `user` or the header names."""
    if named is None:
        if caller.user_id is None:
            raise FieldRefusedError(
                "user", f"Whose memory? This key is for any user of its app: name one as `user`, or by {USER_HEADER}."
            )
        return caller.user
    wanted = checks.scope_name("user", named)
    handle = caller.user_of(wanted)
    if by_header and caller.user_id != wanted:
        raise FieldRefusedError("user", f"`user` and the header {USER_HEADER} name two users: which is it?")
    return handle


def _arguments(body: CompletionRequest, sent: Chat, user: User, model: Any) -> ChatArguments:
    given: ChatArguments = {
        "system": sent.system,
        "tools": client_tools(body),
        "options": chat_options(body, model),
        "recall": {"include_rolling_summary": not sent.has_past},
        "metadata": body.metadata,
    }
    if sent.speaker:
        given["sender"] = Identity(user.scope.user_id, sent.speaker)
    return given


def _name(model: Any) -> str | None:
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None


def _decoded(header: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{header} is percent-encoded UTF-8.") from None


def _json(body: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body).encode(), 200, headers, "application/json")
