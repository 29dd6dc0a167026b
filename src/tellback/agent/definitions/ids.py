"""Stable ids of routes, states and tools, derived from what they name.

They are the same in every process and version, because sessions store them."""

from __future__ import annotations

import hashlib

from tellback.errors import InvalidArgumentError
from tellback.types.ids import slug


def generate_route_id(title: str) -> str:
    """The id of a route with that title.

    >>> generate_route_id("User Onboarding")
    'route_user_onboarding_8bef1939'
    """
    return _build_id("route", title, title)


def generate_state_id(route_id: str, description: str | None = None, index: int | None = None) -> str:
    """The id of a state of a route; `index` tells states of one description apart.

    >>> generate_state_id("route_123", "Ask for name").startswith("state_ask_for_name_")
    True
    """
    label, number = description or "", "" if index is None else str(index)
    _validate_texts(route_id, label)
    return _build_id("state", label, "\x1f".join((route_id, label, number)))


def generate_tool_id(name: str) -> str:
    """The id of a tool with that name.

    >>> generate_tool_id("get_user_data").startswith("tool_get_user_data_")
    True
    """
    return _build_id("tool", name, name)


def _build_id(kind: str, label: str, source: str) -> str:
    _validate_texts(label)
    digest = hashlib.sha256(f"{kind}\x1f{source}".encode(errors="surrogatepass")).hexdigest()[:8]
    return "_".join(filter(None, (kind, slug(label), digest)))


def _validate_texts(*values: object) -> None:
    for each in values:
        if not isinstance(each, str):
            raise InvalidArgumentError(f"an id is made of a text, not {each!r:.80}.")
