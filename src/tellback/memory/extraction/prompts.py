"""The extraction prompts: files with a version in their name, built in or in a user's folder."""

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
    """The instructions for a model."""

    version: str
    text: str

    @property
    def wants_quotes(self) -> bool:
        """Whether every fact must have a verbatim quote: true if the prompt contains the field `quote`."""
        return _QUOTE_FIELD in self.text


class Prompts:
    """The available prompts: those in your folder, then the built-in ones.

    A version is a file: `extraction-v3.txt` in the folder is the version "v3". A file with the name of a built-in
    prompt replaces it. If a prompt contains the field `quote` in backticks, quotes are checked, as with the built-in
    "v2".

    >>> Prompts().versions()
    ('v1', 'v2')
    """

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None and not self._folder.is_dir():
            raise ConfigurationError(f"prompts={str(folder)!r} is not a folder: create it, or pass another one.")

    def __repr__(self) -> str:
        return f"Prompts({'' if self._folder is None else repr(str(self._folder))})"

    def versions(self) -> tuple[str, ...]:
        """Return the versions of the extraction prompt."""
        return tuple(sorted({found[1] for name in self._files() if (found := _FILE.match(name))}))

    def extraction(self, version: str) -> Prompt:
        """Return the extraction prompt of that version, or raise `ConfigurationError`, which lists the known
        versions."""
        text = self._find(EXTRACTION, version)
        if text is None:
            known = ", ".join(self.versions())
            raise ConfigurationError(
                f"Unknown version {version!r:.80} of the extraction prompt. Known versions: {known}."
                f" To add one, put a file {EXTRACTION}-<version>.txt into the folder passed as prompts=... ."
            )
        return Prompt(version, text)

    def reconcile(self) -> Prompt:
        """Return the prompt that compares facts with known atoms."""
        text = self._find(RECONCILE, RECONCILE_VERSION)
        assert text is not None, "the package contains it"
        return Prompt(RECONCILE_VERSION, text)

    def _files(self) -> dict[str, Traversable]:
        """Return all files by name; one in the user's folder replaces a built-in one."""
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
            raise ConfigurationError(f"Cannot read the prompt {str(file)!r}: {error}.") from error
        if not text:
            raise ConfigurationError(f"The prompt {str(file)!r} is empty: write it, or remove the file.")
        return text


def as_prompts(value: Prompts | str | PathLike[str] | None) -> Prompts:
    """Return prompts from a `Prompts` or a folder."""
    return value if isinstance(value, Prompts) else Prompts(value)
