"""The documentation site: complete, built without warnings, and self-contained. `make docs` builds the same site."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tools.reference import MODULES, WRITERS, explained_at

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONFIG = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
LOADING = dict.fromkeys(("script", "img", "iframe", "source", "video", "audio", "embed"), "src")


def listed(entries: Any) -> Iterator[str]:
    """Yield the pages in a part of the navigation."""
    for entry in entries if isinstance(entries, list) else [entries]:
        if isinstance(entry, dict):
            for inner in entry.values():
                yield from listed(inner)
        else:
            yield entry


def test_every_page_is_in_the_navigation_once() -> None:
    listed_pages = sorted(listed(CONFIG["nav"]))
    assert listed_pages == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


@pytest.mark.parametrize("name", WRITERS)
def test_generated_pages_are_up_to_date(name: str) -> None:
    page = DOCS / "reference" / name
    assert page.read_text() == WRITERS[name](), "run `python tools/reference.py`"


class ResourceParser(HTMLParser):
    """Collects the resources that a browser would load, and the diagrams that would load a script."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if (name := LOADING.get(tag)) and (address := values.get(name)):
            self.addresses.append(address)
        if tag == "link" and values.get("rel") not in ("canonical", "prev", "next", "alternate"):
            self.addresses.append(values.get("href") or "")
        if "mermaid" in (values.get("class") or "").split():
            self.addresses.append("https://unpkg.com/mermaid")


def loaded(site: Path) -> Iterator[tuple[str, str]]:
    for page in site.rglob("*.html"):
        parser = ResourceParser()
        parser.feed(text := page.read_text())
        for address in [*parser.addresses, *re.findall(r"@import\s+[\"']([^\"']+)", text)]:
            yield page.name, address
    for sheet in site.rglob("*.css"):
        for address in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", sheet.read_text()):
            yield sheet.name, address


def documented(site: Path) -> set[str]:
    """Return the documented names from the inventory of the site."""
    head, packed = (site / "objects.inv").read_bytes().split(b"zlib.\n", 1)
    assert head.startswith(b"# Sphinx inventory version 2")
    return {line.partition(" ")[0] for line in zlib.decompress(packed).decode().splitlines()}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_site_builds_without_warnings_documents_every_name_and_loads_no_external_resources(
    tmp_path: Path,
) -> None:
    for folder in ("docs", "tools"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "src").symlink_to(ROOT / "src")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert completed.returncode == 0, completed.stderr
    assert "No issues found" in completed.stdout + completed.stderr

    site = tmp_path / CONFIG["site_dir"]
    exported = {explained_at(name) for name in MODULES}
    assert exported - documented(site) == set()
    assert [found for found in loaded(site) if re.match(r"(https?:)?//", found[1])] == []
    index = json.loads((site / "search.json").read_text())
    assert any("vegetarian" in item["text"] for item in index["items"])
    agents = (site / "reference/python/agent.html").read_text()
    assert "language-pycon" in agents  # examples are shown as code,
    assert "<blockquote>" not in agents  # not as Markdown quotations
