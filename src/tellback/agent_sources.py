"""Find the agents that a command or server refers to: spec files, and agents with routes in Python modules."""

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
    """A possible agent: its source, and either the agent or a problem."""

    source: str
    spec: AgentSpec | None = None
    agent: Agent | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """The agent's name, empty if there is a problem."""
        found = self.spec or self.agent
        return "" if found is None else found.name


def load_agents(tb: Tellback, sources: Iterable[str]) -> list[Agent]:
    """Register the specs in these sources, and return the agents with routes.

    Raises `ConfigurationError` with the source of an agent that cannot be used.
    """
    agents: list[Agent] = []
    for source in sources:
        for candidate in find_agents(source, tb):
            if candidate.problem is not None:
                raise ConfigurationError(f"The agent in {candidate.source} cannot be used: {candidate.problem}")
            if candidate.agent is not None:
                agents.append(candidate.agent)
            elif Path(candidate.source).is_file():  # a factory function has registered its specs already
                try:
                    tb.register_agent(Path(candidate.source))
                except TellbackError as error:
                    raise ConfigurationError(f"The agent in {candidate.source} cannot be used: {error}") from error
    return agents


def find_agents(source: str, tb: Tellback) -> list[AgentCandidate]:
    """Return the agents of a source: a spec file, a folder of spec files, or `module:attribute`.

    The attribute is an agent, a list of agents, or a function that returns either. The function may accept the
    Tellback as its argument. It may return None if it registers specs in the Tellback itself.
    """
    path = Path(source)
    if path.exists() or path.suffix in SPEC_SUFFIXES:
        return [_load_spec_file(file) for file in _spec_files(path)]
    if ":" not in source:
        raise ConfigurationError(f"There are no agents at {source}: pass a file, a folder, or module:attribute.")
    return _load_from_module(source, tb)


def _spec_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix in SPEC_SUFFIXES and each.is_file())
    if not files:
        raise ConfigurationError(
            f"The folder {path} has no agents: it contains no file that ends in {', '.join(SPEC_SUFFIXES)}."
        )
    return files


def _load_spec_file(file: Path) -> AgentCandidate:
    from tellback.specs import load_spec

    try:
        return AgentCandidate(str(file), spec=load_spec(file))
    except TellbackError as error:
        return AgentCandidate(str(file), problem=str(error))
    except OSError as error:
        return AgentCandidate(str(file), problem=f"The file cannot be read: {error.strerror}.")


def _load_from_module(source: str, tb: Tellback) -> list[AgentCandidate]:
    from tellback.agent import Agent

    name, _, attribute = source.partition(":")
    if "" not in sys.path:  # like `python -m`: import modules from the current directory
        sys.path.insert(0, "")
    try:
        value = getattr(importlib.import_module(name), attribute)
        if callable(value) and not isinstance(value, Agent):
            value = _call_factory(value, tb)
    except TellbackError as error:
        return [AgentCandidate(source, problem=str(error))]
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the error is reported
        return [AgentCandidate(source, problem=f"Loading failed: {type(error).__name__}: {error}")]
    if value is None:
        return [AgentCandidate(source, spec=spec) for spec in tb.user("-").agents.list()]
    agents: Any = [value] if isinstance(value, Agent) else value
    if not isinstance(agents, list | tuple) or not all(isinstance(each, Agent) for each in agents):
        return [AgentCandidate(source, problem=f"Expected an agent or a list of agents, got {type(value).__name__}.")]
    return [_validate_agent(source, agent) for agent in agents]


def _call_factory(factory: Callable[..., Any], tb: Tellback) -> Any:
    """Call a function, with the Tellback as argument if it accepts one."""
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
