"""Skills from folders in the open Agent Skills format: a SKILL.md, with other files beside it."""

from __future__ import annotations

import os
from pathlib import Path

from tellback.errors import SkillError
from tellback.skills.files import SkillFolder
from tellback.skills.frontmatter import parse_skill_file, validate_settings
from tellback.skills.skill import Skill, skills_for

SKILL_FILE = "SKILL.md"
MAX_SKILL_FILE_BYTES = 1_000_000
_KNOWN_SETTINGS = ("name", "description", "when", "modalities", "requires")


def load_skills(path: str | os.PathLike[str]) -> list[Skill]:
    """The skill of a folder that holds a SKILL.md, or the skills of all such folders right inside it, by name.

    Nothing in a folder is run. Its other files are listed with the skill, and once it was read or applied, the model
    reads them one by one with the tool `read_skill_file`. Settings that Tellback does not know are kept in
    `Skill.meta`. Hidden folders are passed over, and a link that leads elsewhere is refused.

    >>> load_skills("no/such/folder")
    Traceback (most recent call last):
    tellback.errors.SkillError: Skill 'folder': there is no folder no/such/folder.
    """
    root = Path(path)
    try:
        folders = _find_skill_folders(root)
    except OSError as error:
        raise SkillError(root.name, f"the folder {root} cannot be read: {error.strerror}.") from error
    if not folders:
        raise SkillError(root.name, f"neither {root} nor a folder in it holds a {SKILL_FILE}.")
    return skills_for(map(_load_skill, folders))


def _find_skill_folders(root: Path) -> list[Path]:
    if not root.is_dir():
        raise SkillError(root.name, f"there is no folder {root}.")
    if _has_skill_file(root):
        return [root]
    found = sorted(child for child in root.iterdir() if not child.name.startswith(".") and _has_skill_file(child))
    real = os.path.realpath(root)
    for child in found:
        if not Path(os.path.realpath(child)).is_relative_to(real):
            raise SkillError(child.name, f"{child} is a link that leads out of {root}; load that folder by itself.")
    return found


def _has_skill_file(folder: Path) -> bool:
    return folder.is_dir() and os.path.lexists(folder / SKILL_FILE)


def _load_skill(folder: Path) -> Skill:
    absolute = Path(os.path.abspath(folder))
    file = str(folder / SKILL_FILE)
    files = _open_folder(folder, absolute.name)
    settings, body = parse_skill_file(_read_skill_file(files, absolute.name, file), absolute.name, file)
    validate_settings(settings, {absolute.name, os.path.basename(files.root)}, absolute.name, file)
    try:
        return Skill(
            body=body,
            meta={key: value for key, value in settings.items() if key not in _KNOWN_SETTINGS},
            files=files if files.names else None,
            **{key: settings[key] for key in _KNOWN_SETTINGS if key in settings},
        )
    except SkillError as error:
        raise SkillError(error.skill, f"{file}: {error.problem}") from error


def _open_folder(folder: Path, skill: str) -> SkillFolder:
    try:
        return SkillFolder.at(folder)
    except OSError as error:
        raise SkillError(skill, f"the folder {folder} cannot be read: {error.strerror}.") from error


def _read_skill_file(files: SkillFolder, skill: str, file: str) -> str:
    data, size = files.read(SKILL_FILE, MAX_SKILL_FILE_BYTES, skill)
    if size > MAX_SKILL_FILE_BYTES:
        raise SkillError(skill, f"{file} is larger than {MAX_SKILL_FILE_BYTES} bytes; move parts of it to other files.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(skill, f"{file} is not text in UTF-8: {error.reason} at byte {error.start}.") from error
