"""Guidelines, terms, capabilities and composition modes: instructions for the model besides the routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypedDict

from tellback import validation
from tellback.errors import InvalidArgumentError
from tellback.tools import Tool, as_tool


class CompositionMode(StrEnum):
    """How freely an agent phrases its answers.

    `FLUID` writes freely; `CANNED_FLUID` prefers the canned responses; `CANNED_COMPOSITED` combines its answer from
    them; `CANNED_STRICT` sends one of them verbatim and nothing else.

    >>> CompositionMode("strict_canned") is CompositionMode.CANNED_STRICT
    True
    """

    FLUID = "fluid"
    CANNED_FLUID = "canned_fluid"
    CANNED_COMPOSITED = "composited_canned"
    CANNED_STRICT = "strict_canned"


class TermFields(TypedDict, total=False):
    """The fields of `Term`, as a mapping or as keyword arguments."""

    name: str
    description: str
    synonyms: Sequence[str]


@dataclass(frozen=True, slots=True)
class Term:
    """A domain term, explained to the model.

    >>> Term("PNR", "The six characters that identify a booking.", synonyms=["record locator"]).name
    'PNR'
    """

    name: str
    description: str
    synonyms: Sequence[str] = ()

    def __post_init__(self) -> None:
        validation.validate_text("a term's name", self.name)
        validation.validate_text(f"the description of term {self.name!r}", self.description)
        object.__setattr__(
            self, "synonyms", validation.validate_texts(f"the synonyms of term {self.name!r}", self.synonyms)
        )


class GuidelineFields(TypedDict, total=False):
    """The fields of `Guideline`, as a mapping or as keyword arguments."""

    action: str
    condition: str | None
    id: str | None
    enabled: bool
    tags: Sequence[str]
    tools: Sequence[Any]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Guideline:
    """An instruction, and when to follow it. Without a `condition` it always applies; its `tools` are available then.

    >>> Guideline("Offer to call back.", condition="the user is in a hurry").enabled
    True
    """

    action: str
    condition: str | None = None
    id: str | None = None
    enabled: bool = True
    tags: Sequence[str] = ()
    tools: Sequence[Any] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        validation.validate_text("a guideline's action", self.action)
        if self.condition is not None:
            validation.validate_text("a guideline's condition", self.condition)
        object.__setattr__(self, "tools", _parse_tools(f"guideline {self.action!r:.60}", self.tools))


class CapabilityFields(TypedDict, total=False):
    """The fields of `Capability`, as a mapping or as keyword arguments."""

    title: str
    description: str
    id: str | None
    tools: Sequence[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """Something the agent can do, described to the model; its `tools` are always available.

    >>> Capability("Refunds", "Pay back up to 100 euros.").title
    'Refunds'
    """

    title: str
    description: str
    id: str | None = None
    tools: Sequence[Any] = ()

    def __post_init__(self) -> None:
        validation.validate_text("a capability's title", self.title)
        validation.validate_text(f"the description of capability {self.title!r}", self.description)
        object.__setattr__(self, "tools", _parse_tools(f"capability {self.title!r}", self.tools))


@dataclass(frozen=True, slots=True)
class GuidelineMatch:
    """A guideline that applies in this turn, and why: its condition, or "always".

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says
    >>> agent = Agent("Wanda", guidelines=[Guideline("Be brief.")], model=ScriptedModel([says("Hello!")]))
    >>> [match] = asyncio.run(agent.respond("Hi!")).trace.guidelines
    >>> match.guideline.action, match.rationale
    ('Be brief.', 'always')
    """

    guideline: Guideline
    rationale: str = "always"


def coerce_value(kind: type[Any], value: Any, fields: Mapping[str, Any] | None = None) -> Any:
    """Return a term, guideline or capability unchanged, or build one from a mapping or keyword arguments."""
    if isinstance(value, kind) and not fields:
        return value
    if value is not None and not isinstance(value, Mapping):
        raise InvalidArgumentError(f"expected a {kind.__name__} or a mapping of its fields, got {value!r:.80}.")
    try:
        return kind(**{**(value or {}), **(fields or {})})
    except TypeError as error:
        raise InvalidArgumentError(f"invalid fields for {kind.__name__}: {error}.") from error


def _parse_tools(owner: str, value: Any) -> tuple[Tool, ...]:
    if callable(value) or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"the tools of {owner} must be a list, got {value!r:.80}: write tools=[...].")
    return tuple(map(as_tool, value))
