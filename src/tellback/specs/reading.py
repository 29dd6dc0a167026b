"""Descriptions as text: JSON, or the part of YAML that says the same."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

from tellback import hardened_yaml
from tellback.errors import AgentSpecError
from tellback.specs.trees import MAX_DEPTH, MAX_LENGTH, MAX_VALUES

FILE_SUFFIXES = (".json", ".yaml", ".yml")


def read_spec_file(path: PathLike[str]) -> Any:
    """The value in a .json, .yaml or .yml file."""
    file = Path(path)
    if file.suffix.lower() not in FILE_SUFFIXES:
        raise AgentSpecError("", f"{str(file)!r} is not a {', '.join(FILE_SUFFIXES[:-1])} or {FILE_SUFFIXES[-1]} file.")
    try:
        if not file.is_file():
            raise AgentSpecError("", f"there is no file {str(file)!r}.")
        with file.open("rb") as opened:
            content = opened.read(MAX_LENGTH + 1)
    except OSError as error:
        raise AgentSpecError("", f"{str(file)!r} cannot be read: {error.strerror}.") from error
    if len(content) > MAX_LENGTH:
        raise AgentSpecError("", f"{str(file)!r} is longer than {MAX_LENGTH // 1024} kB: make it shorter.")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentSpecError("", f"{str(file)!r} is not UTF-8: {error}.") from error
    return parse_spec_json(text) if file.suffix.lower() == ".json" else parse_spec_yaml(text)


def parse_spec_text(text: str) -> Any:
    """The value of a text: JSON if it begins with a brace, YAML otherwise."""
    return parse_spec_json(text) if text.lstrip().startswith("{") else parse_spec_yaml(text)


def parse_spec_json(text: str) -> Any:
    """The value of a JSON text; a key that comes twice is refused."""
    _validate_length(text)
    try:
        return json.loads(text, object_pairs_hook=_build_object, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise AgentSpecError("", f"it is not JSON: {error}.") from error


def parse_spec_yaml(text: str) -> Any:
    """The value of a YAML text without tags, anchors and merged keys, for JSON has none."""
    _validate_length(text)
    try:
        return hardened_yaml.load_yaml(text, depth=MAX_DEPTH, values=MAX_VALUES)
    except ValueError as error:
        raise AgentSpecError("", f"it is not YAML: {error}.") from error


def _validate_length(text: str) -> None:
    if len(text) > MAX_LENGTH or len(text.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise AgentSpecError("", f"it is longer than {MAX_LENGTH // 1024} kB: make it shorter.")


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise AgentSpecError("", f"the key {duplicate!r:.60} is there twice in one object.")
    return built


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not a number that JSON has")
