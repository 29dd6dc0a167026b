"""Names of a package that are loaded from their modules when they are first used, so that importing it stays light."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names_by_module(exports: Mapping[str, str]) -> dict[str, str]:
    """Each name with its module, of modules with their names in one text.

    >>> names_by_module({"tellback.tools": "Tool tool"})
    {'Tool': 'tellback.tools', 'tool': 'tellback.tools'}
    """
    return {name: module for module, names in exports.items() for name in names.split()}


def lazy_exports(
    package: str, exports: Mapping[str, str], unlisted: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package. `unlisted` can be imported as well, but are not shown."""
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
