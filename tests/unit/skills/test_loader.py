"""Skills from folders: valid and invalid SKILL.md files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import SkillError
from tellback.skills import MAX_BODY, Skill, load_body, load_skills
from tellback.skills.loader import parse_skill_file, render_skills, validate_settings
from tellback.skills.skill import MAX_LISTED_FILES

GOOD = "name: pdf-forms\ndescription: Fill in forms."


def write(folder: Path, settings: str = GOOD, body: str = "# Forms\n\nLook first.", **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\n{settings}\n---\n{body}\n")
    for name, text in files.items():
        (folder / f"{name}.md").write_text(text)
    return folder


def load_one(folder: Path) -> Skill:
    [loaded] = load_skills(folder)
    return loaded


async def test_a_folder_with_a_skill_file_is_a_skill(tmp_path: Path) -> None:
    loaded = load_one(write(tmp_path / "pdf-forms"))
    assert (loaded.name, loaded.description, loaded.tools) == ("pdf-forms", "Fill in forms.", ())
    assert await load_body(loaded, {}) == "# Forms\n\nLook first."


def test_dates_and_times_stay_strings(tmp_path: Path) -> None:
    settings = f"{GOOD}\nsince: 2026-99-99\nat: 12:30:45\nlong: 1{':59' * 5_000}"
    meta = load_one(write(tmp_path / "pdf-forms", settings)).meta
    assert (meta["since"], meta["at"]) == ("2026-99-99", "12:30:45")
    assert len(meta["long"]) == 15_001


async def test_control_characters_are_removed_from_a_body(tmp_path: Path) -> None:
    loaded = load_one(write(tmp_path / "pdf-forms", body="Look\x00 \x1b[31mfirst.\n\tThen fill in."))
    assert await load_body(loaded, {}) == "Look [31mfirst.\n\tThen fill in."


def test_known_and_unknown_settings_are_stored(tmp_path: Path) -> None:
    settings = f"""{GOOD}
when: [form, "fill: in"]
modalities: [pdf]
requires: [tone]
license: MIT
allowed-tools: Bash(git:*) Read
metadata: {{author: maya, version: "1.0"}}"""
    loaded = load_one(write(tmp_path / "pdf-forms", settings))
    assert (loaded.when, loaded.modalities, loaded.requires) == (("form", "fill: in"), ("pdf",), ("tone",))
    assert loaded.meta["metadata"] == {"author": "maya", "version": "1.0"}
    assert loaded.meta.keys() == {"license", "allowed-tools", "metadata"}


def test_subfolders_are_loaded_in_order(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / name, f"name: {name}\ndescription: d")
    (tmp_path / "no-skill").mkdir()
    (tmp_path / "README.md").write_text("not a skill")
    assert [loaded.name for loaded in load_skills(str(tmp_path))] == ["a", "b", "c"]


def test_a_relative_path_resolves_to_the_folder_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(tmp_path / "pdf-forms"))
    assert load_one(Path()).name == "pdf-forms"
    (tmp_path / "installed").symlink_to(tmp_path / "pdf-forms")
    assert load_one(tmp_path / "installed").name == "pdf-forms"


def test_a_link_that_leads_out_of_the_folder_is_rejected(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "pdf-forms")
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "pdf-forms").symlink_to(tmp_path / "elsewhere" / "pdf-forms")
    with pytest.raises(SkillError, match="leads out of"):
        load_skills(tmp_path / "skills")
    (tmp_path / "link").symlink_to("skills")
    write(tmp_path / "skills" / "kept" / "pdf-forms")
    (tmp_path / "skills" / "pdf-forms").unlink()
    (tmp_path / "skills" / "pdf-forms").symlink_to("kept/pdf-forms")
    assert load_one(tmp_path / "link").name == "pdf-forms"


def test_hidden_folders_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / "pdf-forms")
    write(tmp_path / ".trash", "name: trash\ndescription: d")
    assert load_one(tmp_path).name == "pdf-forms"


async def test_windows_line_endings_and_byte_order_marks_are_accepted(tmp_path: Path) -> None:
    folder = write(tmp_path / "pdf-forms")
    (folder / "SKILL.md").write_bytes(
        b"\xef\xbb\xbf---\r\nname: pdf-forms\r\ndescription: d\r\n--- \r\nOne\r\nTwo\r\n---\r\n"
    )
    assert await load_body(load_one(folder), {}) == "One\nTwo\n---"


async def test_files_are_listed_after_the_body(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / name, f"name: {name}\ndescription: d", body="Text.")
    (tmp_path / "a" / "refs").mkdir()
    (tmp_path / "a" / "refs" / "x.md").write_text("x")
    (tmp_path / "a" / "z.txt").write_text("z")
    (tmp_path / "b" / "y.md").write_text("y")
    a, b, c = load_skills(tmp_path)
    listing = 'Files of this skill. Read them with read_skill_file(skill="a", path=...):\n- refs/x.md\n- z.txt'
    assert await load_body(a, {}) == f"Text.\n\n{listing}"
    assert b.files is not None
    assert b.files.names == ("y.md",)
    assert (a.body, c.files) == ("Text.", None)


def test_only_readable_files_are_listed(tmp_path: Path) -> None:
    folder = write(tmp_path / "pdf-forms", good="x")
    for hidden in (".git", "__pycache__"):
        (folder / hidden).mkdir()
        (folder / hidden / "x").write_text("x")
    (folder / ".env").write_text("secret")
    (folder / "two\n- lines").write_text("forged")
    (folder / "out.md").symlink_to("/etc/hostname")
    (folder / "gone.md").symlink_to("nowhere")
    (folder / "around").symlink_to("around")
    (folder / "self").symlink_to(".")
    (folder / "inside.md").symlink_to("good.md")
    (folder / "to-hidden.md").symlink_to(".env")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    os.mkfifo(folder / "pipe")
    files = load_one(folder).files
    assert files is not None
    assert files.names == ("good.md", "inside.md")
    for name in files.names:
        assert files.text(name, "pdf-forms") == "x"


async def test_a_truncated_body_still_lists_its_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "pdf-forms", body="x" * (MAX_BODY * 2))
    for index in range(MAX_LISTED_FILES + 5):
        (folder / f"{index:04}-{'n' * 150}.md").write_text("x")
    body = await load_body(load_one(folder), {})
    assert "[Truncated" in body
    assert body.count("\n- ") == MAX_LISTED_FILES
    assert body.endswith("(and more that are not listed)")
    assert len(body) <= MAX_BODY


async def test_several_truncated_bodies_still_list_their_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(
            tmp_path / name, f"name: {name}\ndescription: d\nrequires: [{'b' if name == 'a' else ''}]", "x" * MAX_BODY
        )
        (tmp_path / name / f"file-of-{name}.md").write_text("x")
    text = await render_skills(load_skills(tmp_path), {})
    assert len(text) <= MAX_BODY + 100
    assert "- file-of-a.md\n\n# Skill: b" in text
    assert text.endswith("- file-of-b.md")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ("description: d", "no name"),
        ("name: 3\ndescription: d", "no name"),
        ("name: PDF-Forms\ndescription: d", "lowercase"),
        ("name: -pdf-forms\ndescription: d", "lowercase"),
        ("name: pdf--forms\ndescription: d", "lowercase"),
        ("name: pdf_forms\ndescription: d", "lowercase"),
        ("name: ../pdf-forms\ndescription: d", "lowercase"),
        (f"name: {'a' * 65}\ndescription: d", "lowercase"),
        ("name: other\ndescription: d", "folder"),
        ("name: pdf-forms", "no description"),
        ("name: pdf-forms\ndescription: ' '", "no description"),
        ("name: pdf-forms\ndescription: [d]", "no description"),
        (f"name: pdf-forms\ndescription: {'d' * 1025}", "1024"),
        (f"{GOOD}\nwhen: form", "when"),
        (f"{GOOD}\nrequires: [3]", "requires"),
        ("name: pdf-forms\ndescription: Use when: asked", "Quote"),
        ("name: [", "YAML"),
        ("- a\n- b", "names with values"),
        ("1: 2", "names with values"),
        ("", "names with values"),
        ("x: !!python/object/apply:os.system ['touch /tmp/x']", "YAML"),
        ("x: !!int ''", "YAML"),
        ("x: !!timestamp 'x'", "YAML"),
        ("x: !!bool 'x'", "YAML"),
        (f"x: {'9' * 10_000}", "YAML"),
        ("a: &a [x, x]\nb: *a", "aliases"),
        (f"{GOOD}\nname: other", "duplicate key"),
        ('name: pdf-forms\ndescription: "a\\ud800b"', "description contains"),
        ('name: pdf-forms\ndescription: "a\\0b"', "description contains"),
        (f'{GOOD}\nwhen: ["\\e[31m"]', "when contains"),
        ("x: [" + "a," * 5_000 + "]", "values"),
        ("x: " + "[" * 7_000, "YAML"),
        ("x: " + "[" * 30 + "]" * 30, "nested"),
        ("x: " + "{a: " * 3_000, "YAML"),
        ("x: " + "y" * 20_000, "longer"),
    ],
)
def test_invalid_settings_are_reported_with_their_file(tmp_path: Path, settings: str, problem: str) -> None:
    folder = write(tmp_path / "pdf-forms", settings)
    with pytest.raises(SkillError, match=problem) as caught:
        load_skills(folder)
    assert str(folder / "SKILL.md") in str(caught.value)


pieces = st.sampled_from(
    [
        *(
            "name",
            "description",
            "when",
            ": ",
            "\n",
            "- ",
            "[",
            "]",
            "{",
            "}",
            "&a ",
            "*a",
            "? ",
            "| ",
            "> ",
            "  ",
            "<<",
        ),
        *(
            "!!int ",
            "!!float ",
            "!!binary ",
            "!!set ",
            "!!omap ",
            "!!pairs ",
            "!!null ",
            "!x ",
            "%TAG",
            "...",
            "'",
            '"',
        ),
        *(
            "1:99",
            "0b",
            "0x",
            "._",
            ".inf",
            "1e9999",
            "2026-01-01",
            "12:30:45",
            "~",
            "#",
            "\t",
            "@",
            "`",
            "\\x",
            "\x07",
        ),
    ]
)


@given(st.lists(pieces | st.text(max_size=3), max_size=25).map("".join))
def test_any_settings_are_loaded_or_rejected(settings: str) -> None:
    try:
        found, _ = parse_skill_file(f"---\n{settings}\n---\nbody", "x", "x/SKILL.md")
        validate_settings(found, {"x"}, "x", "x/SKILL.md")
    except SkillError:
        pass


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"# No settings", "does not start"),
        (b"", "does not start"),
        (b"---\nname: pdf-forms\n", "does not start"),
        (b"---\nname: pdf-forms\ndescription: \xff\n---\n", "UTF-8"),
        (b"---\nname: pdf-forms\ndescription: d\n---\n" + b"x" * 1_000_000, "larger"),
    ],
)
def test_an_invalid_skill_file_is_reported(tmp_path: Path, data: bytes, problem: str) -> None:
    folder = write(tmp_path / "pdf-forms")
    (folder / "SKILL.md").write_bytes(data)
    with pytest.raises(SkillError, match=problem) as caught:
        load_skills(folder)
    assert str(folder / "SKILL.md") in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "folder", "link out", "broken link"])
def test_a_skill_file_that_is_not_a_regular_file_is_rejected(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "pdf-forms"
    folder.mkdir()
    file = folder / "SKILL.md"
    (tmp_path / "other.md").write_text(f"---\n{GOOD}\n---\nsecret")
    match kind:
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case "link out":
            file.symlink_to(tmp_path / "other.md")
        case _:
            file.symlink_to("nowhere")
    with pytest.raises(SkillError, match=r"SKILL\.md"):
        load_skills(folder)


def test_two_folders_with_the_same_skill_name_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "pdf-forms")
    (tmp_path / "again").symlink_to("pdf-forms")
    with pytest.raises(SkillError, match="two skills"):
        load_skills(tmp_path)


def test_a_folder_without_skills_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SkillError, match="contains"):
        load_skills(tmp_path)
    with pytest.raises(SkillError, match="no folder"):
        load_skills(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(SkillError, match="no folder"):
        load_skills(tmp_path / "file")
