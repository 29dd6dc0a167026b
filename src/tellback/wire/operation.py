"""One operation of the REST API, from which server, client, OpenAPI, tests and reference are derived.

An `Operation` has the method of an in-process handle, its verb and path. The request's model is derived from the
method's signature (`wire.arguments`), the response's from its return type (`wire.values`). As an attribute of a class
that a client's handle inherits, it becomes the client's method, with the same signature.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from pydantic import Field, create_model

from tellback import validation
from tellback.errors import NotFoundError
from tellback.wire import values as values  # declares the models that `wire_model` finds
from tellback.wire.arguments import (
    ARGUMENTS,
    ID_PREFIXES,
    UNSET,
    Argument,
    allows_none,
    argument_kind,
    build_path,
    encode_cursor,
    is_server_id,
)
from tellback.wire.base import InputModel, Page, WireModel, camel, wire_model

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Access = Literal["user", "caller", "admin"]
"""Who may call: credentials that act for a user, any credential, or credentials of the role 'admin'."""

Retry = Literal["stored", "turn", "own", "safe", "read", "once"]
"""How an `Idempotency-Key` is handled, and whether a client may retry the request.

- "stored": the response is stored under the key; "turn": the same, for work that takes minutes.
- "own": the handle's method has a parameter for the key.
- "safe": nothing is stored, because a repetition does no harm; "read": the operation changes nothing.
- "once": nothing is stored, and a client never retries.
"""

PageOrder = Literal["before", "after", "whole", "offset", "newest"]
"""How the pages of a list are read.

- "before", "after": by an argument of the method, the id of the previous page's last item.
- "whole": the method returns the whole list, oldest first; "offset": by the number of items already read.
- "newest": the first page has the newest items, in order; the next page has the items before them.
"""

_PLACEHOLDER = re.compile(r"\{(\w+):([^}]+)\}")
_BODY_VERBS = ("POST", "PATCH", "PUT")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of an operation: its names in Python and JSON, and its place in the request."""

    name: str
    wire_name: str
    place: Literal["path", "query", "body", "page"]
    type: Any
    default: Any
    argument: Argument
    hint: Any = None
    kind: str = ""
    """The kind of object that the id identifies, if the parameter is in the path."""

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def examples(self) -> list[Any] | None:
        return None if self.argument.example is UNSET else [self.argument.example]

    def encode(self, value: Any) -> Any:
        """Encode the argument's value for a request."""
        return argument_kind(self.hint).encode(self.name, value)


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """An encoded request. `limit` and `cursor` belong to a list that is read in pages."""

    path: str
    query: dict[str, Any]
    body: dict[str, Any] | None
    key: str | None = None
    limit: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Defaults for the operations of a class.

    `handle` is the class with their methods, `stands_for` the Python expression that returns the handle.
    """

    tag: str
    handle: type[Any] | None = None
    stands_for: str = ""
    access: Access = "user"
    retry: Retry = "stored"


class Caller(Protocol):
    """A client's handle."""

    def _call(self, operation: Operation[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any: ...


@dataclass(eq=False)
class Operation(Generic[P, R_co]):
    """An entry of the table: see `wire.operations`.

    - `method` is the handle's method, `route` is verb and path; `{space_id:space}` is the id of a space.
    - `name` is the `operationId` (default: the attribute's name), `doc` the description (default: the method's).
    - `errors` are additional error statuses, besides those of every operation.
    - `arguments` overrides types and descriptions; `omit` lists arguments that are not sent; `extra` are additional
      query parameters. `body` replaces the derived model of the body, or is its name.
    - `result` replaces the derived model of the response.
    - `headers` are the headers that a server function reads; `events` are the events of a stream, by name.
    - `missing` is the kind of object that was not found if the method returns None, and the arguments with its id.
    - `prepare` changes the client's arguments first; `fixed_query` is always sent by the client.
    - `stands_for` (the equivalent Python call) and `note` appear in the reference.
    - `is_mounted=False` marks a second client method for an operation that is already in the table.
    """

    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]
    route: str
    name: str = ""
    tag: str = ""
    doc: str = ""
    note: str = ""
    stands_for: str = ""
    status: int = 200
    errors: tuple[int, ...] = ()
    access: Access | None = None
    retry: Retry | None = None
    page: PageOrder | None = None
    is_cancelled_on_disconnect: bool = False
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    extra: Mapping[str, tuple[Any, Argument]] = field(default_factory=dict)
    omit: tuple[str, ...] = ()
    body: type[InputModel] | Callable[[], type[InputModel]] | str | None = None
    is_body_optional: bool = False
    result: Any = None
    missing: tuple[str, tuple[str, ...]] | None = None
    headers: tuple[str, ...] = ()
    events: Mapping[str, type[WireModel]] = field(default_factory=dict)
    events_doc: str = ""
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    fixed_query: Mapping[str, str] = field(default_factory=dict)
    is_mounted: bool = True

    def __post_init__(self) -> None:
        self.verb, _, template = self.route.partition(" ")
        self.path = _PLACEHOLDER.sub(r"{\1}", template)
        self.path_kinds: dict[str, str] = dict(_PLACEHOLDER.findall(template))
        if self.path_kinds:
            self.errors = (404, *self.errors)

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.owner, self.attribute = owner, name
        self.name = self.name or name
        group: Group = owner._group
        self.handle = group.handle
        self.tag = self.tag or group.tag
        self.access = self.access or group.access
        self.retry = self.retry or group.retry
        self.stands_for = self.stands_for or f"{group.stands_for}.{name}"

    @overload
    def __get__(self, remote: None, owner: type[Any]) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]: ...
    @overload
    def __get__(self, remote: object, owner: type[Any]) -> Callable[P, Coroutine[Any, Any, R_co]]: ...
    def __get__(self, remote: Any, owner: type[Any]) -> Any:
        """Return the client's method."""
        return self._client_method if remote is None else self._client_method.__get__(remote, owner)

    @cached_property
    def _client_method(self) -> Any:
        async def call(remote: Caller, *args: Any, **kwargs: Any) -> Any:
            return await remote._call(self, args, kwargs)

        call.__name__, call.__doc__ = self.attribute, self.method.__doc__
        call.__qualname__ = f"{self.owner.__qualname__}.{self.attribute}"
        call.__signature__ = inspect.signature(self.method)  # type: ignore[attr-defined]
        return call

    @property
    def description(self) -> str:
        """The OpenAPI description. It omits "or None", because the server returns 404 instead."""
        first_paragraph = re.sub(r"^Return ", "Get ", (self.method.__doc__ or "").partition("\n\n")[0])
        return inspect.cleandoc(self.doc or re.sub(r", or None( if [^.]*)?(?=[.:])", "", first_paragraph))

    @cached_property
    def signature(self) -> inspect.Signature:
        """The method's signature without `self`."""
        found = inspect.signature(self.method)
        return found.replace(parameters=[*found.parameters.values()][1:])

    @property
    def takes_key(self) -> bool:
        return "idempotency_key" in self.signature.parameters

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters for the method's arguments and the path."""
        hints = get_type_hints(self.method)
        found = [
            self._parameter(each, hints[each.name])
            for each in self.signature.parameters.values()
            if each.name not in self.omit
        ]
        names = {each.wire_name for each in found}
        found += [
            self._parameter(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY), str)
            for name in self.path_kinds
            if name not in names
        ]
        return tuple(found)

    def _parameter(self, parameter: inspect.Parameter, hint: Any) -> Parameter:
        own, common = self.arguments.get(parameter.name, Argument()), ARGUMENTS.get(parameter.name, Argument())
        argument = Argument(
            own.type or common.type,
            own.description or common.description,
            common.example if own.example is UNSET and own.type is None else own.example,
            own.name,
            own.default,
        )
        wire_name = argument.name or parameter.name
        default = parameter.default if argument.default is UNSET else argument.default
        if default is ...:
            default = inspect.Parameter.empty
        place: Literal["path", "query", "body", "page"]
        if wire_name in self.path_kinds:
            place = "path"
        elif self.page is not None and parameter.name in ("limit", self.page):
            place = "page"
        else:
            place = "body" if self.verb in _BODY_VERBS else "query"
        annotation = argument.type or argument_kind(hint).type
        if isinstance(annotation, FunctionType):  # another operation's body model, derived when needed
            annotation = annotation()
        if default is None or (allows_none(hint) and argument.default is UNSET):
            annotation = annotation | None
        kind = self.path_kinds.get(wire_name, "")
        return Parameter(parameter.name, wire_name, place, annotation, default, argument, hint, kind)

    @cached_property
    def own_defaults(self) -> dict[str, Any]:
        """Defaults of the table that replace the method's."""
        return {each.name: each.default for each in self.parameters if each.argument.default not in (UNSET, ...)}

    @cached_property
    def query(self) -> tuple[Parameter, ...]:
        """The query parameters, without those of a page."""
        extra = (
            Parameter(name, name, "query", each.type, default, each) for name, (default, each) in self.extra.items()
        )
        return (*(each for each in self.parameters if each.place == "query"), *extra)

    @cached_property
    def body_model(self) -> type[InputModel] | None:
        if isinstance(self.body, type):
            return self.body
        if callable(self.body):
            return self.body()
        body = [each for each in self.parameters if each.place == "body"]
        if not body:
            return None
        declared: dict[str, Any] = {
            each.wire_name: (
                each.type,
                Field(**_default(each.default), description=each.argument.description, examples=each.examples),
            )
            for each in body
        }
        name = self.body or "".join(word.capitalize() for word in self.name.split("_"))
        doc = self.description.partition("\n\n")[0]
        return create_model(name, __base__=InputModel, __doc__=doc, __module__=__name__, **declared)

    @cached_property
    def _returned(self) -> tuple[Any, bool, type[Any] | None]:
        """The item type of the method's result, whether it may be None, and the type of the list."""
        hint = get_type_hints(self.method).get("return")
        if get_origin(hint) in (list, tuple):
            return get_args(hint)[0], False, get_origin(hint)
        members = [each for each in get_args(hint) if each is not type(None)]
        return (members[0], True, None) if allows_none(hint) and len(members) == 1 else (hint, False, None)

    @property
    def gives_none(self) -> bool:
        """Whether the method returns None if it finds nothing."""
        return self._returned[1]

    @property
    def gives_list(self) -> bool:
        return self._returned[2] is not None or self.page is not None

    @cached_property
    def item_model(self) -> type[WireModel] | None:
        """The model of the result or list item; None if there is no result."""
        kind = self._returned[0]
        if self.result is not None or kind is type(None):
            return self.result  # type: ignore[no-any-return]
        return wire_model(kind)

    @cached_property
    def response_model(self) -> Any:
        return Page[self.item_model] if self.gives_list else self.item_model  # type: ignore[name-defined]

    def not_found(self, arguments: Mapping[str, Any]) -> NotFoundError:
        """Return the error for a result of None."""
        kind, names = self.missing or self._last_id
        return NotFoundError(kind, next(str(arguments[name]) for name in names if arguments.get(name) is not None))

    @property
    def _last_id(self) -> tuple[str, tuple[str, ...]]:
        last = [*self.path_kinds][-1]
        return self.path_kinds[last], tuple(each.name for each in self.parameters if each.wire_name == last)

    def is_missing(self, error: NotFoundError) -> bool:
        """Whether the in-process method would have returned None instead of this error."""
        if not self.gives_none:
            return False
        kind, _ = self.missing or self._last_id
        return error.kind == kind or error.kind not in self.path_kinds.values()

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], segments: Mapping[str, str] | None = None
    ) -> EncodedRequest:
        """Encode a call of the client's method; `segments` are path segments that are not arguments."""
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {**(segments or {}), **bound.arguments}
        if self.prepare is not None:
            arguments = self.prepare(arguments)
        path_values, query, body = dict[str, str](), dict[str, Any](self.fixed_query), dict[str, Any]()
        limit = cursor = key = None
        for each in self.parameters:
            value = arguments.get(each.name)
            if each.place == "path":
                path_values[each.wire_name] = _validate_segment(each.kind, value)
            elif value is None or (value == each.default and each.name not in self.own_defaults):
                continue
            elif each.name == "idempotency_key":
                key = value
            elif each.place == "body":
                body[camel(each.wire_name)] = each.encode(value)
            elif each.place == "query":
                encoded = each.encode(value)
                query[camel(each.wire_name)] = str(encoded).lower() if isinstance(encoded, bool) else encoded
            elif each.name != "limit":
                cursor = encode_cursor(getattr(value, "id", value))
        if self.page is not None:
            limit = arguments.get("limit")
        path = build_path(*(path_values.get(part[1:-1], part) for part in self.path[1:].split("/")))
        return EncodedRequest(path, query, body if self.verb in _BODY_VERBS else None, key, limit, cursor)

    def decode(self, payload: Any) -> Any:
        """Decode a server's response to the method's result."""
        if self.item_model is None:
            return None
        container = self._returned[2]
        return self.decode_item(payload) if container is None else container(map(self.decode_item, payload["items"]))

    def decode_item(self, payload: Any) -> Any:
        """Decode one value of a response."""
        assert self.item_model is not None
        return self.item_model.decode(payload)


async def _no_method(_: Any) -> None:
    """Placeholder for operations without a handle's method."""


def route(route: str, **entry: Any) -> Operation[..., Any]:
    """Declare an operation without a handle's method: a server function with `@handle` implements it."""
    return Operation(_no_method, route, **entry)


def _default(value: Any) -> dict[str, Any]:
    if value is inspect.Parameter.empty:
        return {}
    return {"default_factory": list} if value == () else {"default": value}


def _validate_segment(kind: str, value: Any) -> str:
    """Return a valid path segment, or raise `NotFoundError` for values that cannot be ids."""
    if kind in ID_PREFIXES:
        if not is_server_id(value):
            raise NotFoundError(kind, value)
    elif not value:
        raise NotFoundError(kind, value)
    return validation.validate_id(kind, value)
