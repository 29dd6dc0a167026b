"""Agent specs in JSON or YAML. One spec serves all users; its parameters are bound on each invocation.

Names are loaded on first use, because specs are validated with pydantic, which not every program needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tellback.exports import lazy_exports

if TYPE_CHECKING:
    from tellback.specs.agents import Agents as Agents
    from tellback.specs.agents import SpecRegistry as SpecRegistry
    from tellback.specs.arguments import bind as bind
    from tellback.specs.loader import load_spec as load_spec
    from tellback.specs.model import AgentSpec as AgentSpec
    from tellback.specs.model import BoundSpec as BoundSpec
    from tellback.specs.model import Parameter as Parameter
else:
    __all__, __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "tellback.specs.agents": "Agents SpecRegistry",
            "tellback.specs.arguments": "bind",
            "tellback.specs.loader": "load_spec",
            "tellback.specs.model": "AgentSpec BoundSpec Parameter",
        },
    )
