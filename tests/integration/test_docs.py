"""Every Python block of the README and the docs runs, page by page, against a fake provider.

Blocks that contain a database URL are left out at first. For each such URL, the page runs again with these blocks and
the URL of a real server. The pages of the tutorial run in order in one folder, as a reader runs them: once with a
provider key, and once without any setup.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.chat.providers.vendors import Anthropic
from tests.support import fork_server
from tests.support.fake_http_server import FakeHttpServer, Reply, Request, sse_reply

ROOT = Path(__file__).parents[2]


def tutorial_pages() -> list[Path]:
    """Return the pages of the tutorial, in the order of its table."""
    folder = ROOT / "docs" / "tutorial"
    rows = re.findall(r"^\| \[.*?\]\((.*?)\)", (folder / "index.md").read_text(), re.MULTILINE)
    return [folder / name for name in rows]


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'^```python title="(\w+\.py)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TUTORIAL = {page: page.read_text() for page in tutorial_pages()}
WITH_SNIPPETS = [page for page in PAGES if BLOCK.search(page.read_text()) and page not in TUTORIAL]
SERVED = "http://127.0.0.1:8765"
"""The URL of the server in the tutorial; the test starts it at another URL."""
SERVERS = {
    "postgresql://app:secret@localhost/shop": ("PostgreSQL", "postgres_url"),
    "redis://localhost:6379/0": ("Redis", "redis_url"),
    "mongodb://localhost:27017/?replicaSet=rs0": ("MongoDB", "mongo_url"),
    "http://localhost:9200": ("OpenSearch", "opensearch_url"),
}
"""For each URL on a page: its backend, and the fixture with the URL of a real server."""
PATIENCE = 200
"""The time limit of a program in seconds, generous for busy machines."""
PYTEST_INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
ON_SERVERS = [
    pytest.param(page, address, id=f"{page.stem}-{backend}", marks=pytest.mark.backend(backend))
    for page in WITH_SNIPPETS
    for address, (backend, _) in SERVERS.items()
    if address in page.read_text()
]


def play_anthropic(request: Request) -> Reply:
    """Call the first tool once, then answer."""
    vendor = Anthropic()
    body = request.body
    has_tool_result = "tool_result" in str(body["messages"][-1])
    tools = [] if has_tool_result else body.get("tools", [])
    tool_calls: list[Any] = [("t1", tool["name"], example(tool["input_schema"])) for tool in tools[:1]]
    if not body.get("stream"):
        return vendor.response("" if tool_calls else "All is well.", tool_calls)
    return (
        vendor.streamed_calls(tool_calls)
        if tool_calls
        else sse_reply(*vendor.text_chunks("All is ", "well."), *vendor.final_chunks())
    )


def example(schema: Any) -> dict[str, Any]:
    values = {"string": "Lisbon", "integer": 1}
    return {name: values[schema["properties"][name]["type"]] for name in schema.get("required", ())}


def extract(page: Path, folder: Path, address: str = "", url: str = "") -> Path:
    """Write the blocks of a page to a script, without blocks for other servers; replace `address` by `url`."""
    script = folder / "snippets.py"
    others = SERVERS.keys() - {address}
    blocks = [block for block in BLOCK.findall(page.read_text()) if not any(other in block for other in others)]
    text = "\n\n".join(blocks)
    script.write_text(text.replace(address, url) if address else text)
    return script


async def run(script: Path, *before: str, has_key: bool = True) -> None:
    async with FakeHttpServer(play_anthropic) as wire:
        known_wire = wire if has_key else None
        if not before:
            code, text = await asyncio.to_thread(
                fork_server.run_script, script, env=environment(known_wire), seconds=PATIENCE
            )
            assert code == 0, text
            return
        process = await started(script.parent, *before, str(script), wire=known_wire)
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode == 0, output.decode()


def environment(wire: FakeHttpServer | None) -> dict[str, str]:
    """Return an environment without keys and addresses of this machine."""
    env = {"PATH": os.environ["PATH"], "OLLAMA_HOST": "127.0.0.1:9"}  # an unused port
    if wire is not None:
        env |= {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": wire.url}
    return env


async def started(folder: Path, *arguments: str, wire: FakeHttpServer | None = None) -> asyncio.subprocess.Process:
    """Start Python in the folder."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", *arguments),
        cwd=folder,
        env=environment(wire),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", WITH_SNIPPETS, ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_python_blocks_of_every_page_run(page: Path, tmp_path: Path) -> None:
    await run(extract(page, tmp_path))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "address"), ON_SERVERS)
async def test_python_blocks_with_a_database_url_run_on_the_real_server(
    page: Path, address: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    _, fixture = SERVERS[address]
    await run(extract(page, tmp_path, address, request.getfixturevalue(fixture)))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without setup"])
async def test_the_tutorial_runs_from_the_first_to_the_last_page(has_key: bool, tmp_path: Path) -> None:
    for page, text in TUTORIAL.items():
        for name, code in FILE.findall(text):
            (tmp_path / name).write_text(code)
            if name.startswith("test_") and not has_key:  # they use no key, so one run is enough
                await run(tmp_path / name, "-m", "pytest", "-q", "-p", "no:asyncio", has_key=False)
        if command := re.search(r"^\$ tellback (serve .*)$", text, re.MULTILINE):
            async with served(tmp_path, command[1]) as url:
                await run(extract(page, tmp_path, SERVED, url), has_key=has_key)
        elif BLOCK.search(text):
            await run(extract(page, tmp_path), has_key=has_key)


@asynccontextmanager
async def served(folder: Path, command: str) -> AsyncIterator[str]:
    """Start the server of a page on a free port, and yield its URL."""
    port = free_port()
    process = await started(folder, "-m", "tellback.cli", *shlex.split(command), "--port", str(port))
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while b"running at http" not in (line := await process.stdout.readline()):
                assert line, "the server exited before it was ready"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["add-a-session-adapter", "add-a-store"])
async def test_the_example_of_a_contributor_guide_passes_its_conformance_suite(page: str, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(PYTEST_INI)
    await run(extract(ROOT / "docs" / "contributing" / f"{page}.md", tmp_path), "-m", "pytest", "-q")


def test_enough_python_blocks_are_found() -> None:
    assert sum(len(BLOCK.findall(page.read_text())) for page in PAGES) >= 15


def test_links_between_pages_are_valid() -> None:
    others = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "docs/llms.txt")
    for page in [*PAGES, *(ROOT / name for name in others)]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
