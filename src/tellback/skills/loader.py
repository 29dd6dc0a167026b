"""Load skills from folders in the open Agent Skills format: a SKILL.md, with other files beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tellback.errors import SkillError
from tellback.skills.skill import Skill, SkillFolder, skills_for

MAX_SETTINGS_CHARS = 16_000
_MAX_DEPTH = 20
_MAX_VALUES = 2_000
_DELIMITER = re.compile(r"^---[ \t]*$", re.MULTILINE)
_NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")

SKILL_FILE = "SKILL.md"
MAX_SKILL_FILE_BYTES = 1_000_000
_KNOWN_SETTINGS = ("name", "description", "when", "modalities", "requires")


def parse_skill_file(text: str, skill: str, file: str) -> tuple[dict[str, Any], str]:
    """The settings and the body of a SKILL.md."""
    text = text.replace("\r\n", "\n")
    first = _DELIMITER.match(text)
    last = _DELIMITER.search(text, first.end()) if first else None
    if first is None or last is None:
        raise SkillError(skill, f"{file} does not start with its settings between two lines of '---'.")
    settings = text[first.end() : last.start()]
    if len(settings) > MAX_SETTINGS_CHARS:
        raise SkillError(skill, f"the settings of {file} are longer than {MAX_SETTINGS_CHARS} characters.")
    return _parse_settings(settings, skill, file), text[last.end() :].strip()


def validate_settings(settings: Mapping[str, Any], folder_names: set[str], skill: str, file: str) -> None:
    """Hold the settings to the open format: a name that is its folder's, and a description."""
    name, description = settings.get("name"), settings.get("description")
    if not isinstance(name, str):
        raise SkillError(skill, f"{file} has no name; write 'name: {skill}'.")
    if len(name) > 64 or not _NAME_PATTERN.match(name):
        raise SkillError(
            skill, f"{file}: the name {name!r:.80} is not 1 to 64 lowercase letters, digits and single hyphens between."
        )
    if name not in folder_names:
        raise SkillError(skill, f"{file}: the name {name!r} is not that of its folder; rename one of them.")
    if not isinstance(description, str) or not description.strip():
        raise SkillError(skill, f"{file} has no description; write what the skill does and when to use it.")
    if len(description) > 1024:
        raise SkillError(skill, f"{file}: the description is longer than 1024 characters.")


def _parse_settings(settings: str, skill: str, file: str) -> dict[str, Any]:
    from tellback.safe_yaml import load_yaml  # only those who load folders pay for it

    try:
        value = load_yaml(settings, depth=_MAX_DEPTH, values=_MAX_VALUES)
    except ValueError as error:
        raise SkillError(
            skill, f"the settings of {file} are not YAML that can be read ({error}). Quote text that holds ': '."
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SkillError(skill, f"the settings of {file} are not names with values, such as 'name: {skill}'.")
    return value


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
