"""`/v1`: chat completions and models for OpenAI's clients."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from tellback import validation
from tellback.chat.discovery import AUTO
from tellback.errors import InvalidArgumentError, NotFoundError, TellbackError
from tellback.server.auth import Caller, CallerDep
from tellback.server.lifecycle import ShutdownSignal, cancel_on_disconnect, shutdown_response
from tellback.server.middleware.headers import USER_HEADER
from tellback.server.openai.completion import Completion
from tellback.server.openai.errors import InvalidFieldError, openai_error_response
from tellback.server.openai.requests import (
    STREAM_RESPONSE,
    CompletionOut,
    CompletionRequest,
    ModelListOut,
    ModelOut,
    ParsedChat,
    error_responses,
    parse_messages,
    parse_options,
    parse_tools,
)
from tellback.server.openai.responses import (
    CompletionWriter,
    conversation_header,
    stream_completion,
)
from tellback.server.problems import get_request_id
from tellback.server.requests import StrictRequest
from tellback.turns.chat import ChatArguments
from tellback.types.conversations import Identity
from tellback.user import User

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

OWN_MODEL = "tellback"
DEFAULT_MODEL_NAMES = (OWN_MODEL, AUTO)
"""Names that always mean the server's default model."""

NO_SPACE = "none"

ConversationHeader = Annotated[
    str | None, Header(alias="X-Tellback-Conversation", max_length=200, description="The conversation to continue.")
]
IdempotencyKeyHeader = Annotated[
    str | None, Header(alias="Idempotency-Key", min_length=1, max_length=validation.KEY_LENGTH)
]


class OpenAIRequest(StrictRequest):
    """A request whose attachments are limited only by the body size."""

    @staticmethod
    def is_attachment(name: str, value: str) -> bool:
        """Whether a value is an attachment, which only the body size limits."""
        return name in ("data", "file_data") or (name == "url" and value.startswith("data:"))


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's format."""

    def get_route_handler(self) -> Handler:
        handler, takes_body = super().get_route_handler(), self.body_field is not None

        async def handle(request: Request) -> Response:
            openai_request = OpenAIRequest(request.scope, request.receive)
            try:
                if takes_body:
                    await openai_request.validate_json()
                return await handler(openai_request)
            except (TellbackError, RequestValidationError, HTTPException) as error:
                return await openai_error_response(openai_request, error)

        return handle


router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)


def _encoded_header(name: str, description: str) -> Any:
    return Header(alias=name, max_length=2_000, description=f"{description} Percent-encoded UTF-8.")


SessionHeader = Annotated[str | None, _encoded_header("X-Tellback-Session", "Your id of a chat.")]
NamespaceHeader = Annotated[
    str | None, _encoded_header("X-Tellback-Namespace", "The kind of conversation; `chat` by default.")
]
SpaceHeader = Annotated[
    str | None, _encoded_header("X-Tellback-Space", "The memory space, `default` by default; `none` disables memory.")
]


@router.post(
    "/chat/completions",
    response_model=CompletionOut,
    responses={**error_responses(404, 409, 502, 504), **STREAM_RESPONSE},
)
async def create_chat_completion(
    request: Request,
    caller: CallerDep,
    body: CompletionRequest,
    conversation: ConversationHeader = None,
    session: SessionHeader = None,
    namespace: NamespaceHeader = None,
    space: SpaceHeader = None,
    key: IdempotencyKeyHeader = None,
) -> Response:
    """Create a chat completion with the user's memories. The client keeps the history.

    The model gets the client's messages unchanged, with memories after the system prompt. New messages and the answer
    are logged; a request that is repeated before it is answered is logged once. The response header
    `X-Tellback-Conversation` has the conversation id. With `stream`, the answer is sent as server-sent events.
    """
    if ShutdownSignal.for_app(request.app).is_set:
        return shutdown_response(get_request_id(request))
    models = list_served_models(caller)
    if body.model not in models:
        raise NotFoundError("model", body.model[:120], f"Available models: {', '.join(models)}.")
    model, chat = models[body.model], parse_messages(body.messages)
    user = resolve_user(caller, body.user, USER_HEADER in request.headers)
    named_space = _decode_header("X-Tellback-Space", space) or "default"
    completion = Completion(
        user,
        chat,
        _decode_header("X-Tellback-Namespace", namespace) or "chat",
        None if named_space == NO_SPACE else named_space,
        model,
        {
            **_chat_arguments(body, chat, user, model),
            "session_id": _decode_header("X-Tellback-Session", session),
            "conversation_id": conversation,
            "idempotency_key": key,
            "trace_id": request.scope["state"].get("trace_id"),
        },
    )
    options = body.stream_options
    writer = CompletionWriter(_model_name(model) or OWN_MODEL, with_usage=bool(options and options.include_usage))
    if body.stream:
        return await stream_completion(request, completion, writer, caller.server.settings)
    result = await cancel_on_disconnect(request, completion.run())
    return _json_response(writer.encode_completion(result), conversation_header(completion))


@router.get("/models", response_model=ModelListOut, responses=error_responses())
async def list_models(caller: CallerDep) -> Response:
    """List the models that requests may use; `tellback` and `auto` mean the server's default model."""
    models = ModelListOut(data=[ModelOut(id=name) for name in list_served_models(caller)])
    return _json_response(models.model_dump())


@router.get("/models/{id:path}", response_model=ModelOut, responses=error_responses(404))
async def get_model(caller: CallerDep, id: Annotated[str, Path(max_length=200, examples=[OWN_MODEL])]) -> Response:
    """Get a model that requests may use."""
    models = list_served_models(caller)
    if id not in models:
        raise NotFoundError("model", id, f"Available models: {', '.join(models)}.")
    return _json_response(ModelOut(id=id).model_dump())


def list_served_models(caller: Caller) -> dict[str, Any]:
    """Return the models that requests may use, by name."""
    default_model = caller.server.tb.model
    name = _model_name(default_model)
    return {
        **dict.fromkeys(DEFAULT_MODEL_NAMES, default_model),
        **({} if name is None else {name: default_model}),
        **{each: each for each in caller.server.settings.models},
    }


def resolve_user(caller: Caller, requested: str | None, by_header: bool) -> User:
    """Return the key's user, or the one in the field `user` or the header."""
    if requested is None:
        if caller.user_id is None:
            raise InvalidFieldError(
                "user",
                f"This key is valid for any user of its app: send the user's id as `user` or {USER_HEADER}.",
            )
        return caller.user
    user_id = validation.validate_scope_id("user", requested)
    user = caller.user_handle(user_id)
    if by_header and caller.user_id != user_id:
        raise InvalidFieldError("user", f"`user` and the header {USER_HEADER} must be the same user.")
    return user


def _chat_arguments(body: CompletionRequest, chat: ParsedChat, user: User, model: Any) -> ChatArguments:
    arguments: ChatArguments = {
        "system": chat.system,
        "tools": parse_tools(body),
        "options": parse_options(body, model),
        "recall": {"include_rolling_summary": not chat.has_history},
        "metadata": body.metadata,
    }
    if chat.speaker:
        arguments["sender"] = Identity(user.scope.user_id, chat.speaker)
    return arguments


def _model_name(model: Any) -> str | None:
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None


def _decode_header(header: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidArgumentError(f"{header} must be percent-encoded UTF-8.") from None


def _json_response(body: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(body).encode(), 200, headers, "application/json")
