"""Reading SKILL.md: settings in YAML between two lines of dashes, then the instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tellback.errors import SkillError

MAX_SETTINGS_CHARS = 16_000
_MAX_DEPTH = 20
_MAX_VALUES = 2_000
_DELIMITER = re.compile(r"^---[ \t]*$", re.MULTILINE)
_NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")


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
    from tellback.hardened_yaml import load_yaml  # only those who load folders pay for it

    try:
        value = load_yaml(settings, depth=_MAX_DEPTH, values=_MAX_VALUES)
    except ValueError as error:
        raise SkillError(
            skill, f"the settings of {file} are not YAML that can be read ({error}). Quote text that holds ': '."
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SkillError(skill, f"the settings of {file} are not names with values, such as 'name: {skill}'.")
    return value
