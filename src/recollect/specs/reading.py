"""Descriptions as text: JSON, or the part of YAML that says the same."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import yaml

from recollect.errors import AgentSpecError
from recollect.specs.trees import DEPTH, LENGTH, VALUES

ENDINGS = (".json", ".yaml", ".yml")


def is_path(source: str) -> bool:
    """Whether a text names a file: one line that ends as such files do, and is no key with a value."""
    return source.lower().endswith(ENDINGS) and not any(mark in source for mark in ("\n", "\r", "{", "\x00", ": "))


def read_file(path: str | PathLike[str]) -> Any:
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
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AgentSpecError("", f"it is not YAML: {' '.join(str(error).split())[:300]}.") from error
    finally:
        loader.dispose()


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


class _Loader(yaml.SafeLoader):
    """Reads what JSON could say, too."""

    # Dates stay texts, as they are in JSON.
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [each for each in resolvers if each[0] not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        try:
            super().__init__(text)
        except yaml.YAMLError as error:  # it looks for characters that YAML has not
            raise AgentSpecError("", f"it is not YAML: {' '.join(str(error).split())[:300]}.") from error
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are not read: write it out", problem_mark=mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem=f"the tag {event.tag!r} is not read: leave it out", problem_mark=mark)
        self._nodes += 1
        if self._nodes > 2 * VALUES:  # keys are nodes, too
            raise yaml.MarkedYAMLError(problem=f"there are more than {VALUES} values", problem_mark=mark)
        if self._depth > DEPTH:
            raise yaml.MarkedYAMLError(problem=f"it is nested more than {DEPTH} deep", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="keys are texts", problem_mark=key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if key in found:
                problem = f"the key {key!r:.60} is there twice in one object"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            found[key] = self.construct_object(value_node, deep=True)
        return found


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
