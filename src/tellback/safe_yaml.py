"""A YAML loader for untrusted text: the data model of JSON, with limits on depth and size."""

from __future__ import annotations

import re
from typing import Any

import yaml

_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))\Z"
)
_TAG = "tag:yaml.org,2002:"


def load_yaml(text: str, *, depth: int, values: int) -> Any:
    """Parse a YAML text with at most `depth` levels and at most `values` values.

    Tags, anchors, merge keys and duplicate keys are rejected; dates and times stay strings. Raises `ValueError` with
    the problem and its position.

    >>> load_yaml("since: 2026-01-01\\nat: 12:30:00\\nlimit: 5", depth=4, values=10)
    {'since': '2026-01-01', 'at': '12:30:00', 'limit': 5}
    """
    try:
        loader = _StrictLoader(text, depth, values)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(" ".join(str(error).split())[:300]) from error


def _build_resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return resolvers of plain scalars without dates (JSON has none) and base-60 numbers (quadratic time)."""
    replacements = {f"{_TAG}int": _INT, f"{_TAG}float": _FLOAT}
    dropped = (f"{_TAG}timestamp", f"{_TAG}merge")
    return {
        first: [(tag, replacements.get(tag, known)) for tag, known in resolvers if tag not in dropped]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = _build_resolvers()

    def __init__(self, text: str, depth: int, values: int) -> None:
        super().__init__(text)
        self._max_depth = depth
        self._max_values = values
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _error("anchors and aliases are not supported: repeat the value instead", event)
        if getattr(event, "tag", None) is not None:
            raise _error(f"the tag {event.tag!r:.60} is not supported: remove it", event)
        self._nodes += 1
        if self._nodes > 2 * self._max_values:  # keys are nodes too
            raise _error(f"the text has more than {self._max_values} values", event)
        if self._depth > self._max_depth:
            raise _error(f"the value is nested more than {self._max_depth} levels deep", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _error("keys must be strings", key_node)
            key = self.construct_object(key_node, deep=True)
            if key in mapping:
                raise _error(f"duplicate key {key!r:.60}", key_node)
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping


def _error(problem: str, node: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


_StrictLoader.add_constructor(f"{_TAG}map", _StrictLoader.construct_mapping)
