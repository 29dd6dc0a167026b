"""Names of the platform's own among data that are anyone's: camelCase on the wire, and in Python as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.wire.base import camel


class Names:
    """Certain names, and what they are called on the wire. All others are someone's own, and stay as they are.

    >>> names = Names("message_id", space_id="memorySpaceId")
    >>> names.told({"message_id": "msg_1", "space_id": "ms_1", "my_key": 1})
    {'messageId': 'msg_1', 'memorySpaceId': 'ms_1', 'my_key': 1}
    >>> names.read({"messageId": "msg_1", "my_key": 1})
    {'message_id': 'msg_1', 'my_key': 1}
    """

    def __init__(self, *names: str, **called: str) -> None:
        self._told = {**{name: camel(name) for name in names}, **called}
        self._read = {told: name for name, told in self._told.items()}

    def told(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data as they go over the wire."""
        return _renamed(data, self._told)

    def read(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data as they were."""
        return _renamed(data, self._read)


def _renamed(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    found = {names.get(name, name): value for name, value in data.items()}
    if len(found) == len(data):
        return found
    # Where someone's own data have that name already, both stay as they are: so they are read as they were.
    return {name if names.get(name, name) in data else names[name]: value for name, value in data.items()}
