"""The reference of the server lists exactly its operations, errors and limits."""

from __future__ import annotations

import re
from pathlib import Path

from tellback import Tellback
from tellback.server import ServerSettings, create_app
from tellback.wire.problems import ERROR_CODES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "rest.md").read_text()


def test_the_rest_page_lists_exactly_the_operations() -> None:
    paths = create_app(Tellback(":memory:")).openapi()["paths"]
    operations = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert set(re.findall(r"^\| `([A-Z]+ /\S+)` \|", PAGE, re.MULTILINE)) == operations


def test_the_rest_page_lists_every_error_with_status_and_code() -> None:
    documented = set(re.findall(r"^\| (\d{3}) \| `([a-z-]+)` \|", PAGE, re.MULTILINE))
    assert {(str(status), code) for _, status, code in ERROR_CODES} <= documented
    for kind, status, code in ERROR_CODES[:-1]:
        assert re.search(rf"^\| {status} \| `{code}` \| `{kind.__name__}`", PAGE, re.MULTILINE), kind.__name__


def test_the_limits_are_the_defaults_of_the_settings() -> None:
    settings = ServerSettings()
    for name, documented_value in {
        "rate_limit": f"{settings.rate_limit}",
        "concurrency": f"{settings.concurrency}",
        "failure_limit": f"{settings.failure_limit}",
        "body_bytes": f"{settings.body_bytes // 1_000_000} MB, within {settings.body_seconds:g} seconds",
        "text_length": f"{settings.text_length:,} characters",
        "page_size": f"{settings.page_size}, at most {settings.largest_page}",
    }.items():
        assert re.search(rf"^\| [^|]+ \| {documented_value}[^|]* \| `{name}`", PAGE, re.MULTILINE), name
