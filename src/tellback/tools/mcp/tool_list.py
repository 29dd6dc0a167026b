"""Validate the tools that an MCP server lists, and convert their schemas and results."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tellback.tools.json_schema import find_node_error, resolve_reference, subschemas
from tellback.tools.schema import Bind, InvalidInput
from tellback.types import MessagePart, ToolResult, audio_part, flatten_parts, image_part, render_part, text_part
from tellback.types.jsontext import dump_json, is_storable, validate_depth

MAX_BLOCKS = 1_000
MAX_MEDIA_CHARS = 20_000_000
MAX_MEDIA = 100
_SEPARATOR = "\n\n"
_MIME = re.compile(r"(?=.{1,100}\Z)[a-z]+/[a-z0-9!#$&^_.+-]+", re.IGNORECASE)

MAX_TOOL_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")

MAX_SCHEMA_CHARS = 20_000
MAX_DEPTH = 60

_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}
_REF_KEYWORDS = ("$dynamicRef", "$recursiveRef", "$ref")

MAX_DESCRIPTION = 4_000
MAX_LISTED_NAME = 200
MAX_TOOLS = 2_000
MAX_LISTING_CHARS = 1_000_000
_HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def limit_blocks(answer: dict[str, Any]) -> dict[str, Any]:
    """Limit the number of content blocks in the answer to `tools/call`."""
    content = answer.get("content")
    if not isinstance(content, list) or len(content) <= MAX_BLOCKS:
        return answer
    note = {"type": "text", "text": f"[truncated: the first {MAX_BLOCKS} of {len(content)} blocks are shown]"}
    return {**answer, "content": [*content[:MAX_BLOCKS], note]}


def to_tool_result(answer: Mapping[str, Any], max_chars: int) -> ToolResult:
    """Convert the answer to `tools/call` to a result; `value` is the structured content, if any.

    >>> to_tool_result({"content": [{"type": "text", "text": "Sunny"}]}, 1_000).content
    'Sunny'
    """
    parts = _limit_media(answer.get("content", ()))
    structured, structured_text = _render_structured(answer.get("structuredContent"))
    if not parts and structured_text:
        parts = [text_part(structured_text)]
    parts = _truncate(parts, max_chars)
    is_text_only = all(part.kind == "text" for part in parts)
    return ToolResult(
        id="",
        content=flatten_parts(parts),
        is_error=bool(answer.get("isError")),
        parts=None if is_text_only else tuple(parts),
        value=structured,
    )


def _render_structured(value: Any) -> tuple[Any, str]:
    if value is None:
        return None, ""
    try:
        return value, dump_json(value)
    except RecursionError:
        return None, "[structured content left out: nested too deeply]"


def _decode_block(block: Mapping[str, Any]) -> MessagePart:
    kind = block.get("type")
    if kind == "text":
        return text_part(str(block.get("text", "")))
    if kind in ("image", "audio"):
        return _decode_media(block)
    if kind == "resource_link":
        label = block.get("title") or block.get("name") or ""
        about = f"\n{block['description']}" if block.get("description") else ""
        return text_part(f"[link: {label} {block.get('uri', '')}]{about}")
    if kind == "resource":
        return text_part(_render_resource(block.get("resource") or {}))
    return text_part(f"[{kind}: unsupported content type]")


def _decode_media(block: Mapping[str, Any]) -> MessagePart:
    kind, data, mime = block["type"], str(block.get("data", "")), str(block.get("mimeType") or "")
    if not mime.startswith(f"{kind}/") or not _MIME.fullmatch(mime):
        return text_part(f"[{kind} left out: invalid MIME type {mime!r:.80}]")
    try:
        is_empty = not base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return text_part(f"[{kind} left out: its data is not base64]")
    if is_empty:
        return text_part(f"[{kind} left out: it is empty]")
    return image_part(data=data, mime=mime) if kind == "image" else audio_part(data=data, mime=mime)


def _render_resource(resource: Mapping[str, Any]) -> str:
    uri = resource.get("uri", "")
    if isinstance(resource.get("text"), str):
        return f"[resource: {uri}]\n{resource['text']}"
    mime = resource.get("mimeType") or "unknown type"
    return f"[resource: {uri}, {mime}, {len(str(resource.get('blob', ''))) * 3 // 4} bytes of binary data]"


def _limit_media(content: Sequence[Any]) -> list[MessagePart]:
    """Convert the blocks to parts; replace images and audio beyond the count or size limit with notes."""
    parts: list[MessagePart] = []
    count = size = 0
    for block in content:
        if block.get("type") in ("image", "audio"):
            chars = len(str(block.get("data", "")))
            count, size = count + 1, size + chars
            if count > MAX_MEDIA or size > MAX_MEDIA_CHARS:
                parts.append(text_part(f"[{block['type']} left out: over the limit of media, {chars} characters]"))
                continue
        part = _decode_block(block)
        if part.kind != "text" or part.text:
            parts.append(part)
    return parts


def _truncate(parts: list[MessagePart], max_chars: int) -> list[MessagePart]:
    """Truncate the text of the parts to `max_chars` as rendered, with a note."""
    lengths = [len(render_part(part)) + len(_SEPARATOR) for part in parts]
    total = sum(lengths) - len(_SEPARATOR)
    if total <= max_chars:
        return parts
    truncated: list[MessagePart] = []
    remaining = max_chars - sum(chars for part, chars in zip(parts, lengths, strict=True) if part.kind != "text")
    for part, chars in zip(parts, lengths, strict=True):
        if part.kind != "text":
            truncated.append(part)
        elif remaining > 0:
            truncated.append(text_part((part.text or "")[:remaining]))
            remaining -= chars
    truncated.append(text_part(f"[truncated: the first {max_chars} of {total} characters are shown]"))
    return truncated


def assign_legal_names(names: Sequence[str], prefix: str | None = None) -> dict[str, str]:
    """Map the server's tool names to valid, unique and stable names.

    Invalid characters become `_`. If two names collide or a name is too long, the changed names get a digest suffix.

    >>> assign_legal_names(["read", "files.read"], prefix="disk")
    {'read': 'disk_read', 'files.read': 'disk_files_read'}
    """
    wanted = {name: f"{prefix}_{name}" if prefix else name for name in names}
    cleaned = {name: _ILLEGAL.sub("_", wish) for name, wish in wanted.items()}
    counts = Counter(cleaned.values())
    return {
        name: clean
        if len(clean) <= MAX_TOOL_NAME and (clean == wanted[name] or counts[clean] == 1)
        else _append_digest(clean, name)
        for name, clean in cleaned.items()
    }


def _append_digest(clean: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{clean[: MAX_TOOL_NAME - 11]}_{digest}"


class UnusableSchema(ValueError):
    """A tool's input schema cannot be used."""


def normalize_schema(schema: Any) -> dict[str, Any]:
    """Convert a schema to a form that providers accept, or raise `UnusableSchema`. Nothing is fetched.

    The schema is validated here, because a single invalid schema makes a provider reject the whole request.

    >>> normalize_schema({"properties": {"x": {"type": "integer"}}})["type"]
    'object'
    """
    if not isinstance(schema, dict):
        raise UnusableSchema(f"its input schema must be an object, got {type(schema).__name__}")
    if schema.get("type", "object") != "object":
        raise UnusableSchema(f"its input schema must have the type 'object', got {schema['type']!r:.80}")
    if count_schema_chars(schema) > MAX_SCHEMA_CHARS:
        raise UnusableSchema(f"its input schema has more than {MAX_SCHEMA_CHARS} characters")
    try:
        validate_depth(schema, MAX_DEPTH)
    except ValueError:
        raise UnusableSchema(f"its input schema is nested more than {MAX_DEPTH} levels deep") from None
    root = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "id")}
    pending: list[Any] = [root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, bool) or id(node) in seen:
            continue
        if (error := find_node_error(node)) is not None:
            raise UnusableSchema(f"its input schema is invalid: {error}")
        if node is not root and "$id" in node:
            raise UnusableSchema("its input schema contains a subschema with an $id")
        seen.add(id(node))
        pending.extend(subschemas(node))
        pending.extend(node[key] for key in ("additionalItems",) if key in node)  # a keyword of older drafts
        pending.extend(_resolve_reference(node[key], root) for key in _REF_KEYWORDS if key in node)
    return {"properties": {}, **root, "type": "object"}


def count_schema_chars(schema: Any) -> int:
    """Return the length of a schema as JSON."""
    try:
        return len(json.dumps(schema))
    except RecursionError:
        raise UnusableSchema(f"its input schema is nested more than {MAX_DEPTH} levels deep") from None


def build_shallow_binder(schema: Mapping[str, Any]) -> Bind:
    """Build a fast input validation, one level deep: the server validates the rest, and may send malicious schemas."""
    required = schema.get("required", [])
    properties = schema.get("properties", {})
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema

    def bind(values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        for name in required:
            if name not in values:
                raise InvalidInput(f"{name!r:.200} is a required property")
        for name, value in values.items():
            if name in properties:
                _validate_value(name, value, properties[name])
            elif is_closed:
                raise InvalidInput(f"{name!r:.200} is not a property of this tool")
        return [], dict(values)

    return bind


def _validate_value(name: str, value: Any, schema: Any) -> None:
    if not isinstance(schema, dict):
        return
    declared = schema.get("type", [])
    kinds = [declared] if isinstance(declared, str) else declared
    if kinds and not any(_is_of_type(value, kind) for kind in kinds):
        raise InvalidInput(f"{name:.200}: {value!r:.80} is not of type {' or '.join(map(repr, kinds))}")
    if "enum" in schema and value not in schema["enum"]:
        raise InvalidInput(f"{name:.200}: {value!r:.80} is not one of {schema['enum']!r:.300}")


def _is_of_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[kind])


def _resolve_reference(ref: Any, root: Any) -> Any:
    if not isinstance(ref, str) or not ref.startswith("#"):
        raise UnusableSchema(f"its input schema has the external reference {ref!r:.120}, which is not fetched")
    node = resolve_reference(ref, root)
    if node is None:
        raise UnusableSchema(f"its input schema refers to {ref!r:.120}, which it does not contain")
    return node


class RefusedTool(NamedTuple):
    """A rejected tool and the reason.

    `McpServer.refused` contains them:

    >>> name, reason = RefusedTool("search", "its input schema must be an object, got NoneType")
    >>> f"{name} is left out: {reason}."
    'search is left out: its input schema must be an object, got NoneType.'
    """

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class McpToolInfo:
    """A tool as described by its server.

    `hints` are claims of the server, such as `{"readOnlyHint": True}`: rely on them only if you trust the server.

    >>> McpToolInfo("read", "Read a file.", {"type": "object"}).hints
    {}
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolListing:
    """All tools of a server at one time."""

    tools: tuple[McpToolInfo, ...] = ()
    refused: tuple[RefusedTool, ...] = ()


class ToolListTooLarge(ValueError):
    """A list of tools exceeds a limit."""


class ToolListPages:
    """Removes unusable tools from the pages of one tool list, and enforces limits over all pages."""

    def __init__(self) -> None:
        self.refused: list[RefusedTool] = []
        self.usable_names: list[str] = []
        self._tool_count = self._char_count = 0

    def filter_page(self, page: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page with only the usable tools, so that one bad entry does not affect the others."""
        self._tool_count += len(page["tools"])
        if self._tool_count > MAX_TOOLS:
            raise ToolListTooLarge(f"it lists more than {MAX_TOOLS} tools")
        usable: list[dict[str, Any]] = []
        for number, entry in enumerate(page["tools"], 1):
            try:
                usable.append(self._normalize_entry(entry))
            except UnusableSchema as problem:
                self.refused.append(RefusedTool(_format_label(entry, number), str(problem)))
        self.usable_names = [tool["name"] for tool in usable]
        return {**page, "tools": usable}

    def _normalize_entry(self, entry: Any) -> dict[str, Any]:
        tool = _normalize_tool(entry)
        self._char_count += len(tool["description"]) + count_schema_chars(tool["inputSchema"])
        if self._char_count > MAX_LISTING_CHARS:
            raise ToolListTooLarge(f"its list of tools has more than {MAX_LISTING_CHARS} characters")
        return tool


def _normalize_tool(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UnusableSchema(f"its list entry must be an object, got {type(entry).__name__}")
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_LISTED_NAME or not is_storable(name):
        raise UnusableSchema(f"its name must be a string of 1 to {MAX_LISTED_NAME} characters")
    annotations = entry.get("annotations")
    hints = annotations if isinstance(annotations, dict) else {}
    return {
        "name": name,
        "description": _parse_description(entry),
        "inputSchema": normalize_schema(entry.get("inputSchema")),
        "annotations": {key: hints[key] for key in _HINT_NAMES if isinstance(hints.get(key), bool)},
    }


def _parse_description(entry: Mapping[str, Any]) -> str:
    for key in ("description", "title"):
        text = entry.get(key)
        if isinstance(text, str) and text.strip():
            text = text.encode("utf-8", "replace").decode()
            return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…"
    return ""


def _format_label(entry: Any, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name[:MAX_LISTED_NAME] if isinstance(name, str) and name else f"(tool {number})"
