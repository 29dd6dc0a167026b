"""Parsing chats of a ChatGPT export."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tellback.importers.chatgpt import parse_chat
from tests.unit.importers.chat_exports import MARCH, gpt_chat, gpt_message


def test_messages_keep_their_order_time_and_model() -> None:
    answer = gpt_message("assistant", "Lovely!", MARCH + 5, metadata={"model_slug": "gpt-4o"})
    chat = parse_chat(gpt_chat("c1", gpt_message("user", "I moved to Lisbon."), answer))
    assert (chat.source, chat.id, chat.title) == ("chatgpt", "c1", "Chat c1")
    first, second = chat.messages
    assert (first.role, first.text, first.model) == ("user", "I moved to Lisbon.", None)
    assert (second.role, second.model, second.provider) == ("assistant", "gpt-4o", "openai")
    assert first.created_at is not None
    assert first.created_at.isoformat() == "2024-03-01T10:00:00+00:00"
    assert second.created_at is not None
    assert (second.created_at - first.created_at).total_seconds() == 5


def test_the_branch_shown_last_is_parsed_and_other_messages_are_counted() -> None:
    raw = gpt_chat("c1", gpt_message("user", "Plan a trip"), gpt_message("assistant", "To Rome?"))
    mapping = raw["mapping"]
    mapping["again"] = {
        "id": "again",
        "message": gpt_message("assistant", "To Oslo?"),
        "parent": "c1-0",
        "children": [],
    }
    raw["current_node"] = "again"
    chat = parse_chat(raw)
    assert [message.text for message in chat.messages] == ["Plan a trip", "To Oslo?"]
    assert chat.left_out == {"not on the branch shown last": 1}


def test_without_a_current_node_the_newest_branch_is_parsed() -> None:
    raw = gpt_chat(
        "c1", gpt_message("user", "Plan a trip"), gpt_message("assistant", "To Rome?", MARCH + 1), current_node=None
    )
    later = gpt_message("assistant", "To Oslo?", MARCH + 2)
    raw["mapping"]["again"] = {"id": "again", "message": later, "parent": "c1-0", "children": []}
    assert [message.text for message in parse_chat(raw).messages] == ["Plan a trip", "To Oslo?"]


def test_tool_messages_reasoning_and_empty_messages_are_left_out_and_counted() -> None:
    chat = parse_chat(
        gpt_chat(
            "c1",
            gpt_message("system", ""),
            gpt_message("user", "Draw a cat"),
            gpt_message("assistant", '{"prompt": "a cat"}', recipient="dalle.text2im"),
            gpt_message("tool", "done"),
            gpt_message("assistant", {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}),
            gpt_message("assistant", ""),
            gpt_message("critic", "Nice."),
            gpt_message("assistant", "There it is."),
        )
    )
    assert [message.text for message in chat.messages] == ["Draw a cat", "There it is."]
    assert chat.left_out == {
        "tool call": 1,
        "tool result": 1,
        "model reasoning": 1,
        "empty": 1,
        "unknown role": 1,
    }


def test_messages_hidden_from_the_user_are_internal() -> None:
    profile = {
        "content_type": "user_editable_context",
        "user_profile": "I am a nurse.",
        "user_instructions": "Be brief.",
    }
    hidden = gpt_message("user", "Follow the file.", metadata={"is_visually_hidden_from_conversation": True})
    chat = parse_chat(
        gpt_chat(
            "c1", gpt_message("user", profile), gpt_message("system", "Be kind."), hidden, gpt_message("user", "Hi")
        )
    )
    parsed = [(message.role, message.text, message.visibility) for message in chat.messages]
    assert parsed == [
        ("system", "I am a nurse.\n\nBe brief.", "internal"),
        ("system", "Be kind.", "internal"),
        ("user", "Follow the file.", "internal"),
        ("user", "Hi", "user"),
    ]


def test_images_audio_and_files_become_placeholders() -> None:
    parts: list[Any] = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://1"},
        {"content_type": "audio_asset_pointer"},
        "What is this?",
        None,
        7,
    ]
    message = gpt_message("user", {"content_type": "multimodal_text", "parts": parts})
    audio_parts: list[Any] = [
        {"content_type": "audio_transcription", "text": "Hello there."},
        {"content_type": "real_time_user_audio_video_asset_pointer"},
    ]
    voice_message = gpt_message("user", {"content_type": "multimodal_text", "parts": audio_parts})
    sent = gpt_message("user", "Read it", metadata={"attachments": [{"name": "tax\n2024.pdf"}, None]})
    chat = parse_chat(gpt_chat("c1", message, voice_message, sent))
    assert [message.text for message in chat.messages] == [
        "[image]\n\n[audio]\n\nWhat is this?",
        "Hello there.",
        "Read it\n\n[file: tax 2024.pdf]\n\n[file]",
    ]


def test_citation_marks_are_removed_and_entity_names_stay() -> None:
    text = 'Go to \ue200entity\ue202["city","Porto","in Portugal"]\ue201 \ue200cite\ue202turn0search1\ue201 now \ue200x'
    assert parse_chat(gpt_chat("c1", gpt_message("assistant", text))).messages[0].text == "Go to Porto  now \ue200x"


def test_a_message_with_an_invalid_time_gets_the_time_of_the_previous_one() -> None:
    times: list[Any] = [MARCH, float("nan"), None, 9e300, -1.0, True]
    chat = parse_chat(gpt_chat("c1", *(gpt_message("user", f"{number}", time) for number, time in enumerate(times))))
    assert {message.created_at for message in chat.messages} == {chat.messages[0].created_at}


def test_a_missing_parent_is_counted() -> None:
    raw = gpt_chat("c1", gpt_message("user", "One"), gpt_message("assistant", "Two"))
    raw["mapping"]["c1-1"]["parent"] = "gone"
    raw["mapping"]["c1-0"]["children"] = []
    chat = parse_chat(raw)
    assert [message.text for message in chat.messages] == ["Two"]
    assert chat.left_out["parent message missing in the export"] == 1


def test_a_parent_is_found_by_its_list_of_children() -> None:
    raw = gpt_chat("c1", gpt_message("user", "One"), gpt_message("assistant", "Two"))
    raw["mapping"]["c1-1"]["parent"] = None
    assert [message.text for message in parse_chat(raw).messages] == ["One", "Two"]


NAMES = st.sampled_from([*"abcdefgh", "gone"])
NODES = st.fixed_dictionaries(
    {
        "parent": st.one_of(NAMES, st.none(), st.integers()),
        "children": st.one_of(st.none(), st.lists(NAMES)),
        "message": st.one_of(
            st.none(),
            st.builds(gpt_message, st.sampled_from(["user", "assistant", "system", "tool"]), st.text(min_size=1)),
        ),
    }
)


@given(st.dictionaries(st.sampled_from([*"abcdefgh"]), NODES), st.one_of(NAMES, st.none()))
def test_any_tree_is_parsed_with_parents_first_and_without_duplicates(nodes: Any, current: Any) -> None:
    for id, node in nodes.items():
        node["id"] = id
    chat = parse_chat({"mapping": nodes, "current_node": current})
    ids = [str(message.id) for message in chat.messages]
    assert len(set(ids)) == len(ids)
    for place, id in enumerate(ids):
        if nodes[id]["parent"] in ids[place:] and nodes[id]["parent"] != id:
            assert place == 0  # only if the parents form a cycle
    if current in nodes and ids and nodes[current]["message"] is not None and current in ids:
        assert ids[-1] == current


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text(), st.integers()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(JSON, JSON, JSON, JSON)
def test_fields_of_any_type_are_parsed_without_errors(content: Any, author: Any, metadata: Any, time: Any) -> None:
    message = {"content": content, "author": author, "metadata": metadata, "create_time": time, "id": time}
    parent_message = gpt_message(
        "user", {"content_type": "text", "parts": [content]}, time, metadata={"attachments": metadata}
    )
    raw = {"mapping": {"a": {"message": message, "parent": "b"}, "b": {"message": parent_message, "parent": author}}}
    chat = parse_chat({**raw, "current_node": "a", "title": content, "conversation_id": metadata, "create_time": time})
    assert len(chat.messages) <= 2
