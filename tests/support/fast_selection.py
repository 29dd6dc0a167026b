"""A pytest plugin for `make test-fast`: unit tests, doctests, and the conformance tests on the in-memory store.

It deselects tests marked `slow`, and those of `tests/conformance` that use SQLite files or PostgreSQL. Property tests
run with fewer examples.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tellback-fast", deadline=None, max_examples=10)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files that are entirely slow, without importing them."""
    if collection_path.suffix == ".py" and "\npytestmark = pytest.mark.slow\n" in collection_path.read_text("utf-8"):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect everything but the fast tests."""
    settings.load_profile("tellback-fast")
    config.hook.pytest_deselected(items=[item for item in items if not _is_fast(item)])
    items[:] = filter(_is_fast, items)


def _is_fast(item: pytest.Item) -> bool:
    if item.get_closest_marker("slow") is not None:
        return False
    if "conformance" not in item.path.parts:
        return True
    fixtures = getattr(item, "fixturenames", ())
    if any("postgres" in name for name in fixtures):
        return False
    store = getattr(item, "callspec", None)
    if store is not None and "url" in store.params:
        return bool(store.params["url"] == "memory")
    test_class = getattr(item, "cls", None)
    return test_class is None or not test_class.__name__.startswith(("TestSqlite", "TestPostgres"))
