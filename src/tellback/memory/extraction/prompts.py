"""The extraction prompts: files with a version in their name, built in or in a folder of the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from os import PathLike
from pathlib import Path

from tellback.errors import ConfigurationError

EXTRACTION, RECONCILE = "extraction", "reconcile"
RECONCILE_VERSION = "v1"

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
        return tuple(sorted({found[1] for name in self._files() if (found := _FILE.match(name))}))

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

    def _files(self) -> dict[str, Traversable]:
        """All files by name: one in the user's folder takes the place of ours."""
        folders = [files("tellback.memory.extraction").joinpath("prompts"), self._folder]
        present = [folder for folder in folders if folder is not None and folder.is_dir()]
        return {file.name: file for folder in present for file in folder.iterdir() if file.is_file()}

    def _find(self, name: str, version: str) -> str | None:
        file = self._files().get(f"{name}-{version}.txt")
        if file is None:
            return None
        try:
            text = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the prompt {str(file)!r} cannot be read: {error}.") from error
        if not text:
            raise ConfigurationError(f"the prompt {str(file)!r} is empty: write it, or remove the file.")
        return text


def as_prompts(value: Prompts | str | PathLike[str] | None) -> Prompts:
    """Prompts, from themselves or from a folder."""
    return value if isinstance(value, Prompts) else Prompts(value)
