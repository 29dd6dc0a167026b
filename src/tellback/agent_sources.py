"""Agents that a command or a server is told of: descriptions in files, and agents with routes that a module holds."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellback.errors import ConfigurationError, TellbackError

if TYPE_CHECKING:
    from tellback.agent import Agent
    from tellback.app import Tellback
    from tellback.specs import AgentSpec

SPEC_SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class AgentCandidate:
    """Something that should be an agent: where it is, and what it is, or what is wrong with it."""

    source: str
    spec: AgentSpec | None = None
    agent: Agent | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        found = self.spec or self.agent
        return "" if found is None else found.name


def load_agents(tb: Tellback, sources: Iterable[str]) -> list[Agent]:
    """Register the descriptions that sources hold, and give the agents with routes.

    Raises `ConfigurationError` that names the source of what cannot be used.
    """
    agents: list[Agent] = []
    for source in sources:
        for candidate in find_agents(source, tb):
            if candidate.problem is not None:
                raise ConfigurationError(f"The agent in {candidate.source} cannot be used: {candidate.problem}")
            if candidate.agent is not None:
                agents.append(candidate.agent)
            elif Path(candidate.source).is_file():  # what a function registered is there already
                try:
                    tb.register_agent(Path(candidate.source))
                except TellbackError as error:
                    raise ConfigurationError(f"The agent in {candidate.source} cannot be used: {error}") from error
    return agents


def find_agents(source: str, tb: Tellback) -> list[AgentCandidate]:
    """What a source holds: a file, a folder of files, or `module:attribute`.

    An attribute is an agent, a list of agents, or a function that gives either: it may take the Tellback, and give
    None once it has registered descriptions there itself.
    """
    path = Path(source)
    if path.exists() or path.suffix in SPEC_SUFFIXES:
        return [_load_spec_file(file) for file in _spec_files(path)]
    if ":" not in source:
        raise ConfigurationError(f"There are no agents at {source}: name a file, a folder, or module:attribute.")
    return _load_from_module(source, tb)


def _spec_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in SPEC_SUFFIXES and each.is_file())
    if not files:
        raise ConfigurationError(
            f"The folder {path} has no agents: they are files that end in {', '.join(SPEC_SUFFIXES)}."
        )
    return files


def _load_spec_file(file: Path) -> AgentCandidate:
    from tellback.specs import load_spec

    try:
        return AgentCandidate(str(file), spec=load_spec(file))
    except TellbackError as error:
        return AgentCandidate(str(file), problem=str(error))
    except OSError as error:
        return AgentCandidate(str(file), problem=f"It cannot be read: {error.strerror}.")


def _load_from_module(source: str, tb: Tellback) -> list[AgentCandidate]:
    from tellback.agent import Agent

    name, _, attribute = source.partition(":")
    if "" not in sys.path:  # as `python -m` does it: modules of the folder one is in
        sys.path.insert(0, "")
    try:
        value = getattr(importlib.import_module(name), attribute)
        if callable(value) and not isinstance(value, Agent):
            value = _call_factory(value, tb)
    except TellbackError as error:
        return [AgentCandidate(source, problem=str(error))]
    except Exception as error:  # noqa: BLE001 - a program of the user's: whatever it raises is told
        return [AgentCandidate(source, problem=f"It cannot be loaded: {type(error).__name__}: {error}")]
    if value is None:
        return [AgentCandidate(source, spec=spec) for spec in tb.user("-").agents.list()]
    agents: Any = [value] if isinstance(value, Agent) else value
    if not isinstance(agents, list | tuple) or not all(isinstance(each, Agent) for each in agents):
        return [AgentCandidate(source, problem=f"It is no agent, and no list of agents, but {type(value).__name__}.")]
    return [_validate_agent(source, agent) for agent in agents]


def _call_factory(factory: Callable[..., Any], tb: Tellback) -> Any:
    """What a function makes, whether or not it takes the Tellback."""
    try:
        inspect.signature(factory).bind(tb)
    except TypeError:
        return factory()
    return factory(tb)


def _validate_agent(source: str, agent: Agent) -> AgentCandidate:
    try:
        agent.check()
    except TellbackError as error:
        return AgentCandidate(source, problem=str(error))
    return AgentCandidate(source, agent=agent)
