"""Build the route of an operation in the table: decode its arguments, call the handle's method, encode the result.

The other modules of this package add what the table cannot describe: a function with `@check` runs before an operation,
a function with `@handle` replaces the handle's method.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from tellback.admin import Admin
from tellback.api_keys import AppKeys
from tellback.conversations import Conversations
from tellback.errors import InvalidArgumentError
from tellback.jobs.handle import AppJobs
from tellback.memory.bindings import AppBindings
from tellback.memory.memory import Memory
from tellback.memory.working_context import WorkingContextBuilder
from tellback.server.auth import Caller, get_admin, get_caller
from tellback.server.idempotency import KEY_HEADER, LONG_RUNNING, NOT_STORED
from tellback.server.lifecycle import ShutdownSignal, cancel_on_disconnect, shutdown_response
from tellback.server.openapi import stream_responses
from tellback.server.problems import get_request_id
from tellback.server.requests import IfMatchHeader, IfNoneMatchHeader, StrictRoute
from tellback.server.responses import (
    CursorParam,
    LimitParam,
    decode_cursor,
    encode_cursor,
    json_response,
    problem_responses,
    resolve_page_size,
)
from tellback.validation import KEY_LENGTH, validate_optional_text
from tellback.wire.arguments import ID_PREFIXES, text
from tellback.wire.base import InputModel, Page, camel
from tellback.wire.operation import Operation, Parameter
from tellback.wire.operations import OPERATIONS
from tellback.wire.values import example_id

IdempotencyKeyHeader = Annotated[str | None, Header(alias=KEY_HEADER, min_length=1, max_length=KEY_LENGTH)]

HEADERS: dict[str, tuple[Any, Any]] = {
    "accept": (Annotated[str, Header(alias="Accept", include_in_schema=False)], ""),
    "if_match": (IfMatchHeader, None),
    "if_none_match": (IfNoneMatchHeader, None),
    "last": (
        Annotated[
            str | None,
            Header(alias="Last-Event-ID", max_length=100, description="The position of the last event received."),
        ],
        None,
    ),
    "traceparent": (
        Annotated[str | None, Header(alias="traceparent", max_length=200, description="W3C trace context.")],
        None,
    ),
}
"""The headers that operations may declare, with their defaults."""

RETRY_EXTENSIONS = {"turn": LONG_RUNNING, "safe": NOT_STORED, "read": NOT_STORED, "once": NOT_STORED}

HANDLES: dict[type[Any], Callable[[Caller], Any]] = {
    Conversations: lambda caller: caller.user.conversations,
    Memory: lambda caller: caller.user.memory,
    WorkingContextBuilder: lambda caller: caller.user.working_context,
    Admin: lambda caller: caller.user.admin,
    AppJobs: lambda caller: AppJobs(caller.server.tb.jobs, *caller.app),
    AppBindings: lambda caller: AppBindings(caller.server.tb.bindings, *caller.app),
    AppKeys: lambda caller: AppKeys(caller.server.tb.keys, *caller.app),
}
"""How to get the handle of an operation's method, by class."""


@dataclass(slots=True)
class Call:
    """A request for an operation: the method's arguments, the page of a list, and the parsed body."""

    request: Request
    caller: Caller
    operation: Operation[..., Any]
    arguments: dict[str, Any]
    body: Any = None
    page_size: int = 0
    position: str | None = None

    async def run(self) -> Any:
        """Call the handle's method."""
        assert self.operation.handle in HANDLES, (
            f"{self.operation.name} needs a function with @handle, or its handle an entry in HANDLES"
        )
        handle = HANDLES[self.operation.handle](self.caller)
        work = getattr(handle, self.operation.method.__name__)(**self.arguments)
        if self.operation.is_cancelled_on_disconnect:
            return await cancel_on_disconnect(self.request, work)
        return await work

    def page(self, rows: Sequence[Any], next_position: str | None = None) -> Response:
        """Return a page of a list. If `rows` has one more item than the page, there is a next page."""
        items = rows[: self.page_size]
        if len(rows) > self.page_size and next_position is None:
            next_position = str(items[-1].id)
        return self.items(items, next_position if len(rows) > self.page_size else None)

    def items(self, items: Sequence[Any], next_position: str | None = None) -> Response:
        """Return values as a list, with the cursor of the next page."""
        model = self.operation.item_model
        assert model is not None
        next_cursor = None if next_position is None else encode_cursor(next_position)
        page = Page[Any](items=[model.from_value(each) for each in items], next_cursor=next_cursor)
        return json_response(page, self.operation.status)

    def respond(self, value: Any) -> Response:
        """Build the response to the method's result."""
        operation = self.operation
        if operation.item_model is None:
            return Response(status_code=204)
        if value is None:
            raise operation.not_found(self.arguments)
        if not operation.gives_list:
            return json_response(operation.item_model.from_value(value), operation.status)
        if operation.page is None:
            return self.items(value)
        if operation.page == "whole":
            value = [each for each in value if self.position is None or each.id > self.position]
        return self.page(value)


Check = Callable[[Call], Awaitable[None]]
Handler = Callable[[Call], Awaitable[Any]]
F = TypeVar("F", bound=Callable[[Call], Awaitable[Any]])

_CHECKS: dict[str, list[Check]] = {}
_HANDLERS: dict[str, Handler] = {}
_RESPONSES: dict[str, dict[int | str, dict[str, Any]]] = {}


def check(*names: str) -> Callable[[F], F]:
    """Decorate a function to run before these operations. It may reject a call or change its arguments."""

    def register(function: F) -> F:
        for name in names:
            _CHECKS.setdefault(OPERATIONS[name].name, []).append(function)
        return function

    return register


def handle(*names: str, responses: dict[int | str, dict[str, Any]] | None = None) -> Callable[[F], F]:
    """Decorate a function to handle these operations. It returns the method's result or a response.

    `responses` are OpenAPI descriptions of responses that are not JSON.
    """

    def register(function: F) -> F:
        for name in names:
            _HANDLERS[OPERATIONS[name].name] = function
            _RESPONSES[name] = responses or {}
        return function

    return register


def build_router(operations: Sequence[Operation[..., Any]]) -> APIRouter:
    """Build the routes. Literal paths come before paths with an id in the same place."""
    router = APIRouter(route_class=StrictRoute)
    mounted = [each for each in operations if each.is_mounted]
    for operation in sorted(mounted, key=lambda each: [part.startswith("{") for part in each.path.split("/")]):
        router.add_api_route(
            operation.path,
            _build_endpoint(operation),
            methods=[operation.verb],
            name=operation.name,
            tags=[operation.tag],
            status_code=operation.status,
            description=operation.description,
            response_model=operation.response_model,
            response_class=Response if operation.response_model is None else JSONResponse,
            responses={
                **problem_responses(*operation.errors),
                **(stream_responses(operation.events_doc, operation.events) if operation.events else {}),
                **_RESPONSES.get(operation.name, {}),
            },
            openapi_extra=RETRY_EXTENSIONS.get(operation.retry or "") if operation.verb != "GET" else None,
        )
    return router


async def _get_caller_of_user(request: Request) -> Caller:
    """Return the caller, or raise if the request does not say which user it acts for."""
    caller = await get_caller(request)
    assert caller.user
    return caller


_DEPENDENCIES = {"user": _get_caller_of_user, "caller": get_caller, "admin": get_admin}


def _build_endpoint(operation: Operation[..., Any]) -> Callable[..., Awaitable[Response]]:
    """Build the function of a route, with the signature that FastAPI reads."""
    checks, handler = _CHECKS.get(operation.name, ()), _HANDLERS.get(operation.name, Call.run)
    names = {each.wire_name: each.name for each in operation.parameters}
    takes_limit = operation.page is not None or "limit" in operation.extra
    begins_turn = operation.retry == "turn" and bool(operation.events)

    async def endpoint(
        request: Request,
        caller: Caller,
        body: InputModel | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        key: str | None = None,
        **given: Any,
    ) -> Response:
        arguments = {**operation.own_defaults, **{names.get(name, name): each for name, each in given.items()}}
        if body is not None:
            arguments |= {names.get(name, name): each for name, each in body.arguments().items()}
        call = Call(request, caller, operation, arguments, body)
        if takes_limit:
            _add_page(call, limit, cursor)
        elif (call.arguments.get("limit") or 0) > caller.server.settings.largest_page:
            largest = caller.server.settings.largest_page
            raise InvalidArgumentError(f"limit must be at most {largest}, got {call.arguments['limit']}.")
        if operation.takes_key:
            call.arguments = with_idempotency_key(call.arguments, request.headers.get(KEY_HEADER))
        for each in checks:
            await each(call)
        if begins_turn and ShutdownSignal.for_app(request.app).is_set:
            return shutdown_response(get_request_id(request))
        value = await handler(call)
        return value if isinstance(value, Response) else call.respond(value)

    endpoint.__name__ = operation.name
    endpoint.__signature__ = inspect.Signature([*_endpoint_parameters(operation)])  # type: ignore[attr-defined]
    return endpoint


def _add_page(call: Call, limit: int | None, cursor: str | None) -> None:
    """Set the page of a list. One more item is requested, to know whether there is a next page."""
    order = call.operation.page
    call.page_size, call.position = resolve_page_size(call.caller, limit), decode_cursor(cursor)
    if order in ("before", "after"):
        call.arguments["limit"] = call.page_size + 1
        call.arguments[order] = validate_optional_text("cursor", call.position, KEY_LENGTH)


def _endpoint_parameters(operation: Operation[..., Any]) -> Sequence[inspect.Parameter]:
    def parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)

    found = [
        parameter("request", Request),
        parameter("caller", Annotated[Caller, Depends(_DEPENDENCIES[operation.access or "user"])]),
    ]
    found += [parameter(each.wire_name, _path_type(each)) for each in operation.parameters if each.place == "path"]
    found += [parameter(each.wire_name, _query_type(each), each.default) for each in operation.query]
    if operation.body_model is not None:
        body: Any = operation.body_model
        optional = operation.is_body_optional
        found.append(
            parameter("body", body | None if optional else body, None if optional else inspect.Parameter.empty)
        )
    if operation.page is not None:
        found += [parameter("limit", LimitParam, None), parameter("cursor", CursorParam, None)]
    found += [parameter(name, *HEADERS[name]) for name in operation.headers]
    if operation.retry == "own":
        found.append(parameter("key", IdempotencyKeyHeader, None))
    return found


def _path_type(parameter: Parameter) -> Any:
    prefix = ID_PREFIXES.get(parameter.kind)
    examples = parameter.examples if prefix is None else [example_id(prefix)]
    return Annotated[parameter.argument.type or text(200), Path(examples=examples)]


def _query_type(parameter: Parameter) -> Any:
    name, argument = camel(parameter.wire_name), parameter.argument
    return Annotated[parameter.type, Query(alias=name, description=argument.description, examples=parameter.examples)]


def with_idempotency_key(arguments: dict[str, Any], key: str | None) -> dict[str, Any]:
    """Add the idempotency key of the header. It must not differ from the body's."""
    if key is None:
        return arguments
    if arguments.get("idempotency_key") not in (None, key):
        raise InvalidArgumentError("The header Idempotency-Key and the field idempotencyKey must be equal.")
    return {**arguments, "idempotency_key": key}
