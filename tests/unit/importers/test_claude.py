"""Parsing chats of a Claude export."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tellback.importers.claude import parse_chat
from tests.unit.importers.chat_exports import claude_chat, claude_message
from tests.unit.importers.test_chatgpt import JSON

ROOT = "00000000-0000-4000-8000-000000000000"


def test_messages_keep_their_order_and_time() -> None:
    answer = claude_message("m2", "assistant", "Lovely!", "2024-03-01T10:00:09.5+00:00")
    chat = parse_chat(claude_chat("c1", claude_message("m1", "human", "I moved to Lisbon."), answer))
    assert (chat.source, chat.id, chat.title) == ("claude", "c1", "Chat c1")
    assert [(message.role, message.text) for message in chat.messages] == [
        ("user", "I moved to Lisbon."),
        ("assistant", "Lovely!"),
    ]
    assert chat.messages[1].provider == "anthropic"
    assert chat.messages[1].created_at is not None
    assert chat.messages[1].created_at.isoformat() == "2024-03-01T10:00:09.500000+00:00"


def test_a_pasted_text_is_part_of_the_message() -> None:
    pasted = [{"file_name": "notes.txt", "extracted_content": "Allergic to nuts."}]
    files = [{"file_name": "notes.txt"}, {"file_name": "cat.png"}]
    message = claude_message("m1", "human", "", attachments=pasted, files=files)
    assert parse_chat(claude_chat("c1", message)).messages[0].text == (
        "[file: notes.txt]\nAllergic to nuts.\n\n[file: cat.png]"
    )


def test_tool_and_thinking_blocks_and_their_replacement_text_are_left_out() -> None:
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "name": "search"}, {"type": "tool_result"}]
    note = "```\nThis block is not supported on your current device yet.\n```"
    working = {**claude_message("m2", "assistant", note), "content": blocks}
    answer = claude_message("m3", "assistant", "", content=[*blocks, {"type": "text", "text": "Found it."}])
    chat = parse_chat(claude_chat("c1", claude_message("m1", "human", "Look it up"), working, answer))
    assert [message.text for message in chat.messages] == ["Look it up", "Found it."]
    assert chat.left_out == {"model reasoning": 2, "tool call": 2, "tool result": 2, "empty": 1}


def test_only_the_branch_shown_last_is_parsed() -> None:
    messages = [
        claude_message("m1", "human", "Plan a trip", parent_message_uuid=ROOT),
        claude_message("m2", "assistant", "To Rome?", "2024-03-01T10:01:00Z", parent_message_uuid="m1"),
        claude_message("m3", "human", "Plan a hike", "2024-03-01T10:02:00Z", parent_message_uuid=ROOT),
        claude_message("m4", "assistant", "In the Alps?", "2024-03-01T10:03:00Z", parent_message_uuid="m3"),
    ]
    newest = parse_chat(claude_chat("c1", *messages))
    assert [message.text for message in newest.messages] == ["Plan a hike", "In the Alps?"]
    assert newest.left_out == {"not on the branch shown last": 2}
    chosen = parse_chat(claude_chat("c1", *messages, current_leaf_message_uuid="m2"))
    assert [message.text for message in chosen.messages] == ["Plan a trip", "To Rome?"]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([*"abcd", ROOT, None])), max_size=8))
def test_any_parents_are_parsed_without_duplicate_messages(pairs: list[tuple[str, Any]]) -> None:
    messages = [claude_message(id, "human", f"{n}", parent_message_uuid=up) for n, (id, up) in enumerate(pairs)]
    chat = parse_chat(claude_chat("c1", *messages))
    texts = [message.text for message in chat.messages]
    assert len(set(texts)) == len(texts)
    assert len(set(chat.keys)) == len(texts)
    assert len(texts) + chat.left_out.get("not on the branch shown last", 0) == len(pairs)


@given(JSON, JSON, JSON)
def test_fields_of_any_type_are_parsed_without_errors(content: Any, sender: Any, time: Any) -> None:
    messages = [
        {"content": content, "sender": sender, "created_at": time, "attachments": content, "files": [sender]},
        {**claude_message("m1", "human", "Hi"), "content": [content, {"type": sender, "text": time}], "uuid": time},
        content,
    ]
    assert len(parse_chat({"chat_messages": messages, "uuid": content, "name": sender}).messages) <= 2
