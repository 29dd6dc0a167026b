"""How a server is reached, and what is taken from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recollect.errors import InvalidArgumentError
from recollect.tools.mcp.listing import McpToolInfo

Approval = bool | Collection[str] | Callable[[McpToolInfo], bool]
"""Which tools need approval: all or none, those named as the server names them, or those a function picks."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,32}\Z")


@dataclass(frozen=True, slots=True)
class Program:
    """A server to start as a child process and to talk to over its standard input and output."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None


@dataclass(frozen=True, slots=True)
class Address:
    """A server to talk to over streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)


Target = Program | Address


class SessionGone(Exception):
    """The request was not done, or may be done again: a new connection can take it."""


@dataclass(frozen=True, slots=True)
class Options:
    """Limits in seconds and characters, and the choice of tools."""

    connect_timeout: float = 30
    call_timeout: float = 60
    max_result_chars: int = 100_000
    prefix: str | None = None
    only: Collection[str] | None = None
    requires_approval: Approval = False

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "call_timeout", "max_result_chars"):
            if not getattr(self, name) > 0:
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r} cannot be used: pass more than 0.")
        if self.prefix is not None and not _PREFIX.match(self.prefix):
            raise InvalidArgumentError(
                f"prefix={self.prefix!r} cannot start a tool's name: use 1 to 32 letters, digits, '_' and '-'."
            )
        for name in ("only", "requires_approval"):
            if isinstance(getattr(self, name), str):
                raise InvalidArgumentError(f"{name}={getattr(self, name)!r} is one text: pass a list of names.")

    def needs_approval(self, tool: McpToolInfo) -> bool:
        """Whether the loop must stop and ask before it runs the tool."""
        if isinstance(self.requires_approval, bool):
            return self.requires_approval
        if callable(self.requires_approval):
            return bool(self.requires_approval(tool))
        return tool.name in self.requires_approval
