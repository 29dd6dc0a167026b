"""Documents of OpenSearch are read as they were written, and positions are unique."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tellback.sessions.opensearch import documents
from tellback.sessions.opensearch.documents import DocumentLayout, SessionEntry, document_id
from tellback.types.conversations import MessageData, SessionData
from tellback.types.ids import as_utc

IDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=200).filter(str.strip)
MOMENTS = st.datetimes(min_value=datetime(1000, 1, 1)).map(lambda each: as_utc(f"{each.isoformat()}+00:00"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
SESSIONS = st.builds(
    SessionData,
    IDS,
    user_id=st.none() | IDS,
    collected_data=st.dictionaries(st.text(), JSON, max_size=3),
    last_message_at=st.none() | MOMENTS,
    created_at=MOMENTS,
    updated_at=MOMENTS,
    version=st.integers(0, 2**53),
)
MESSAGES = st.builds(
    MessageData,
    IDS,
    st.just("web-42"),
    st.sampled_from(["user", "agent"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00")),
    tool_calls=st.lists(st.dictionaries(st.text(), JSON, max_size=2), max_size=2).map(tuple),
    event=JSON,
    created_at=MOMENTS,
)


def make_layout(session_ttl: int | None = None, message_ttl: int | None = None, mappings: Any = None) -> DocumentLayout:
    names = documents.resolve_field_names(mappings)
    return DocumentLayout("sessions", "messages", session_ttl=session_ttl, message_ttl=message_ttl, **names)


def through_json(document: Any) -> Any:
    return json.loads(json.dumps(document, ensure_ascii=False).encode().decode())


@given(session=SESSIONS, messages=st.lists(MESSAGES, max_size=3), ttl=st.none() | st.integers(1, 10**9))
def test_an_entry_is_read_as_it_was_written(session: SessionData, messages: list[MessageData], ttl: int | None) -> None:
    renamed = make_layout(ttl, ttl, {"sessions": {"id": "key"}, "messages": {"position": "place"}})
    document = renamed.store_turn(SessionEntry(session.id), session, messages, 1_000)
    found = renamed.entry_from_document(through_json(renamed.session_document(document, 1_000)))
    assert found == document
    assert repr(found.session) == repr(session)
    restored = [renamed.message_from_document(each) for each in found.pending]
    assert repr([(each.content, each.tool_calls, each.event) for each in restored]) == repr(
        [(each.content, each.tool_calls, each.event) for each in messages]
    )
    assert [each.position for each in restored] == list(range(1, len(messages) + 1))


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 3), st.sampled_from([None, 5, 50]), st.sampled_from([None, 5, 50]), st.integers(0, 30)
        ),
        max_size=12,
    )
)
def test_every_unexpired_message_is_within_the_positions(
    steps: list[tuple[int, int | None, int | None, int]],
) -> None:
    """Save turns of adapters with different times to live, some of them after the session has expired."""
    now, document = 1_000, SessionEntry("web-42")
    expiries: dict[int, int | None] = {}
    for count, session_ttl, message_ttl, seconds in steps:
        now += seconds
        new = [MessageData(f"m{n}", "web-42", "user", "Hi") for n in range(count)]
        document = make_layout(session_ttl, message_ttl).store_turn(document, SessionData("web-42"), new, now)
        positions = [make_layout().position_of(each) for each in document.pending]
        assert not expiries.keys() & set(positions)
        expiries |= dict.fromkeys(positions, None if message_ttl is None else now + message_ttl)
        living = [position for position, end in expiries.items() if end is None or end > now]
        assert all(document.first <= position <= document.last for position in living)
        assert (document.until > now) >= bool(living)


@given(one=IDS, other=IDS)
def test_document_ids_are_distinct(one: str, other: str) -> None:
    assert (document_id(one) == document_id(other)) == (one == other)
    assert len(document_id(one)) <= 200
    assert document_id(one).isascii()
    assert document_id(one)[0] not in "_."
    assert "/" not in document_id(one)


@given(id=IDS)
def test_a_plain_id_never_equals_a_hashed_id(id: str) -> None:
    assert document_id(document_id(id)) == document_id(id) or not document_id(id)[0].isalnum()


def test_a_session_recreated_after_a_deletion_does_not_continue_the_deleted_one() -> None:
    document = make_layout().store_turn(SessionEntry("web-42"), SessionData("web-42"), [], 1_000)
    recreated = make_layout().store_turn(
        SessionEntry("web-42", deleted=True, life=document.life, last=7), SessionData("web-42"), [], 1_000
    )
    assert recreated.life != document.life
    assert recreated.last == 0
