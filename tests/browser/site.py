"""`tellback serve` for browser tests, with an environment without provider keys."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tests.integration.server.server_process import COMMAND, ROOT, ServerProcess

_PROVIDER_PREFIXES = ("TELLBACK_", "ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "OLLAMA_", "OPENROUTER_", "XAI_")
_CREDENTIAL_SUFFIXES = ("_API_KEY", "_AUTH_TOKEN", "_BASE_URL", "_PROXY", "_proxy")
CLEAN_ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(_PROVIDER_PREFIXES) and not name.endswith(_CREDENTIAL_SUFFIXES)
}


@dataclass(frozen=True, slots=True)
class Site:
    """A served console: its address, its store and its server process."""

    url: str
    store: Path
    process: ServerProcess

    def at(self, path: str = "/", **query: str) -> str:
        """Return the address of a page: `site.at("/memory", user="maya")`."""
        return f"{self.url}/console{path}" + (f"?{urlencode(query)}" if query else "")


@asynccontextmanager
async def serve_site(store: Path, *arguments: str, **environment: str) -> AsyncIterator[Site]:
    """Run a server on a store until the block ends. `arguments` are those of `tellback serve`."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--url",
        str(store),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**CLEAN_ENVIRONMENT, **environment},
        cwd=ROOT,
        limit=2**22,
    )
    served = ServerProcess(process)
    try:
        await served.wait_until_ready()
        yield Site(served.url, store, served)
    finally:
        await served.stop()
