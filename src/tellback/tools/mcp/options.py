"""How an MCP server is reached, its limits, and which of its tools are used."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.tools.mcp.tool_list import McpToolInfo

ApprovalRule = bool | Collection[str] | Callable[[McpToolInfo], bool]
"""Which tools need approval: all or none, those named as the server names them, or those a function picks."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")


@dataclass(frozen=True, slots=True)
class StdioTarget:
    """A server to start as a child process and to talk to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        for name, value in (("command", (self.command,)), ("args", self.args), ("env", _flatten_pairs(self.env))):
            if not all(isinstance(text, str) for text in value):
                raise InvalidArgumentError(f"{name} cannot be used: pass text only.")


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A server to talk to over streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.host:
            raise InvalidArgumentError("The url of an MCP server must be a whole http:// or https:// address.")
        if not all(isinstance(text, str) for text in _flatten_pairs(self.headers)):
            raise InvalidArgumentError("headers cannot be used: pass a mapping of text to text.")

    @property
    def host(self) -> str:
        """The name of the machine, or nothing if the url is none."""
        try:
            parts = urlsplit(self.url)
        except (ValueError, TypeError, AttributeError):
            return ""
        return (parts.hostname or "") if parts.scheme in ("http", "https") else ""


Target = StdioTarget | HttpTarget


class SessionLost(Exception):
    """The request was not done, or may be done again: a new connection can take it."""


@dataclass(frozen=True, slots=True)
class McpOptions:
    """Limits in seconds and characters, and the choice of tools."""

    connect_timeout: float = 30
    call_timeout: float = 60
    max_result_chars: int = 100_000
    prefix: str | None = None
    only: Collection[str] | None = None
    requires_approval: ApprovalRule = False

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "call_timeout", "max_result_chars"):
            _validate_number(name, getattr(self, name), is_integer=name == "max_result_chars")
        if self.prefix is not None and not (isinstance(self.prefix, str) and _PREFIX.match(self.prefix)):
            raise InvalidArgumentError(
                f"prefix={self.prefix!r} cannot start a tool's name: use 1 to 32 letters, digits, '_' and '-'."
            )
        if self.only is not None:
            _validate_names("only", self.only, "a list of names")
        if not isinstance(self.requires_approval, bool) and not callable(self.requires_approval):
            _validate_names("requires_approval", self.requires_approval, "True, False, a list of names, or a function")

    def needs_approval(self, tool: McpToolInfo) -> bool:
        """Whether the loop must stop and ask before it runs the tool."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        if not callable(self.requires_approval):
            return tool.name in self.requires_approval
        try:
            return bool(self.requires_approval(tool))
        except Exception as error:  # it is the user's function, and may raise anything
            raise ConfigurationError(
                f"requires_approval={self.requires_approval!r} failed for the tool {tool.name!r}:"
                f" {type(error).__name__}: {error}. It must take an McpToolInfo and return True or False."
            ) from error


def validate_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, if they can be sent; one that cannot would take the whole connection down."""
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The arguments of an MCP tool must be plain JSON: {error}") from error
    return dict(arguments)


def _flatten_pairs(pairs: Mapping[str, str] | None) -> tuple[object, ...]:
    if pairs is not None and not isinstance(pairs, Mapping):
        return (pairs, None)
    return (*(pairs or {}), *(pairs or {}).values())


def _validate_number(name: str, value: object, *, is_integer: bool) -> None:
    is_number = isinstance(value, int if is_integer else (int, float)) and not isinstance(value, bool)
    if not is_number or not value > 0 or value == math.inf:  # type: ignore[operator]
        kind = "a whole number" if is_integer else "a number of seconds"
        raise InvalidArgumentError(f"{name}={value!r} cannot be used: pass {kind}, more than 0.")


def _validate_names(option: str, names: object, expected: str) -> None:
    if isinstance(names, (str, bytes)) or not isinstance(names, Collection):
        raise InvalidArgumentError(f"{option}={names!r} cannot be used: pass {expected}.")
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"{option}={names!r} holds what is no name: pass {expected}.")


async def finish_tasks(tasks: Collection[asyncio.Task[Any]], seconds: float) -> None:
    """Wait for the end of tasks, then cancel what is left.

    Being cancelled meanwhile does not stop it, and is raised at the end: a child process must not be left behind.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    cancelled: asyncio.CancelledError | None = None
    while (pending := {task for task in tasks if not task.done()}) and (remaining := deadline - loop.time()) > 0:
        try:
            await asyncio.wait(pending, timeout=remaining)
        except asyncio.CancelledError as error:
            cancelled = error
    if pending:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=1)
    if cancelled is not None:
        raise cancelled
