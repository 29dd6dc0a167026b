"""The contract: what `/openapi.json` says of a server, besides what its routes say of themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute

from tellback.server.examples import Examples, Schema
from tellback.server.guard import PUBLIC
from tellback.server.idempotency import DESCRIBED
from tellback.server.paths_page import POLICY, paths_page
from tellback.server.problems import MEDIA_TYPE as PROBLEM
from tellback.server.stream_docs import EVENTS, stream_example, stream_schemas

JSON = "application/json"
ADDRESS = "/openapi.json"
DOCS = "/docs"
OPENAI = "/v1/"

DESCRIPTION = """\
Conversations are kept word for word; what matters in them becomes memories that cite where they were said; turns and
agents answer with what is remembered of the user.

**Whose data.** A credential is for one tenant and app. One of the role `user` is fixed to a user; those of the roles
`app` and `admin` act for any user of their app, whom the header `X-Tellback-User` names. Ids of others are 404.

**Errors** are `application/problem+json`, with a `code` for each kind. Under `/v1` they are in OpenAI's shape.

**Lists** come in pages: pass `nextCursor` as `cursor` until it is null.

**Retries.** With an `Idempotency-Key`, the same request is done once and answered the same.
"""

TAGS = [
    {"name": "conversations", "description": "The log: what was said, kept word for word, and its rolling summary."},
    {"name": "turns", "description": "A message in, a model's answer out, whole or as server-sent events."},
    {"name": "memory", "description": "Spaces, atoms and entities: what is remembered, and recalling it."},
    {"name": "bindings", "description": "Which conversations become memories, and where."},
    {"name": "jobs", "description": "Extraction: the work that makes memories of conversations."},
    {"name": "working context", "description": "What a model should know before it answers, within a budget."},
    {"name": "agents", "description": "Agents by description, and agents with routes and their sessions."},
    {"name": "events", "description": "What changes, as it changes."},
    {"name": "admin", "description": "A user's data come out and go; what it cost; what an app's operator needs."},
    {"name": "openai", "description": "For clients of OpenAI's API: the same chat, with memory."},
    {"name": "operations", "description": "For whoever runs the server."},
]

_SCHEMES: dict[str, Schema] = {
    "credential": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`tellback keys create`), or a JWT of the issuer that the server trusts.",
    },
    "metricsToken": {"type": "http", "scheme": "bearer", "description": "The server's metrics token."},
}
_PARAMETERS: dict[str, Schema] = {
    "X-Tellback-User": {
        "name": "X-Tellback-User",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "minLength": 1, "maxLength": 6_000, "examples": ["maya"]},
        "description": "Whom the request is about, percent-encoded UTF-8: for credentials of the roles `app` and"
        " `admin`. One of the role `user` may name its own user only.",
    },
    "X-Request-Id": {
        "name": "X-Request-Id",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "examples": ["018f3c0de0a17b2c"]},
        "description": "Your id for the request in the server's log; one is made where it is missing or unfit.",
    },
    "Idempotency-Key": DESCRIBED,
}
_HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"required": True, "schema": {"type": "string"}, "description": "Its id in the server's log."},
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds after which to try again."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}, "description": "How to authenticate."},
    "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` on an answer given before."},
}
# What anyone may be answered before a route is reached, and after one has failed.
_ANYWHERE = {
    400: "The request cannot be read.",
    403: "Not for this credential, or not for that host.",
    408: "The body did not come in time.",
    413: "The body, or a text in it, is too large.",
    414: "The address is too long.",
    415: "The body is not JSON, or it is compressed.",
    431: "The headers are too large.",
    500: "The server failed; its log has the reason, under the request's id.",
}
_IN_PROGRESS = "A request with the same Idempotency-Key is not over yet."


def named(router: APIRouter) -> list[BaseRoute]:
    """The routes of a router, called as the functions that answer them."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name
    return router.routes


def describe(app: FastAPI) -> None:
    """Make the app's OpenAPI complete, and serve it, with a page to read it."""
    app.description, app.openapi_tags = DESCRIPTION, TAGS
    plain = app.openapi

    def described() -> dict[str, Any]:
        document = plain()
        return document if "servers" in document else _complete(document)

    app.openapi = described  # type: ignore[method-assign]
    written = _Written()

    async def give(request: Request) -> Response:
        body, tag = written.of(app.openapi(), str(request.scope.get("root_path", "")).rstrip("/"))
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON)

    async def show(request: Request) -> HTMLResponse:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return HTMLResponse(paths_page(app.openapi(), root + ADDRESS), headers={"Content-Security-Policy": POLICY})

    app.add_route(ADDRESS, give, include_in_schema=False)
    app.add_route(DOCS, show, include_in_schema=False)


class _Written:
    """The document as bytes, and its tag: written once, until it or the path of the app is another."""

    def __init__(self) -> None:
        self._of: tuple[dict[str, Any], str] | None = None
        self._made = (b"", "")

    def of(self, document: dict[str, Any], root: str) -> tuple[bytes, str]:
        if self._of is None or self._of[0] is not document or self._of[1] != root:
            body = json.dumps({**document, "servers": [{"url": root or "/"}]}, separators=(",", ":")).encode()
            self._of, self._made = (document, root), (body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        return self._made


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    document["servers"] = [{"url": "/"}]
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SCHEMES
    components["parameters"] = _PARAMETERS
    components["headers"] = _HEADERS
    components["responses"] = {}
    document["security"] = [{"credential": []}]
    components["schemas"] = {**stream_schemas(), **components["schemas"]}
    examples = Examples(components["schemas"])
    for path, operation in _operations(document):
        _Operation(path, operation, components["responses"], examples).complete()
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    used = {tag for _, operation in _operations(document) for tag in operation.get("tags", ())}
    document["tags"] = [tag for tag in TAGS if tag["name"] in used]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


class _Operation:
    """Completes one operation of the document."""

    def __init__(self, path: str, operation: Schema, shared: dict[str, Schema], examples: Examples) -> None:
        self._operation = operation
        self._is_public = path in PUBLIC
        self._is_openai = path.startswith(OPENAI)
        self._shared = shared
        self._examples = examples

    def complete(self) -> None:
        """All of it."""
        self._operation["summary"] = self._operation["operationId"].replace("_", " ").capitalize()
        self._secure()
        self._parameters()
        self._body()
        self._answers()

    def _secure(self) -> None:
        if self._is_public:
            reads_metrics = "401" in self._operation["responses"]
            self._operation["security"] = [{}, {"metricsToken": []}] if reads_metrics else []

    def _parameters(self) -> None:
        given = self._operation.get("parameters", [])
        for each in given:
            each["schema"] = _without_null(each["schema"])
        kept = [each for each in given if each["name"] != DESCRIBED["name"]]
        common = ["X-Request-Id"] if self._is_public else ["X-Tellback-User", "X-Request-Id"]
        if self._takes_key:
            common.append(DESCRIBED["name"])
        references = [{"$ref": f"#/components/parameters/{name}"} for name in common]
        self._operation["parameters"] = [*kept, *references]

    @property
    def _takes_key(self) -> bool:
        named = (each.get("name", each.get("$ref", "")) for each in self._operation.get("parameters", ()))
        return any(name.endswith(DESCRIBED["name"]) for name in named)

    def _body(self) -> None:
        for media in self._operation.get("requestBody", {}).get("content", {}).values():
            media.setdefault("example", self._examples.request(_without_null(media["schema"])))

    def _answers(self) -> None:
        answers: dict[str, Schema] = self._operation["responses"]
        if not self._is_public:
            for number, description in _ANYWHERE.items():
                if number != 408 or "requestBody" in self._operation:
                    answers.setdefault(str(number), {"description": description})
            if self._takes_key:
                answers.setdefault("409", {"description": _IN_PROGRESS})
        if self._is_openai and _is_default(answers.get("422", {})):
            del answers["422"]
        for status in list(answers):
            if int(status) < 400:
                self._success(answers[status])
            else:
                answers[status] = self._problem(status, answers[status]["description"])
        self._operation["responses"] = {status: answers[status] for status in sorted(answers)}

    def _success(self, answer: Schema) -> None:
        if answer["description"] == "Successful Response":
            answer["description"] = "Done." if "content" not in answer else "The answer."
        headers = answer.setdefault("headers", {})
        headers["X-Request-Id"] = _header("X-Request-Id")
        if self._takes_key:
            headers["Idempotency-Replayed"] = _header("Idempotency-Replayed")
        for kind, media in answer.get("content", {}).items():
            if kind == JSON and media.get("schema"):
                media.setdefault("example", self._examples.answer(media["schema"]))
            elif EVENTS in media:
                media.setdefault("example", stream_example(media, self._examples))

    def _problem(self, status: str, description: str) -> Schema:
        """A reference to what is said of that status, once for all operations that say it alike."""
        media, model = (JSON, "ErrorOut") if self._is_openai else (PROBLEM, "Problem")
        made = {
            "description": description,
            "headers": {name: _header(name) for name in _headers_of(status)},
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{model}"}}},
        }
        for number in range(1, 100):
            name = f"{model}{status}" + ("" if number == 1 else f"_{number}")
            if self._shared.setdefault(name, made) == made:
                return {"$ref": f"#/components/responses/{name}"}
        raise AssertionError(f"too many ways to describe {status}")


def _headers_of(status: str) -> list[str]:
    more = {"401": ["WWW-Authenticate"], "429": ["Retry-After"], "503": ["Retry-After"]}
    return ["X-Request-Id", *more.get(status, ())]


def _header(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


def _is_default(answer: Schema) -> bool:
    schema = answer.get("content", {}).get(JSON, {}).get("schema", {})
    return str(schema.get("$ref", "")).endswith("/HTTPValidationError")


def _without_null(schema: Schema) -> Schema:
    """A schema of what cannot be null, as there is no way to say so outside of JSON; or leaving it out is that."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) != len(schema.get("anyOf", ())) and len(options) == 1:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**options[0], **rest}
    return {**schema, "anyOf": options} if options else schema
