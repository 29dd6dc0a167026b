"""What a server lists: the tools that can be used, and those that are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tellback.tools.mcp.schemas import UnusableSchema, schema_chars, usable_schema
from tellback.types.jsontext import is_storable

MAX_DESCRIPTION = 4_000
MAX_NAME = 200
MAX_TOOLS = 2_000
MAX_CHARS = 1_000_000
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


class Refused(NamedTuple):
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
class Listing:
    """All the tools of a server at one time."""

    tools: tuple[McpToolInfo, ...] = ()
    refused: tuple[Refused, ...] = ()


class TooMuch(ValueError):
    """A list of tools is too long; the message says what is the limit."""


class Pages:
    """The pages of one list of tools, each cleaned of what cannot be used, up to a limit for all together."""

    def __init__(self) -> None:
        self.refused: list[Refused] = []
        self.kept: list[str] = []
        self._tools = self._chars = 0

    def clean(self, page: Mapping[str, Any]) -> dict[str, Any]:
        """A page with the usable tools only, so that one bad entry does not cost the others."""
        self._tools += len(page["tools"])
        if self._tools > MAX_TOOLS:
            raise TooMuch(f"it lists more than {MAX_TOOLS} tools")
        kept: list[dict[str, Any]] = []
        for number, entry in enumerate(page["tools"], 1):
            try:
                kept.append(self._usable(entry))
            except UnusableSchema as problem:
                self.refused.append(Refused(_label(entry, number), str(problem)))
        self.kept = [tool["name"] for tool in kept]
        return {**page, "tools": kept}

    def _usable(self, entry: Any) -> dict[str, Any]:
        tool = _clean_tool(entry)
        self._chars += len(tool["description"]) + schema_chars(tool["inputSchema"])
        if self._chars > MAX_CHARS:
            raise TooMuch(f"its list of tools has more than {MAX_CHARS} characters")
        return tool


def _clean_tool(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise UnusableSchema(f"it is listed as {type(entry).__name__}, not as an object")
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not is_storable(name):
        raise UnusableSchema(f"its name is not a text of 1 to {MAX_NAME} characters")
    return {
        "name": name,
        "description": _description(entry),
        "inputSchema": usable_schema(entry.get("inputSchema")),
        "annotations": _hints(entry.get("annotations")),
    }


def _description(entry: Mapping[str, Any]) -> str:
    for key in ("description", "title"):
        text = entry.get(key)
        if isinstance(text, str) and text.strip():
            text = text.encode("utf-8", "replace").decode()
            return text if len(text) <= MAX_DESCRIPTION else f"{text[: MAX_DESCRIPTION - 1]}…"
    return ""


def _hints(annotations: Any) -> dict[str, bool]:
    if not isinstance(annotations, dict):
        return {}
    return {key: annotations[key] for key in _HINTS if isinstance(annotations.get(key), bool)}


def _label(entry: Any, number: int) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name[:MAX_NAME] if isinstance(name, str) and name else f"(tool {number})"
