"""What a server lists: the tools that can be used, and those that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tellback.tools.mcp.schemas import UnusableSchema, count_schema_chars, normalize_schema
from tellback.types.jsontext import is_storable

MAX_DESCRIPTION = 4_000
MAX_LISTED_NAME = 200
MAX_TOOLS = 2_000
MAX_LISTING_CHARS = 1_000_000
_HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class RefusedTool(NamedTuple):
    """A tool that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class McpToolInfo:
    """A tool as its server describes it.

    `hints` are what the server claims, such as `{"readOnlyHint": True}`: believe them only if you trust the server.

    >>> McpToolInfo("read", "Read a file.", {"type": "object"}).hints
    {}
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    hints: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolListing:
    """All the tools of a server at one time."""

    tools: tuple[McpToolInfo, ...] = ()
    refused: tuple[RefusedTool, ...] = ()


class ToolListTooLarge(ValueError):
    """A list of tools is too long; the message says what is the limit."""


class ToolListPages:
    """The pages of one list of tools, each cleaned of what cannot be used, up to a limit for all together."""

    def __init__(self) -> None:
        self.refused: list[RefusedTool] = []
        self.usable_names: list[str] = []
        self._tool_count = self._char_count = 0

    def filter_page(self, page: Mapping[str, Any]) -> dict[str, Any]:
        """A page with the usable tools only, so that one bad entry does not cost the others."""
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
        raise UnusableSchema(f"it is listed as {type(entry).__name__}, not as an object")
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_LISTED_NAME or not is_storable(name):
        raise UnusableSchema(f"its name is not a text of 1 to {MAX_LISTED_NAME} characters")
    return {
        "name": name,
        "description": _parse_description(entry),
        "inputSchema": normalize_schema(entry.get("inputSchema")),
        "annotations": _parse_hints(entry.get("annotations")),
    }


def _parse_description(entry: Mapping[str, Any]) -> str:
    for key in ("description", "title"):
        text = entry.get(key)
        if isinstance(text, str) and text.strip():
            text = text.encode("utf-8", "replace").decode()
            return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…"
    return ""


def _parse_hints(annotations: Any) -> dict[str, bool]:
    if not isinstance(annotations, dict):
        return {}
    return {key: annotations[key] for key in _HINT_NAMES if isinstance(annotations.get(key), bool)}


def _format_label(entry: Any, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name[:MAX_LISTED_NAME] if isinstance(name, str) and name else f"(tool {number})"
