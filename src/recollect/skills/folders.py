"""Skills from folders in the open Agent Skills format: a SKILL.md, with other files beside it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from recollect.errors import SkillError
from recollect.skills.body import MAX_BODY, cut
from recollect.skills.files import SkillFiles, files_of, read_inside
from recollect.skills.frontmatter import check_settings, split_skill_file
from recollect.skills.skill import Skill, skills_for

SKILL_FILE = "SKILL.md"
MAX_SKILL_FILE = 1_000_000
_OURS = ("name", "description", "when", "modalities", "requires")


def load_skills(path: str | os.PathLike[str]) -> list[Skill]:
    """The skill of a folder that holds a SKILL.md, or the skills of all such folders right inside it, by name.

    Nothing in a folder is run. Its other files are listed with the skill, and the model reads them one by one with the
    tool `read_skill_file`. Settings that Recollect does not know are kept in `Skill.meta`.

    >>> load_skills("no/such/folder")
    Traceback (most recent call last):
    recollect.errors.SkillError: Skill 'folder': there is no folder no/such/folder.
    """
    root = Path(path)
    try:
        folders = _skill_folders(root)
    except OSError as error:
        raise SkillError(root.name, f"the folder {root} cannot be read: {error.strerror}.") from error
    if not folders:
        raise SkillError(root.name, f"neither {root} nor a folder in it holds a {SKILL_FILE}.")
    return skills_for(_with_files([_load(folder) for folder in folders]))


def _skill_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise SkillError(root.name, f"there is no folder {root}.")
    if _holds_skill(root):
        return [root]
    return sorted(child for child in root.iterdir() if child.is_dir() and _holds_skill(child))


def _holds_skill(folder: Path) -> bool:
    return os.path.lexists(folder / SKILL_FILE)


def _load(folder: Path) -> tuple[Skill, Path, list[str]]:
    shown = Path(os.path.abspath(folder))
    real = shown.resolve()
    file = str(folder / SKILL_FILE)
    settings, body = split_skill_file(_text_of(real, shown.name, file), shown.name, file)
    check_settings(settings, {shown.name, real.name}, shown.name, file)
    files, more = files_of(real)
    listing = _listing(settings["name"], files, more)
    try:
        made = Skill(
            body=cut(body, MAX_BODY - len(listing)) + listing,
            meta={key: value for key, value in settings.items() if key not in _OURS},
            **{key: settings[key] for key in _OURS if key in settings},
        )
    except SkillError as error:
        raise SkillError(error.skill, f"{file}: {error.problem}") from error
    return made, real, files


def _text_of(real: Path, skill: str, file: str) -> str:
    data, size = read_inside(real, SKILL_FILE, MAX_SKILL_FILE, skill)
    if size > MAX_SKILL_FILE:
        raise SkillError(skill, f"{file} is larger than {MAX_SKILL_FILE} bytes; move parts of it to other files.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(skill, f"{file} is not text in UTF-8: {error.reason} at byte {error.start}.") from error


def _listing(name: str, files: list[str], more: bool) -> str:
    if not files:
        return ""
    lines = [f'Files of this skill, which read_skill_file(skill="{name}", path=...) reads:', *(f"- {f}" for f in files)]
    if more:
        lines.append("(and more that are not listed)")
    return "\n\n" + "\n".join(lines)


def _with_files(loaded: list[tuple[Skill, Path, list[str]]]) -> list[Skill]:
    folders = {skill.name: folder for skill, folder, files in loaded if files}
    tool = SkillFiles(folders).tool()
    return [replace(skill, tools=[tool]) if skill.name in folders else skill for skill, _, _ in loaded]
