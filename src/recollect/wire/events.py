"""Changes on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field

from recollect.types.conversations import Event
from recollect.wire.base import Wire

_Kind = type[Any] | None  # in the class, `type` is a field


class EventWire(Wire):
    """One change. `position` is where to go on from; `subjectId` names what changed."""

    kind: ClassVar[_Kind] = Event

    position: int
    type: str = Field(examples=["message.appended"])
    tenant_id: str
    app_id: str
    user_id: str
    subject_id: str
    data: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime

    @classmethod
    def of(cls, value: Event) -> EventWire:
        """It for a change."""
        scope = value.scope
        return cls(
            position=value.position,
            type=value.type,
            tenant_id=scope.tenant_id,
            app_id=scope.app_id,
            user_id=scope.user_id,
            subject_id=value.subject_id,
            data=dict(value.data),
            created_at=value.created_at,
        )
