"""Complete the OpenAPI document with examples, streams and errors; serve `/openapi.json` and `/docs`."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tellback.server.idempotency import KEY_PARAMETER
from tellback.server.middleware.auth import PUBLIC_PATHS
from tellback.server.problems import MEDIA_TYPE as PROBLEM_MEDIA_TYPE
from tellback.server.responses import JSON_MEDIA_TYPE
from tellback.server.streaming.sse import MEDIA_TYPE, encode_frame
from tellback.wire.agents import AgentDelta
from tellback.wire.base import WireModel
from tellback.wire.problems import Problem
from tellback.wire.turns import DELTA_EVENTS
from tellback.wire.values import ChangeWire, ReadyWire

Schema = dict[str, Any]

# Examples by field name, for fields without an example of their own.
_EXAMPLES_BY_NAME: Mapping[str, Any] = {
    "tenantId": "acme",
    "appId": "default",
    "userId": "maya",
    "createdBy": "maya",
    "conversationId": "conv_018f3c0de0a17b2c4d5e6f708192",
    "memorySpaceId": "ms_018f3c0de0a17b2c4d5e6f708192",
    "memorySpaceIds": ["ms_018f3c0de0a17b2c4d5e6f708192"],
    "bindingId": "bind_018f3c0de0a17b2c4d5e6f708192",
    "turnId": "turn_018f3c0de0a17b2c4d5e6f708192",
    "sessionId": "sess_018f3c0de0a17b2c4d5e6f708192",
    "extractionVersion": "v1",
    "model": "tellback",
    "secret": "tb_018f3c0de0a17b2c4d5e6f708192_c2VjcmV0",
}
_EXAMPLES_BY_FORMAT = {"date-time": "2026-03-01T09:00:00Z", "date": "2026-03-01", "binary": ""}
_EXAMPLES_BY_TYPE: Mapping[str, Any] = {"boolean": True, "object": {}, "null": None}
_MAX_DEPTH = 8

EVENTS_EXTENSION = "x-events"
ERROR_EVENT = "error"
_SCHEMA_REFERENCE = "#/components/schemas/{model}"
_STREAM_SCHEMA = {
    "type": "string",
    "description": f"Server-sent events with JSON data; `{EVENTS_EXTENSION}` has the schema of each.",
}

_STREAM_ONLY_MODELS: tuple[type[WireModel], ...] = (
    AgentDelta,
    ChangeWire,
    ReadyWire,
    *dict.fromkeys(DELTA_EVENTS.values()),
)
"""Models that only occur in streams; FastAPI collects the others from the routes."""

DOCS_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_DOCS_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .25rem 0; } summary b { display: inline-block; min-width: 4.5rem; }
details > div { margin: 0 0 1rem 4.5rem; } table { border-collapse: collapse; } td { padding: 0 1rem 0 0; }
:root { color-scheme: light dark; }
"""

OPENAPI_PATH = "/openapi.json"
DOCS_PATH = "/docs"
OPENAI_PREFIX = "/v1/"

DESCRIPTION = """\
Tellback stores conversations verbatim and extracts memories, which cite their sources. Turns and agents answer with
the memories of the user.

**Authentication.** A credential is valid for one tenant and app. A credential of the role `user` belongs to one user;
one of the roles `app` or `admin` may act for any user of its app: send the user's id in the header `X-Tellback-User`.
Resources of other users return 404.

**Errors** are `application/problem+json`, with a `code` for each kind. Under `/v1` they have OpenAI's format.

**Pagination.** Lists are returned in pages: pass `nextCursor` as `cursor` until it is null.

**Retries.** Requests with the same `Idempotency-Key` are processed once and get the same response.
"""

TAGS = [
    {"name": "conversations", "description": "The log of messages, stored verbatim, and its rolling summary."},
    {"name": "turns", "description": "Send a message and get the model's answer, whole or as server-sent events."},
    {"name": "memory", "description": "Spaces, atoms (remembered facts) and entities; store, search and correct them."},
    {"name": "bindings", "description": "Rules: which conversations are extracted, and into which spaces."},
    {"name": "jobs", "description": "Extraction jobs, which turn conversations into memories."},
    {"name": "working context", "description": "The context for a model's answer, within a token budget."},
    {"name": "agents", "description": "Agents from JSON specs, and agents with routes and sessions."},
    {"name": "events", "description": "A stream of changes to a user's data."},
    {"name": "admin", "description": "Export and erasure of a user's data, usage, API keys, and maintenance."},
    {"name": "openai", "description": "An API compatible with OpenAI's chat completions, with memory."},
    {"name": "operations", "description": "Health and metrics, for operators of the server."},
]

_SECURITY_SCHEMES: dict[str, Schema] = {
    "credential": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`tellback keys create`), or a JWT of the configured issuer.",
    },
    "metricsToken": {"type": "http", "scheme": "bearer", "description": "The server's metrics token."},
}
_COMMON_PARAMETERS: dict[str, Schema] = {
    "X-Tellback-User": {
        "name": "X-Tellback-User",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "minLength": 1, "maxLength": 6_000, "examples": ["maya"]},
        "description": "The user id to act for, as percent-encoded UTF-8. Required for the roles `app` and `admin`;"
        " the role `user` may only send its own user's id.",
    },
    "X-Request-Id": {
        "name": "X-Request-Id",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "examples": ["018f3c0de0a17b2c"]},
        "description": "An id for the request in the server's log. If missing or invalid, the server creates one.",
    },
    "Idempotency-Key": KEY_PARAMETER,
}
_RESPONSE_HEADERS: dict[str, Schema] = {
    "X-Request-Id": {"required": True, "schema": {"type": "string"}, "description": "The request's id in the logs."},
    "Retry-After": {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds to wait before retrying."},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string"}, "description": "How to authenticate."},
    "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` if the response is replayed."},
}
# Responses that any operation may return, before a route is reached or after it failed.
_COMMON_ERRORS = {
    400: "The request is malformed.",
    403: "The credential or the host does not allow this.",
    408: "The request body did not arrive in time.",
    413: "The body or one of its texts is too large.",
    414: "The URL is too long.",
    415: "The body is not JSON or is compressed.",
    431: "The headers are too large.",
    500: "Internal error; the server's log has the reason under the request's id.",
}
_ERROR_HEADERS = {"401": ("WWW-Authenticate",), "429": ("Retry-After",), "503": ("Retry-After",)}
_IN_PROGRESS = "A request with the same Idempotency-Key is still running."


class ExampleBuilder:
    """Builds example values from the schemas of a document."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = schemas

    def build_request(self, schema: Schema) -> Any:
        """Build an example request, with required fields and those that have an example."""
        return self._build(schema, "", False, 0)

    def build_response(self, schema: Schema) -> Any:
        """Build an example response, with all fields."""
        return self._build(schema, "", True, 0)

    def _build(self, schema: Schema, name: str, include_optional: bool, depth: int) -> Any:
        schema = self._resolve(schema)
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("example", "const", "default"):
            if key in schema:
                return schema[key]
        for key in ("anyOf", "oneOf", "allOf"):
            if schema.get(key):
                return self._one_of(schema[key], name, include_optional, depth)
        kind = schema.get("type")
        if name in _EXAMPLES_BY_NAME and isinstance(_EXAMPLES_BY_NAME[name], list if kind == "array" else str):
            return _EXAMPLES_BY_NAME[name]
        if kind == "array":
            count = range(schema.get("minItems", 1)) if depth < _MAX_DEPTH else ()
            return [self._build(schema.get("items", {}), name, include_optional, depth + 1) for _ in count]
        if kind == "object" and "properties" in schema:
            return self._fields(schema, include_optional, depth)
        return _default_example(schema)

    def _one_of(self, options: list[Schema], name: str, include_optional: bool, depth: int) -> Any:
        """Use the first option with an example; otherwise null if allowed, or the first option."""
        for option in options:
            if self._resolve(option).get("examples"):
                return self._build(option, name, include_optional, depth)
        if any(option.get("type") == "null" for option in options):
            return None
        return self._build(options[0], name, include_optional, depth)

    def _fields(self, schema: Schema, include_optional: bool, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self._build(each, name, include_optional, depth + 1)
            for name, each in schema["properties"].items()
            if name in required or each.get("examples") or (include_optional and depth < _MAX_DEPTH)
        }

    def _resolve(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            target = self._schemas[schema["$ref"].rpartition("/")[2]]
            schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
        return schema


def _default_example(schema: Schema) -> Any:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        minimum = schema.get("minimum", schema.get("exclusiveMinimum", 0) + (1 if "exclusiveMinimum" in schema else 0))
        return max(1, minimum) if schema.get("maximum", 1) >= 1 else minimum
    if kind == "string":
        return _EXAMPLES_BY_FORMAT.get(schema.get("format", ""), "a text")
    return _EXAMPLES_BY_TYPE.get(str(kind))


def stream_responses(description: str, events: Mapping[str, type[WireModel]]) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a streamed response, with events in the order they are sent."""
    models: dict[str, type[WireModel]] = {**events, ERROR_EVENT: Problem}
    references = {name: {"$ref": _SCHEMA_REFERENCE.format(model=model.__name__)} for name, model in models.items()}
    return {
        200: {
            "description": description,
            "content": {MEDIA_TYPE: {"schema": _STREAM_SCHEMA, EVENTS_EXTENSION: references}},
        }
    }


def build_stream_schemas() -> dict[str, Schema]:
    """Return the schemas of models that only occur in streams."""
    _, document = models_json_schema(
        [(model, "serialization") for model in _STREAM_ONLY_MODELS], ref_template=_SCHEMA_REFERENCE
    )
    schemas: dict[str, Schema] = document["$defs"]
    return schemas


def build_stream_example(media: Schema, examples: ExampleBuilder) -> str:
    """Build an example stream, without an error event."""
    frames = []
    for number, (name, schema) in enumerate(media[EVENTS_EXTENSION].items(), 1):
        if name != ERROR_EVENT:
            data = examples.build_response(schema)
            is_numbered = isinstance(data, dict) and "position" in data
            if is_numbered:
                data = {**data, "position": number, **({"type": name} if "type" in data else {})}
            frames.append(encode_frame(name, json.dumps(data).encode(), number if is_numbered else None))
    return b"".join(frames).decode()


def render_docs_page(document: dict[str, Any], openapi_url: str) -> str:
    """Render the HTML of the `/docs` page."""
    operations: dict[str, list[str]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            operations[operation.get("tags", [""])[0]].append(_render_operation(method, path, operation))
    sections = "".join(
        f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{''.join(operations[tag['name']])}"
        for tag in document["tags"]
    )
    intro = "".join(f"<p>{escape(part)}</p>" for part in document["info"]["description"].split("\n\n"))
    link = f'<p>All fields, with examples: <a href="{escape(openapi_url)}">{escape(openapi_url)}</a></p>'
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{_DOCS_STYLE}</style>'
    title = escape(document["info"]["title"])
    top = f"<!doctype html><html lang=en><head>{head}<title>{title}</title></head>"
    return f"{top}<body><h1>{title}</h1>{intro}{link}{sections}</body></html>"


def _render_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    description = "".join(f"<p>{escape(part)}</p>" for part in operation.get("description", "").split("\n\n"))
    parameters = [
        _COMMON_PARAMETERS[each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        for each in operation.get("parameters", ())
    ]
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}<td>{escape(each.get('description', ''))}"
        for each in parameters
    )
    statuses = ", ".join(escape(status) for status in operation["responses"])
    line = f"<b>{escape(method.upper())}</b> <code>{escape(path)}</code> {escape(operation.get('summary', ''))}"
    details = f"<div>{description}<table>{rows}</table><p>Responses: {statuses}</div>"
    return f"<details><summary>{line}</summary>{details}</details>"


def add_openapi(app: FastAPI) -> None:
    """Complete the app's OpenAPI document, and serve it and the page that renders it."""
    app.description, app.openapi_tags = DESCRIPTION, TAGS
    build = app.openapi

    for route in app.routes:
        if isinstance(route, APIRoute):
            route.operation_id = route.name

    def build_complete() -> dict[str, Any]:
        document = build()
        return document if "servers" in document else _complete_document(document)

    app.openapi = build_complete  # type: ignore[method-assign]

    @lru_cache(maxsize=8)
    def encode_document(root: str) -> tuple[bytes, str]:
        """Encode the document for an app mounted below `root`, and return it with its ETag."""
        body = json.dumps({**app.openapi(), "servers": [{"url": root or "/"}]}, separators=(",", ":")).encode()
        return body, f'"{hashlib.sha256(body).hexdigest()[:32]}"'

    async def serve_document(request: Request) -> Response:
        body, tag = encode_document(str(request.scope.get("root_path", "")).rstrip("/"))
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON_MEDIA_TYPE)

    async def serve_docs(request: Request) -> HTMLResponse:
        root = str(request.scope.get("root_path", "")).rstrip("/")
        return HTMLResponse(
            render_docs_page(app.openapi(), root + OPENAPI_PATH),
            headers={"Content-Security-Policy": DOCS_SECURITY_POLICY},
        )

    app.add_route(OPENAPI_PATH, serve_document, include_in_schema=False)
    app.add_route(DOCS_PATH, serve_docs, include_in_schema=False)


def _complete_document(document: dict[str, Any]) -> dict[str, Any]:
    document["servers"] = [{"url": "/"}]
    components = document.setdefault("components", {})
    components["securitySchemes"] = _SECURITY_SCHEMES
    components["parameters"] = _COMMON_PARAMETERS
    components["headers"] = _RESPONSE_HEADERS
    components["responses"] = {}
    document["security"] = [{"credential": []}]
    components["schemas"] = {**build_stream_schemas(), **components["schemas"]}
    examples = ExampleBuilder(components["schemas"])
    for path, operation in _operations(document):
        _OperationCompleter(path, operation, components["responses"], examples).complete()
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    for schema in components["schemas"].values():
        if "description" in schema:
            schema["description"] = schema["description"].partition("\n\n>>>")[0]  # docstrings may have doctests
    used_tags = {tag for _, operation in _operations(document) for tag in operation.get("tags", ())}
    document["tags"] = [tag for tag in TAGS if tag["name"] in used_tags]
    return document


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, Schema]]:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            yield path, operation


class _OperationCompleter:
    """Completes one operation of the document."""

    def __init__(self, path: str, operation: Schema, shared: dict[str, Schema], examples: ExampleBuilder) -> None:
        self._operation = operation
        self._is_public = path in PUBLIC_PATHS
        self._is_openai = path.startswith(OPENAI_PREFIX)
        self._shared = shared
        self._examples = examples
        self._accepts_key = any(each["name"] == KEY_PARAMETER["name"] for each in operation.get("parameters", ()))

    def complete(self) -> None:
        self._operation["summary"] = self._operation["operationId"].replace("_", " ").capitalize()
        if self._is_public:
            reads_metrics = "401" in self._operation["responses"]
            self._operation["security"] = [{}, {"metricsToken": []}] if reads_metrics else []
        self._complete_parameters()
        for media in self._operation.get("requestBody", {}).get("content", {}).values():
            media.setdefault("example", self._examples.build_request(_without_null(media["schema"])))
        self._complete_responses()

    def _complete_parameters(self) -> None:
        parameters = self._operation.get("parameters", [])
        for each in parameters:
            each["schema"] = _without_null(each["schema"])
        specific = [each for each in parameters if each["name"] != KEY_PARAMETER["name"]]
        common = ["X-Request-Id"] if self._is_public else ["X-Tellback-User", "X-Request-Id"]
        if self._accepts_key:
            common.append(KEY_PARAMETER["name"])
        references = [{"$ref": f"#/components/parameters/{name}"} for name in common]
        self._operation["parameters"] = [*specific, *references]

    def _complete_responses(self) -> None:
        responses: dict[str, Schema] = self._operation["responses"]
        if not self._is_public:
            for number, description in _COMMON_ERRORS.items():
                if number != 408 or "requestBody" in self._operation:
                    responses.setdefault(str(number), {"description": description})
            if self._accepts_key:
                responses.setdefault("409", {"description": _IN_PROGRESS})
        if self._is_openai:
            responses.pop("422", None)  # FastAPI adds it, but `/v1` responds with 400
        for status in list(responses):
            if int(status) < 400:
                self._complete_success(responses[status])
            else:
                responses[status] = self._error_reference(status, responses[status]["description"])
        self._operation["responses"] = {status: responses[status] for status in sorted(responses)}

    def _complete_success(self, response: Schema) -> None:
        if response["description"] == "Successful Response":
            response["description"] = "Success." if "content" not in response else "The result."
        headers = response.setdefault("headers", {})
        headers["X-Request-Id"] = _header_reference("X-Request-Id")
        if self._accepts_key:
            headers["Idempotency-Replayed"] = _header_reference("Idempotency-Replayed")
        for kind, media in response.get("content", {}).items():
            if kind == JSON_MEDIA_TYPE and media.get("schema"):
                media.setdefault("example", self._examples.build_response(media["schema"]))
            elif EVENTS_EXTENSION in media:
                media.setdefault("example", build_stream_example(media, self._examples))

    def _error_reference(self, status: str, description: str) -> Schema:
        """Return a reference to the shared description of an error status."""
        media, model = (JSON_MEDIA_TYPE, "ErrorOut") if self._is_openai else (PROBLEM_MEDIA_TYPE, "Problem")
        response = {
            "description": description,
            "headers": {name: _header_reference(name) for name in ("X-Request-Id", *_ERROR_HEADERS.get(status, ()))},
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{model}"}}},
        }
        for number in range(1, 100):
            name = f"{model}{status}" + ("" if number == 1 else f"_{number}")
            if self._shared.setdefault(name, response) == response:
                return {"$ref": f"#/components/responses/{name}"}
        raise AssertionError(f"Too many descriptions of status {status}")


def _header_reference(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


def _without_null(schema: Schema) -> Schema:
    """Drop null from a schema, where it cannot be sent or means the same as leaving the field out."""
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    if len(options) != len(schema.get("anyOf", ())) and len(options) == 1:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        return {**options[0], **rest}
    return {**schema, "anyOf": options} if options else schema
