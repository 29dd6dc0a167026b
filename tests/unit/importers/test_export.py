"""Reading exports: zips, folders and JSON Lines, and rejecting invalid ones."""

from __future__ import annotations

import json
import os
import zipfile
from array import array
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import ImportFormatError, InvalidArgumentError
from tellback.importers import ImportedChat, ImportedMessage, ImportReport, export, read_chats
from tellback.importers.export import ChatExport
from tellback.types.ids import utc_now
from tests.unit.importers.chat_exports import (
    MARCH,
    claude_chat,
    claude_message,
    gpt_chat,
    gpt_message,
    write_json,
    write_zip,
)
from tests.unit.importers.test_chatgpt import JSON

GPT = [
    gpt_chat("late", gpt_message("user", "Hi"), at=MARCH + 1),
    gpt_chat("early", gpt_message("user", "Hello"), at=MARCH),
]
CLAUDE = [claude_chat("c1", claude_message("m1", "human", "Olá, José"))]


def read_titles(source: Path) -> list[str | None]:
    return [chat.title for chat in read_chats(source)]


def test_chats_are_ordered_oldest_first(tmp_path: Path) -> None:
    assert read_titles(write_json(tmp_path / "conversations.json", GPT)) == ["Chat early", "Chat late"]


def test_the_format_is_detected(tmp_path: Path) -> None:
    lines = [{"conversation": "a", "role": "user", "content": "Hi"}]
    for name, value, format in (("g.json", GPT, "chatgpt"), ("c.json", CLAUDE, "claude"), ("p.jsonl", lines, "jsonl")):
        with closing(ChatExport(write_json(tmp_path / name, value))) as export:
            assert export.format == format


def test_a_wrong_or_unknown_format_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ImportFormatError, match=r"no chats of the format 'claude'.*Omit the format"):
        list(read_chats(write_json(tmp_path / "conversations.json", GPT), "claude"))
    with pytest.raises(InvalidArgumentError, match="format must be 'auto' or"):
        list(read_chats(tmp_path, "word"))  # type: ignore[arg-type]


def test_an_export_may_consist_of_several_files(tmp_path: Path) -> None:
    write_json(tmp_path / "conversations-000.json", GPT[:1])
    write_json(tmp_path / "conversations-001.json", GPT[1:])
    write_json(tmp_path / "user.json", {"id": "me"})
    assert read_titles(tmp_path) == ["Chat early", "Chat late"]
    packed = write_zip(
        tmp_path / "export.zip", **{"conversations-000_json": GPT[:1], "conversations-001_json": GPT[1:]}
    )
    assert read_titles(packed) == ["Chat early", "Chat late"]


def test_a_zip_inside_a_zip_is_read(tmp_path: Path) -> None:
    inner = write_zip(tmp_path / "inner.zip", conversations_json=CLAUDE).read_bytes()
    outer = write_zip(tmp_path / "outer.zip", Activity__Conversations_zip=inner, report_html=b"<html>")
    assert read_titles(outer) == ["Chat c1"]


def test_paths_in_a_zip_are_never_written_to(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../../conversations.json", json.dumps(CLAUDE))
    before = sorted(tmp_path.parent.rglob("*"))
    assert read_titles(tmp_path / "evil.zip") == ["Chat c1"]
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_a_zip_bomb_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SMALL_FILE_BYTES", 100_000)
    bomb = write_zip(tmp_path / "bomb.zip", conversations_json=b"[" + b" " * 5_000_000 + b"]")
    with pytest.raises(ImportFormatError, match="unpacks to more than"):
        list(read_chats(bomb))


def test_a_damaged_zip_is_rejected(tmp_path: Path) -> None:
    data = write_zip(tmp_path / "export.zip", conversations_json=GPT).read_bytes()
    broken = bytearray(data)
    broken[60:120] = os.urandom(60)
    (tmp_path / "export.zip").write_bytes(broken)
    with pytest.raises(ImportFormatError, match="damaged"):
        list(read_chats(tmp_path / "export.zip"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"  \n ", "empty"),
        (b"[", "the file is truncated"),
        (json.dumps(GPT).encode()[:-40], "the file is truncated"),
        (json.dumps(GPT).encode()[:-1], "the file is truncated"),
        (b'[{"mapping": {}} {"mapping": {}}]', "expected a comma"),
        (b'[{"mapping": {"a": }}, ' + b'"x", ' * 50 + b"1]", "not JSON"),
        (b'[{"mapping": "caf\xe9"}]', "not UTF-8"),
        (b"[" * 100_000, "cannot be read|truncated"),
        (b'[{"id": ' + b"9" * 10_000 + b"}]", "cannot be read"),
        (b'[1, "x", null]', "no chats of a known format"),
        (b'{"hello": "world"}', "no chats of a known format"),
        (b"\xff\xfe[\x00\xd8", "UTF-16"),
        (b"PK\x03\x04 truncated", "the zip is damaged or truncated"),
        (b"Dear diary", "not JSON"),
    ],
)
def test_a_file_that_is_not_an_export_is_rejected_with_the_reason(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "conversations.json"
    file.write_bytes(content)
    with pytest.raises(ImportFormatError, match=problem) as caught:
        list(read_chats(file))
    assert caught.value.path == "conversations.json"


def test_a_folder_or_zip_without_chats_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="no file or folder"):
        list(read_chats(tmp_path / "none.zip"))
    write_json(tmp_path / "photo.json", [])
    with pytest.raises(ImportFormatError, match=r"it contains photo\.json"):
        list(read_chats(tmp_path))
    with pytest.raises(ImportFormatError, match=r"no conversations\.json"):
        list(read_chats(write_zip(tmp_path / "p.zip", photo_png=b"x")))


def test_an_empty_folder_or_zip_is_rejected(tmp_path: Path) -> None:
    empty = tmp_path / "export"
    empty.mkdir()
    with pytest.raises(ImportFormatError, match=r"no conversations\.json and no \.jsonl file: it is empty\.") as caught:
        list(read_chats(empty))
    assert caught.value.path == str(empty)
    with pytest.raises(ImportFormatError, match=r"it contains no conversations\.json and no \.jsonl file\.") as caught:
        list(read_chats(write_zip(tmp_path / "empty.zip")))
    assert caught.value.path == "empty.zip"


def test_the_files_of_a_folder_without_chats_are_listed_up_to_a_limit(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.png").touch()
    with pytest.raises(ImportFormatError, match=r"it contains 0\.png, .*, 7\.png …\."):
        list(read_chats(tmp_path))


def test_an_empty_export_is_valid(tmp_path: Path) -> None:
    assert read_titles(write_json(tmp_path / "conversations.json", [])) == []


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_with_a_byte_order_mark_are_read(tmp_path: Path, encoding: str) -> None:
    for name, text in (("c.json", json.dumps(CLAUDE, ensure_ascii=False)), ("l.jsonl", '{"role":"user","text":"é"}')):
        (tmp_path / name).write_text(text, encoding)
    assert [chat.messages[0].text for chat in read_chats(tmp_path / "c.json")] == ["Olá, José"]
    assert [chat.messages[0].text for chat in read_chats(tmp_path / "l.jsonl")] == ["é"]


def test_message_lines_are_grouped_by_conversation(tmp_path: Path) -> None:
    lines: list[Any] = [
        {"conversation": "b", "role": "human", "content": "One", "created_at": "2024-03-02T10:00:00+01:00"},
        {"conversation": "a", "role": "user", "content": [{"type": "text", "text": "Two"}], "timestamp": MARCH},
        {"conversation": "b", "role": "assistant", "content": "Three", "model": "gpt-5", "provider": "openai"},
        {"conversation": "a", "role": "tool", "content": "12"},
        {"conversation": "a", "role": "developer", "content": "Be kind."},
    ]
    a, b = read_chats(write_json(tmp_path / "chats.jsonl", lines))
    assert [(message.role, message.text, message.visibility) for message in a.messages] == [
        ("user", "Two", "user"),
        ("system", "Be kind.", "internal"),
    ]
    assert a.left_out == {"tool result": 1}
    assert [(message.text, message.model) for message in b.messages] == [("One", None), ("Three", "gpt-5")]


def test_a_line_may_be_a_whole_chat(tmp_path: Path) -> None:
    tuned = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}
    shared = {"id": 7, "conversations": [{"from": "human", "value": "Hey"}, {"from": "gpt", "value": "Yes?"}]}
    chats = list(read_chats(write_json(tmp_path / "tuning.jsonl", [tuned, shared, tuned])))
    assert [[message.text for message in chat.messages] for chat in chats] == [["Hi", "Hello!"], ["Hey", "Yes?"]]
    assert chats[0].id.startswith("sha256:")
    assert chats[1].id == "7"


def test_invalid_lines_are_counted_and_the_others_are_read(tmp_path: Path) -> None:
    good = b'{"role": "user", "content": "Hi"}'
    (tmp_path / "c.jsonl").write_bytes(b"\n".join([good, b"{oops", b"", b'"caf\xe9"', b"3", good]))
    with closing(ChatExport(tmp_path / "c.jsonl")) as export:
        [chat] = list(export)
        assert len(chat.messages) == 2
        assert export.skipped == {
            "line is not JSON": 1,
            "line is not UTF-8": 1,
            "not a chat of this format": 1,
        }


def test_a_file_may_contain_a_single_chat(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(GPT[0], indent=2))
    assert read_titles(tmp_path / "one.json") == ["Chat late"]


def test_chats_that_are_not_imported_are_counted(tmp_path: Path) -> None:
    chats = [*GPT, GPT[0], gpt_chat("empty"), gpt_chat("secret", gpt_message("user", "x"), is_do_not_remember=True), 3]
    with closing(ChatExport(write_json(tmp_path / "conversations.json", chats))) as export:
        assert len(export.entries) == 2
        assert export.skipped == {
            "duplicate in the export": 1,
            "no messages": 1,
            "marked as do not remember": 1,
            "not a chat of this format": 1,
        }


def test_characters_that_databases_cannot_store_are_removed(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"role": "user", "content": "a\\u0000b\\ud800c"}')
    assert [chat.messages[0].text for chat in read_chats(tmp_path / "c.jsonl")] == ["abc"]


def test_an_overlong_message_is_truncated_and_counted(tmp_path: Path) -> None:
    [chat] = read_chats(write_json(tmp_path / "c.jsonl", [{"role": "user", "content": "x" * 600_000}]))
    assert len(chat.messages[0].text) == 500_000
    assert chat.left_out == {"truncated to 500,000 characters": 1}
    report = ImportReport("jsonl", chats=1, messages=1, left_out={**chat.left_out, "tool result": 2})
    assert str(report) == (
        "Imported 1 chat with 1 message. Left out 2 messages: tool result. 1 message truncated to 500,000 characters."
    )


@given(st.lists(JSON, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
def test_offsets_of_values_are_correct_for_any_chunk_size(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], chunk: int, indent: int | None
) -> None:
    file = tmp_path_factory.mktemp("values") / "v.json"
    text = json.dumps(values, indent=indent, ensure_ascii=False)
    file.write_bytes(text.encode("utf-8", "replace"))
    expected = json.loads(file.read_text())
    with file.open("rb") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "CHUNK_BYTES", chunk)
        chats = export.ChatFile("v.json", stream)
        found = list(export.iter_json_values(chats))
        assert repr([each.value for each in found if isinstance(each, export.JsonValue)]) == repr(expected)
        for each in found:
            assert isinstance(each, export.JsonValue)
            [again] = export.ChatPiece(chats, array("Q", (each.offset, each.length))).read()
            assert repr(again) == repr(each.value)


def test_equal_messages_get_different_keys() -> None:
    messages = [ImportedMessage("user", text, id=id) for text, id in (("a", "x"), ("b", "x"), ("c", "x#2"), ("d", "x"))]
    messages += [
        ImportedMessage("user", "Hi"),
        ImportedMessage("user", "Hi"),
        ImportedMessage("user", "x" * 900, id="y" * 900),
    ]
    for count in range(1, len(messages) + 1):
        keys = ImportedChat("jsonl", "c", None, tuple(messages[:count])).keys
        assert len(set(keys)) == count
        assert keys == ImportedChat("jsonl", "c", None, tuple(messages)).keys[:count]
        assert max(map(len, keys)) < 500


def test_a_long_chat_id_gets_a_short_session_id() -> None:
    assert len(ImportedChat("jsonl", "x" * 3_000, None, ()).session_id) < 500


def test_a_chat_in_several_files_is_joined_without_repeated_messages(tmp_path: Path) -> None:
    january = [{"conversation": "c", "role": "user", "content": "January"}]
    february = [{"conversation": "c", "role": "user", "content": "February"}]
    for name, lines in (("1", january), ("2", february), ("3", january + february)):
        write_json(tmp_path / f"{name}.jsonl", lines)
    with closing(ChatExport(tmp_path)) as export:
        [chat] = export
        assert [message.text for message in chat.messages] == ["January", "February"]
        assert chat.left_out == {"repeated in another file of the export": 2}
        assert not export.skipped


def test_unnamed_chats_in_files_with_the_same_name_stay_separate(tmp_path: Path) -> None:
    ok = {"role": "assistant", "content": "ok"}
    texts = ("My cat is Tom", "My dog is Rex")
    files = [[{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}, ok] for text in texts]
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        for folder, lines in zip("ab", files, strict=True):
            (tmp_path / folder).mkdir()
            path = write_json(tmp_path / folder / "chat.jsonl", lines)
            archive.write(path, f"{folder}/chat.jsonl")
    for source in (tmp_path, tmp_path / "both.zip"):
        assert [[each.text for each in chat.messages[1:]] for chat in read_chats(source)] == [[t, "ok"] for t in texts]
    cat, dog, grown = [
        next(iter(read_chats(path))).session_id
        for path in (
            tmp_path / "a" / "chat.jsonl",
            tmp_path / "b" / "chat.jsonl",
            write_json(tmp_path / "chat.jsonl", [*files[0], ok]),
        )
    ]
    assert cat == grown != dog


def test_a_time_in_the_future_is_ignored(tmp_path: Path) -> None:
    ahead = (utc_now() + timedelta(days=2)).isoformat()
    lines = [{"role": "user", "content": "One", "created_at": MARCH}, {"role": "user", "content": "Two", "time": ahead}]
    [chat] = read_chats(write_json(tmp_path / "c.jsonl", lines))
    assert {message.created_at for message in chat.messages} == {datetime.fromtimestamp(MARCH, UTC)}


def test_text_blocks_of_openai_threads_are_read(tmp_path: Path) -> None:
    content = [{"type": "text", "text": {"value": "Hi", "annotations": []}}]
    [chat] = read_chats(write_json(tmp_path / "c.jsonl", [{"role": "user", "content": content}]))
    assert [message.text for message in chat.messages] == ["Hi"]
