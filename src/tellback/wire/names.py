"""Names of the platform's own among data that are anyone's: camelCase on the wire, and in Python as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.wire.base import camel


class KeyMapping:
    """Certain names, and what they are called on the wire. All others are someone's own, and stay as they are.

    >>> names = KeyMapping("message_id", space_id="memorySpaceId")
    >>> names.to_wire({"message_id": "msg_1", "space_id": "ms_1", "my_key": 1})
    {'messageId': 'msg_1', 'memorySpaceId': 'ms_1', 'my_key': 1}
    >>> names.from_wire({"messageId": "msg_1", "my_key": 1})
    {'message_id': 'msg_1', 'my_key': 1}
    """

    def __init__(self, *names: str, **called: str) -> None:
        self._to_wire = {**{name: camel(name) for name in names}, **called}
        self._from_wire = {wire_name: name for name, wire_name in self._to_wire.items()}

    def to_wire(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data as they go over the wire."""
        return _rename_keys(data, self._to_wire)

    def from_wire(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Data as they were."""
        return _rename_keys(data, self._from_wire)


def _rename_keys(data: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    renamed = {names.get(name, name): value for name, value in data.items()}
    if len(renamed) == len(data):
        return renamed
    # Where someone's own data have that name already, both stay as they are: so they are read as they were.
    return {name if names.get(name, name) in data else names[name]: value for name, value in data.items()}
