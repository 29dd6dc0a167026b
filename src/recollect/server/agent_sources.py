"""Agents that a server is told of: descriptions in files, and agents with routes that a module holds."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recollect.agent import Agent
from recollect.app import Recollect
from recollect.errors import ConfigurationError, RecollectError

ENDINGS = (".json", ".yaml", ".yml")


def load_agents(rc: Recollect, sources: Iterable[str]) -> list[Agent]:
    """Register the descriptions, and give the agents with routes.

    A source is a file, a folder of files, or `module:attribute`: an agent, a list of them, or a function that is
    called with the Recollect and gives either, or None once it has registered something itself. Raises
    `ConfigurationError` that names the source.
    """
    found: list[Agent] = []
    for source in sources:
        path = Path(source)
        if path.exists() or ":" not in source or path.suffix in ENDINGS:
            for file in _files(path):
                _register(rc, file)
        else:
            found += _of_module(rc, source)
    return found


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigurationError(f"There are no agents at {path}: name a file, a folder, or module:attribute.")
    files = sorted(each for each in path.iterdir() if each.suffix in ENDINGS and each.is_file())
    if not files:
        raise ConfigurationError(f"The folder {path} has no agents: they are files that end in {', '.join(ENDINGS)}.")
    return files


def _register(rc: Recollect, file: Path) -> None:
    try:
        rc.register_agent(file)
    except RecollectError as error:
        raise ConfigurationError(f"The agent in {file} cannot be used: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"The file {file} cannot be read: {error.strerror}.") from error


def _of_module(rc: Recollect, source: str) -> list[Agent]:
    name, _, attribute = source.partition(":")
    if "" not in sys.path:  # as `python -m` does it: modules of the folder one is in
        sys.path.insert(0, "")
    try:
        value = getattr(importlib.import_module(name), attribute)
        if callable(value) and not isinstance(value, Agent):
            value = value(rc)
    except Exception as error:
        raise ConfigurationError(f"{source} cannot be loaded: {type(error).__name__}: {error}") from error
    return _agents(source, value)


def _agents(source: str, value: Any) -> list[Agent]:
    if value is None:
        return []
    given = [value] if isinstance(value, Agent) else value
    if not isinstance(given, list | tuple) or not all(isinstance(each, Agent) for each in given):
        raise ConfigurationError(f"{source} is no agent, and no list of agents, but {type(value).__name__}.")
    return list(given)
