"""Lazy exports: load the names of a package from their modules on first use, so that its import stays fast."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names_by_module(exports: Mapping[str, str]) -> dict[str, str]:
    """Return the module of each name, from a mapping of modules to space-separated names.

    >>> names_by_module({"tellback.tools": "Tool tool"})
    {'Tool': 'tellback.tools', 'tool': 'tellback.tools'}
    """
    return {name: module for module, names in exports.items() for name in names.split()}


def lazy_exports(
    package: str, exports: Mapping[str, str], unlisted: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package. `unlisted` names are importable, but not listed."""
    modules, hidden = names_by_module(exports), names_by_module(unlisted or {})

    def load(name: str) -> Any:
        module = modules.get(name) or hidden.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(module), name)
        if name in modules:
            setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return sorted(modules), load, list_names
