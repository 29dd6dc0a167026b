"""Descriptions as text: JSON, or the part of YAML that says the same."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from tellback import hardened_yaml
from tellback.errors import AgentSpecError
from tellback.specs.trees import DEPTH, LENGTH, VALUES

ENDINGS = (".json", ".yaml", ".yml")


def read_file(path: PathLike[str]) -> Any:
    """The value in a .json, .yaml or .yml file."""
    file = Path(path)
    if file.suffix.lower() not in ENDINGS:
        raise AgentSpecError("", f"{str(file)!r} is not a {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]} file.")
    try:
        if not file.is_file():
            raise AgentSpecError("", f"there is no file {str(file)!r}.")
        with file.open("rb") as opened:
            read = opened.read(LENGTH + 1)
    except OSError as error:
        raise AgentSpecError("", f"{str(file)!r} cannot be read: {error.strerror}.") from error
    if len(read) > LENGTH:
        raise AgentSpecError("", f"{str(file)!r} is longer than {LENGTH // 1024} kB: make it shorter.")
    try:
        text = read.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentSpecError("", f"{str(file)!r} is not UTF-8: {error}.") from error
    return read_json(text) if file.suffix.lower() == ".json" else read_yaml(text)


def read_text(text: str) -> Any:
    """The value of a text: JSON if it begins with a brace, YAML otherwise."""
    return read_json(text) if text.lstrip().startswith("{") else read_yaml(text)


def read_json(text: str) -> Any:
    """The value of a JSON text; a key that comes twice is refused."""
    _check_length(text)
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise AgentSpecError("", f"it is not JSON: {error}.") from error


def read_yaml(text: str) -> Any:
    """The value of a YAML text without tags, anchors and merged keys, for JSON has none."""
    _check_length(text)
    try:
        return hardened_yaml.read_yaml(text, depth=DEPTH, values=VALUES)
    except ValueError as error:
        raise AgentSpecError("", f"it is not YAML: {error}.") from error


def _check_length(text: str) -> None:
    if len(text) > LENGTH or len(text.encode(errors="surrogatepass")) > LENGTH:
        raise AgentSpecError("", f"it is longer than {LENGTH // 1024} kB: make it shorter.")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise AgentSpecError("", f"the key {twice!r:.60} is there twice in one object.")
    return found


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number that JSON has")
