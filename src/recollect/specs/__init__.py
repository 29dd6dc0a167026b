"""Agents described in JSON or YAML: one description serves every user, with values bound when it is invoked.

Names are loaded when first used: a description is checked with pydantic, which not every program needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "AgentSpec": "recollect.specs.model",
    "Agents": "recollect.specs.handle",
    "BoundSpec": "recollect.specs.model",
    "Parameter": "recollect.specs.parameters",
    "SpecRegistry": "recollect.specs.registry",
    "bind": "recollect.specs.binding",
    "load_spec": "recollect.specs.loading",
}

if TYPE_CHECKING:
    from recollect.specs.binding import bind as bind
    from recollect.specs.handle import Agents as Agents
    from recollect.specs.loading import load_spec as load_spec
    from recollect.specs.model import AgentSpec as AgentSpec
    from recollect.specs.model import BoundSpec as BoundSpec
    from recollect.specs.parameters import Parameter as Parameter
    from recollect.specs.registry import SpecRegistry as SpecRegistry

__all__ = ["AgentSpec", "Agents", "BoundSpec", "Parameter", "SpecRegistry", "bind", "load_spec"]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value
