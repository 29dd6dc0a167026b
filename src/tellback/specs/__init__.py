"""Agents described in JSON or YAML: one description serves every user, with values bound when it is invoked.

Names are loaded when first used: a description is checked with pydantic, which not every program needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tellback.specs.agents import Agents as Agents
    from tellback.specs.agents import SpecRegistry as SpecRegistry
    from tellback.specs.arguments import bind as bind
    from tellback.specs.loader import load_spec as load_spec
    from tellback.specs.model import AgentSpec as AgentSpec
    from tellback.specs.model import BoundSpec as BoundSpec
    from tellback.specs.model import Parameter as Parameter

_HOME = {
    "AgentSpec": "tellback.specs.model",
    "Agents": "tellback.specs.agents",
    "BoundSpec": "tellback.specs.model",
    "Parameter": "tellback.specs.model",
    "SpecRegistry": "tellback.specs.agents",
    "bind": "tellback.specs.arguments",
    "load_spec": "tellback.specs.loader",
}

__all__ = ["AgentSpec", "Agents", "BoundSpec", "Parameter", "SpecRegistry", "bind", "load_spec"]


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(module), name)
    return value
