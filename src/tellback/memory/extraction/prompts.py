"""The extraction prompts: files with a version in their name, built in or in a folder of the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tellback.errors import ConfigurationError

EXTRACTION, RECONCILE = "extraction", "reconcile"
RECONCILE_VERSION = "v1"

_VERSION = re.compile(r"[A-Za-z0-9._-]+\Z")
_FILE = re.compile(rf"{EXTRACTION}-([A-Za-z0-9._-]+)\.txt\Z")
_QUOTE_FIELD = "`quote`"


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a model is told to do."""

    version: str
    text: str

    @property
    def wants_quotes(self) -> bool:
        """Whether every fact has to carry the user's own words: so it is if the prompt names the field `quote`."""
        return _QUOTE_FIELD in self.text


class Prompts:
    """The prompts there are: those in a folder of yours, then ours.

    A version is a file: `extraction-v3.txt` in the folder is the version "v3", and one that is named like ours takes
    its place. A prompt that names the field `quote` in backticks has the user's words checked, as our "v2" does.

    >>> Prompts().versions()
    ('v1', 'v2')
    """

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigurationError(f"prompts={str(folder)!r} is not a folder: make it, or pass another one.")

    def __repr__(self) -> str:
        return f"Prompts({'' if self._folder is None else repr(str(self._folder))})"

    def versions(self) -> tuple[str, ...]:
        """The versions of the extraction prompt."""
        names = [*_built_in_names()]
        if self._folder is not None:
            names.extend(path.name for path in self._folder.iterdir())
        return tuple(sorted({found[1] for name in names if (found := _FILE.match(name))}))

    def extraction(self, version: str) -> Prompt:
        """The extraction prompt of that version; raises `ConfigurationError`, which names the ones there are."""
        text = self._find(EXTRACTION, version)
        if text is None:
            known = ", ".join(self.versions())
            raise ConfigurationError(
                f"There is no extraction prompt of version {version!r:.80}. There are: {known}."
                f" Add a file {EXTRACTION}-<version>.txt to the folder that is passed as prompts=... ."
            )
        return Prompt(version, text)

    def reconcile(self) -> Prompt:
        """The prompt that has facts judged against what is known."""
        text = self._find(RECONCILE, RECONCILE_VERSION)
        assert text is not None, "the wheel carries it"
        return Prompt(RECONCILE_VERSION, text)

    def _find(self, name: str, version: str) -> str | None:
        if not isinstance(version, str) or not _VERSION.match(version):
            return None
        file = f"{name}-{version}.txt"
        if self._folder is not None and (path := self._folder / file).is_file():
            return _read_prompt(path)
        return _read_built_in(file) if file in _built_in_names() else None


def as_prompts(value: Prompts | str | PathLike[str] | None) -> Prompts:
    """Prompts, from themselves or from a folder."""
    return value if isinstance(value, Prompts) else Prompts(value)


def _read_prompt(path: Path) -> str:
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the prompt {str(path)!r} cannot be read: {error}.") from error
    if not text:
        raise ConfigurationError(f"the prompt {str(path)!r} is empty: write it, or remove the file.")
    return text


@cache
def _built_in_names() -> frozenset[str]:
    return frozenset(file.name for file in files("tellback.memory.extraction").joinpath("prompts").iterdir())


@cache
def _read_built_in(file: str) -> str:
    return files("tellback.memory.extraction").joinpath("prompts", file).read_text("utf-8").strip()
