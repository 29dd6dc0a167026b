"""A description as the tree it was read from, with its parameters in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from tellback.specs.model import AgentSpec

_UNBOUND_FIELDS = ("arguments",)


def spec_to_tree(spec: AgentSpec) -> dict[str, Any]:
    """All that a description says, by the keys of JSON, but for the arguments it declares."""
    tree = {
        _json_key(spec, name): _to_plain(getattr(spec, name))
        for name in spec.model_fields_set
        if name not in _UNBOUND_FIELDS
    }
    return {**tree, "userMessage": spec.user_message}


def _to_plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {_json_key(value, name): _to_plain(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, Mapping):
        return {key: _to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    return value


def _json_key(node: BaseModel, name: str) -> str:
    if name == "system":
        return "systemPrompt"
    return type(node).model_fields[name].alias or name
