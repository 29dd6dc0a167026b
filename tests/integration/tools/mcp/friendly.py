"""A well-behaved server on the SDK: `python friendly.py stdio`, or `python friendly.py http PORT [old]`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

server = MCPServer("friendly", log_level="ERROR")
call_count = 0


@server.tool()
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@server.tool(name="files.read")
def read(path: str) -> str:
    """Read a file."""
    return f"contents of {path}"


@server.tool()
def pid() -> str:
    """Return the process id."""
    return str(os.getpid())


@server.tool()
def variable(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "unset")


@server.tool()
def boom() -> str:
    """Fail."""
    raise ValueError("it went wrong")


@server.tool()
def weather(city: str) -> dict[str, Any]:
    """The weather."""
    return {"city": city, "celsius": 21}


@server.tool()
def picture() -> CallToolResult:
    """A picture with a caption."""
    return CallToolResult(
        content=[TextContent(text="A dot:"), ImageContent(data="iVBORw0KGgo=", mime_type="image/png")]
    )


@server.tool()
def documents() -> CallToolResult:
    """A document and a link to one."""
    return CallToolResult(
        content=[
            EmbeddedResource(resource=TextResourceContents(uri="note://1", text="Buy milk.")),
            ResourceLink(name="manual", uri="https://example.com/manual"),
            TextContent(text="That is all."),
        ]
    )


@server.tool()
def long(chars: int) -> str:
    """A long text."""
    return "x" * chars


@server.tool()
async def slow(seconds: float) -> str:
    """Take a while."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool()
async def count() -> str:
    """Return the number of calls."""
    global call_count
    call_count += 1
    return str(call_count)


@server.tool()
def crash() -> str:
    """End the process."""
    os._exit(3)


def without_discovery(app: Any) -> Any:
    """Wrap the application so that it only supports the protocol with sessions."""

    async def older(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-method") == b"server/discover":
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"what is this?"})
        else:
            await app(scope, receive, send)

    return older


def main() -> None:
    if sys.argv[1] == "stdio":
        print("friendly is up", file=sys.stderr, flush=True)
        server.run("stdio")
        return
    import uvicorn

    app: Any = server.streamable_http_app()
    if "old" in sys.argv:
        app = without_discovery(app)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
