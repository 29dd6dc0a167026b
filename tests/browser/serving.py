"""`tellback serve` for a browser, with no key of anyone in its environment: no vendor answers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.integration.server.processes import COMMAND, ROOT, Served

_FOREIGN = ("TELLBACK_", "ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "OLLAMA_", "OPENROUTER_", "XAI_")
_ENDS = ("_API_KEY", "_AUTH_TOKEN", "_BASE_URL", "_PROXY", "_proxy")
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN) and not name.endswith(_ENDS)
}


@dataclass(frozen=True, slots=True)
class Site:
    """A console that is served: its address, its store, and the process behind it."""

    url: str
    store: Path
    process: Served

    def at(self, path: str = "/", **query: str) -> str:
        """The address of a page: `site.at("/memory", user="maya")`."""
        return f"{self.url}/console{path}" + (f"?{urlencode(query)}" if query else "")


@asynccontextmanager
async def site_of(store: Path, *arguments: str, **environment: str) -> AsyncIterator[Site]:
    """A server on a store, which is ended with the block. `arguments` are those of `tellback serve`."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--url",
        str(store),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**CLEAN, **environment},
        cwd=ROOT,
        limit=2**22,
    )
    served = Served(process)
    try:
        await served.begin()
        yield Site(served.url, store, served)
    finally:
        await served.end()
