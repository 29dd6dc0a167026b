"""Events of the change feed on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field

from tellback.types.conversations import Event
from tellback.wire.base import KeyMapping, WireModel

EVENT_DATA_KEYS = KeyMapping(
    *("conversation_id", "from_seq", "last_seq", "left_out", "merged_into", "message_id"),
    *("rolling_summary_until_seq", "superseded_by", "to_seq", "turn_id"),
    space_id="memorySpaceId",
)
"""What the data of events are called. Those of `user.erased` are names of tables, as in what an erasure gives."""

_ValueType = type[Any] | None  # in the class, `type` is a field


class ReadyWire(WireModel):
    """The first event of the feed: where it begins."""

    position: int


class ChangeWire(WireModel):
    """One change, an event of the feed. `position` is where to go on from; `subjectId` names what changed."""

    value_type: ClassVar[_ValueType] = Event

    position: int
    type: str = Field(examples=["message.appended"])
    tenant_id: str
    app_id: str
    user_id: str
    subject_id: str
    data: dict[str, Any] = Field(
        default_factory=dict,
        examples=[{"messageId": "msg_018f3c0de0a17b2c4d5e6f708192", "seq": 1, "role": "user", "visibility": "user"}],
    )
    created_at: datetime

    @classmethod
    def of(cls, value: Event) -> ChangeWire:
        """It for a change."""
        scope = value.scope
        return cls(
            position=value.position,
            type=value.type,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
            user_id=scope.user_id,
            subject_id=value.subject_id,
            data=EVENT_DATA_KEYS.to_wire(value.data),
            created_at=value.created_at,
        )

    def value(self) -> Event:
        """The change."""
        event: Event = super().value()
        object.__setattr__(event, "data", EVENT_DATA_KEYS.from_wire(self.data))
        return event
