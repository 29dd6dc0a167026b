"""The ids that session adapters accept."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tellback.errors import InvalidArgumentError
from tellback.sessions import InMemoryAdapter
from tellback.testing.sessions.repositories import make_message, make_session


class MaskedText(str):
    """A str subclass that always formats as the same other text."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return "***"


async def test_ids_of_a_str_subclass_are_rejected() -> None:
    adapter: Any = InMemoryAdapter()
    await adapter.initialize()
    sessions, messages, id = adapter.session_repository, adapter.message_repository, MaskedText("maya")
    for attempt in (
        sessions.get(id),
        sessions.find_active(id),
        sessions.list_by_user(id),
        sessions.create(replace(make_session(), user_id=id)),
        sessions.delete(id),
        messages.list_by_session(id),
        adapter.save(make_session(version=1), [replace(make_message("Hi"), user_id=id)]),
    ):
        with pytest.raises(InvalidArgumentError, match="must be a str, got 'maya' of type MaskedText"):
            await attempt
