"""Reading a skill's files: no file outside the folder is ever read."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import SkillError
from tellback.skills import Skill, builtins, load_skills
from tellback.skills.skill import MAX_FILE_BYTES, MAX_LISTED_FILES, MAX_VISITED_FILES, SkillFolder
from tellback.tools import Tool, ToolCall, ToolResult, dispatch

SECRET = "the secret outside"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A skill's folder with valid files, all kinds of unsafe entries, and secrets outside."""
    outer_folder = tmp_path_factory.mktemp("around")
    root = outer_folder / "notes"
    (root / "refs" / "deep").mkdir(parents=True)
    (root / "SKILL.md").write_text("---\nname: notes\ndescription: d\n---\nText.\n")
    (root / "refs" / "a.md").write_text("inside a")
    (root / "refs" / "deep" / "b.md").write_text("inside b")
    for place in (outer_folder / "secret.txt", outer_folder / "notes-too", root / ".env"):
        place.write_text(SECRET)
    (root / "out").symlink_to(outer_folder / "secret.txt")
    (root / "out-relative").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    (root / "slash").symlink_to("/")
    (root / "refs" / "hop").symlink_to("../out")
    (root / "hidden").symlink_to(".env")
    (root / "around").symlink_to("around")
    (root / "inside").symlink_to("refs/a.md")
    (root / "inner").symlink_to("refs/deep")
    os.mkfifo(root / "pipe")
    (root / "to-pipe").symlink_to("pipe")
    (root / "zero").symlink_to("/dev/zero")
    return root


@pytest.fixture
async def notes(folder: Path) -> list[Tool]:
    """The tools of an agent that has read the skill."""
    tools = builtins(load_skills(folder))
    await dispatch(ToolCall("c1", "read_skill", {"name": "notes"}), tools)
    return tools


async def read_file(notes: list[Tool], path: str, skill: str = "notes") -> ToolResult:
    return await dispatch(ToolCall("c1", "read_skill_file", {"skill": skill, "path": path}), notes)


def text_in(folder: Path, path: str) -> str:
    return SkillFolder.at(folder).text(path, "notes")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        *(("refs/a.md", "inside a"), ("./refs//a.md", "inside a"), ("refs/deep/b.md", "inside b")),
        *(("inside", "inside a"), ("inner/b.md", "inside b")),
    ],
)
async def test_files_inside_the_folder_are_read(notes: list[Tool], path: str, text: str) -> None:
    assert (await read_file(notes, path)).content == text


@pytest.mark.parametrize(
    "path",
    [
        *(
            "../secret.txt",
            "refs/../../secret.txt",
            "refs/deep/../../../secret.txt",
            "./../secret.txt",
            "..",
            "../notes-too",
        ),
        *("/etc/passwd", "//etc/passwd", "~/.bashrc", "file:///etc/passwd", "%2e%2e/secret.txt"),
        *("..\\secret.txt", "refs\\a.md", "C:\\secret.txt", "C:/secret.txt", "C:secret.txt", "\\\\host\\share"),
        *(
            "out",
            "out-relative",
            "up/secret.txt",
            "slash/etc/passwd",
            "refs/hop",
            "up/notes-too",
            "up/notes/refs/a.md/..",
        ),
        *("refs/a.md\0", "\0", "refs/a.md\0.txt", "\ud800", "refs/\udcff", "x" * 300, "x/" * 5_000, "refs/a.md/x"),
        *("", ".", "./", "/", "refs", "refs/", "inner", "nothing.md", ".env", "hidden", "refs/.hidden", "around"),
        *("pipe", "to-pipe", "zero", "slash/dev/zero", "slash/proc/self/environ", "REFS/A.MD"),
    ],
)
async def test_any_other_path_is_an_error(notes: list[Tool], path: str) -> None:
    result = await read_file(notes, path)
    assert result.is_error
    assert "SkillError" in result.content
    assert SECRET not in result.content


steps = st.sampled_from(
    [
        *("..", ".", "", "refs", "deep", "a.md", "b.md", "out", "up", "slash", "notes", "secret.txt", "notes-too"),
        *("inside", "etc", "hostname", "inner", ".env", "\0", "\\", "C:", "~", "hop", "hidden"),
    ]
)


@given(st.lists(steps | st.text(max_size=3), max_size=8).map("/".join) | st.text(max_size=20))
def test_no_path_escapes_the_folder(folder: Path, path: str) -> None:
    try:
        text = text_in(folder, path)
    except SkillError:
        return
    assert text.startswith(("inside", "---\nname: notes"))


async def test_sockets_are_not_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        with pytest.raises(SkillError, match="not a regular file"):
            text_in(tmp_path, "socket")


async def test_the_error_for_an_unknown_skill_lists_skills_with_files(notes: list[Tool]) -> None:
    for name in ("other", "../notes", ""):
        result = await read_file(notes, "refs/a.md", skill=name)
        assert result.is_error
        assert "with files: notes" in result.content


async def test_only_files_of_opened_skills_can_be_read(folder: Path) -> None:
    tools = builtins(load_skills(folder))
    assert "not read yet" in (await read_file(tools, "refs/a.md")).content
    await dispatch(ToolCall("c1", "apply_skill", {"name": "notes"}), tools)
    assert (await read_file(tools, "refs/a.md")).content == "inside a"
    assert "not read yet" in (await read_file(builtins(load_skills(folder)), "refs/a.md")).content


async def test_files_of_skills_of_other_agents_cannot_be_read(tmp_path: Path) -> None:
    for name in ("ours", "secret"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n")
        (tmp_path / name / "notes.md").write_text(f"notes of {name}")
    own_skill, secret = load_skills(tmp_path)
    tools = builtins([own_skill])
    for name in ("ours", "secret"):
        await dispatch(ToolCall("c1", "read_skill", {"name": name}), tools)
    assert (await read_file(tools, "notes.md", "ours")).content == "notes of ours"
    assert "not read yet" in (await read_file(tools, "notes.md", "secret")).content
    assert secret.files is not None


def test_read_skill_file_is_offered_only_if_there_are_files() -> None:
    assert "read_skill_file" not in {tool.name for tool in builtins([Skill("tone", "Our voice")])}


def test_a_large_file_is_truncated_at_a_character_boundary_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text("a" + "é" * MAX_FILE_BYTES)
    text = text_in(tmp_path, "large.txt")
    assert text.startswith("aéé")
    assert "\ufffd" not in text
    assert f"first {MAX_FILE_BYTES} of {2 * MAX_FILE_BYTES + 1} bytes" in text
    (tmp_path / "whole.txt").write_text("a" * MAX_FILE_BYTES)
    assert text_in(tmp_path, "whole.txt") == "a" * MAX_FILE_BYTES


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0", b"text\0text", "é".encode("latin-1"), "wide".encode("utf-16")]
)
def test_a_binary_file_is_an_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(SkillError, match="not text"):
        text_in(tmp_path, "file")


def test_a_folder_swapped_for_a_link_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "notes"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "a.md").write_text("inside")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text(SECRET)
    lstat = os.lstat

    def swap(path: str, **options: int) -> os.stat_result:
        found = lstat(path, **options)
        if path.endswith("a.md") and not (root / "refs").is_symlink():
            (root / "refs").rename(root / "before")
            (root / "refs").symlink_to(outside)
        return found

    loaded = SkillFolder.at(root)
    monkeypatch.setattr(os, "lstat", swap)
    with pytest.raises(SkillError, match="cannot be read"):
        loaded.text("refs/a.md", "notes")
    assert (root / "refs").is_symlink()


def test_a_folder_that_replaced_the_loaded_one_is_not_read(tmp_path: Path) -> None:
    root, other = tmp_path / "notes", tmp_path / "other"
    for folder in (root, other):
        folder.mkdir()
        (folder / "a.md").write_text(folder.name)
    loaded = SkillFolder.at(root)
    assert loaded.text("a.md", "notes") == "notes"
    root.rename(tmp_path / "before")
    other.rename(root)
    with pytest.raises(SkillError, match="load it again"):
        loaded.text("a.md", "notes")
    root.rename(other)
    root.symlink_to(other)
    with pytest.raises(SkillError, match="out of the skill's folder"):
        loaded.text("a.md", "notes")


def test_listing_a_huge_folder_stops_at_a_limit(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for index in range(MAX_VISITED_FILES + 1):
        (tmp_path / "notes" / f".{index}").touch()
    assert SkillFolder.at(tmp_path / "notes").has_more
    for index in range(3):
        (tmp_path / "notes" / f".{index}").unlink()
    assert not SkillFolder.at(tmp_path / "notes").has_more


def test_a_full_file_list_is_marked_incomplete_only_if_there_are_more(tmp_path: Path) -> None:
    for index in range(MAX_LISTED_FILES):
        (tmp_path / f"{index}.md").write_text("x")
    assert not SkillFolder.at(tmp_path).has_more
    (tmp_path / "one-more.md").write_text("x")
    found = SkillFolder.at(tmp_path)
    assert (len(found.names), found.has_more) == (MAX_LISTED_FILES, True)


def test_file_descriptors_are_closed(folder: Path) -> None:
    files = SkillFolder.at(folder)
    before = len(os.listdir("/proc/self/fd"))
    for path in ("refs/deep/b.md", "out", "pipe", "refs", "nothing"):
        for _ in range(5):
            try:
                files.text(path, "notes")
            except SkillError:
                continue
    assert len(os.listdir("/proc/self/fd")) == before
