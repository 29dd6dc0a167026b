"""Ids made of what they name: the same in every process and version, so they can be stored."""

from __future__ import annotations

import hashlib

from tellback.errors import InvalidArgumentError
from tellback.types.names import slug


def generate_route_id(title: str) -> str:
    """The id of a route with that title.

    >>> generate_route_id("User Onboarding")
    'route_user_onboarding_8bef1939'
    """
    return _made("route", title, title)


def generate_state_id(route_id: str, description: str | None = None, index: int | None = None) -> str:
    """The id of a state of a route; `index` tells states of one description apart.

    >>> generate_state_id("route_123", "Ask for name").startswith("state_ask_for_name_")
    True
    """
    shown, number = description or "", "" if index is None else str(index)
    _check(route_id, shown)
    return _made("state", shown, "\x1f".join((route_id, shown, number)))


def generate_tool_id(name: str) -> str:
    """The id of a tool with that name.

    >>> generate_tool_id("get_user_data").startswith("tool_get_user_data_")
    True
    """
    return _made("tool", name, name)


def _made(kind: str, shown: str, whole: str) -> str:
    _check(shown)
    digest = hashlib.sha256(f"{kind}\x1f{whole}".encode(errors="surrogatepass")).hexdigest()[:8]
    return "_".join(filter(None, (kind, slug(shown), digest)))


def _check(*given: object) -> None:
    for each in given:
        if not isinstance(each, str):
            raise InvalidArgumentError(f"an id is made of a text, not {each!r:.80}.")
