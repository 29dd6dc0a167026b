"""Use the memory from an MCP client, as a desktop assistant, editor or agent does.

    python examples/mcp_memory.py [FILE]

MCP hosts start `tellback mcp` and communicate over standard input and output. This program does the same with the
official MCP client: it stores, corrects and recalls memories. No model is needed, because the host has its own. The
data is stored in FILE (default: memory.db).
"""

import json
import sys
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from example_helpers import run


async def main(path: str) -> None:
    """Call the tools as an assistant's model would."""
    command = ["-m", "tellback.cli", "mcp", "--url", path, "--user", "maya"]
    entry = {"mcpServers": {"memory": {"command": "tellback", "args": command[2:]}}}
    print(f"[configuration for your assistant: {json.dumps(entry)}]")

    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        print(f"[tools: {', '.join(tool.name for tool in (await client.list_tools()).tools)}]")

        async def call(name: str, **arguments: str) -> Any:
            result = await client.call_tool(name, arguments)
            assert result.structured_content is not None, result.content
            return result.structured_content

        stored = await call("remember", text="Maya lives in Porto.", category="FACT")
        print(f"remember: {stored['memory']['text']}")
        atom_id = stored["memory"]["id"]
        replaced = await call("remember", text="Maya lives in Lisbon.", category="FACT", replaces=atom_id)
        print(f"remember: {replaced['memory']['text']}")
        recalled = await call("recall", query="Where does Maya live?")
        print(f"recall: {[memory['text'] for memory in recalled['memories']]}")
        timeline = await call("timeline", query="where Maya lives")
        print(f"timeline: {[memory['text'] for memory in timeline['memories']]}")


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "memory.db"))
