"""Load skills from folders in the open Agent Skills format (a SKILL.md and other files), and render skill bodies from
the context, preceded by the bodies of required skills."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tellback.errors import NotFoundError, SkillError
from tellback.skills.resolver import SkillResolver
from tellback.skills.skill import Skill, SkillFolder, skills_for, strip_control_characters
from tellback.tools.dispatch import call_function

MAX_SETTINGS_CHARS = 16_000
_MAX_DEPTH = 20
_MAX_VALUES = 2_000
_DELIMITER = re.compile(r"^---[ \t]*$", re.MULTILINE)
_NAME_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")

SKILL_FILE = "SKILL.md"
MAX_SKILL_FILE_BYTES = 1_000_000
_KNOWN_SETTINGS = ("name", "description", "when", "modalities", "requires")


def parse_skill_file(text: str, skill: str, file: str) -> tuple[dict[str, Any], str]:
    """Parse a SKILL.md into its settings and body."""
    text = text.replace("\r\n", "\n")
    first = _DELIMITER.match(text)
    last = _DELIMITER.search(text, first.end()) if first else None
    if first is None or last is None:
        raise SkillError(skill, f"{file} does not start with settings between two '---' lines.")
    settings = text[first.end() : last.start()]
    if len(settings) > MAX_SETTINGS_CHARS:
        raise SkillError(skill, f"the settings of {file} are longer than {MAX_SETTINGS_CHARS} characters.")
    return _parse_settings(settings, skill, file), text[last.end() :].strip()


def validate_settings(settings: Mapping[str, Any], folder_names: set[str], skill: str, file: str) -> None:
    """Validate the settings required by the open format: a name equal to the folder's name, and a description."""
    name, description = settings.get("name"), settings.get("description")
    if not isinstance(name, str):
        raise SkillError(skill, f"{file} has no name; write 'name: {skill}'.")
    if len(name) > 64 or not _NAME_PATTERN.match(name):
        raise SkillError(
            skill, f"{file}: the name {name!r:.80} must be 1 to 64 lowercase letters, digits and single hyphens."
        )
    if name not in folder_names:
        raise SkillError(skill, f"{file}: the name {name!r} differs from the folder's name; rename one of them.")
    if not isinstance(description, str) or not description.strip():
        raise SkillError(skill, f"{file} has no description; write what the skill does and when to use it.")
    if len(description) > 1024:
        raise SkillError(skill, f"{file}: the description is longer than 1024 characters.")


def _parse_settings(settings: str, skill: str, file: str) -> dict[str, Any]:
    from tellback.safe_yaml import load_yaml  # imported only if folders are loaded

    try:
        value = load_yaml(settings, depth=_MAX_DEPTH, values=_MAX_VALUES)
    except ValueError as error:
        raise SkillError(
            skill, f"the settings of {file} are not valid YAML ({error}). Quote text that contains ': '."
        ) from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise SkillError(skill, f"the settings of {file} must be names with values, such as 'name: {skill}'.")
    return value


def load_skills(path: str | os.PathLike[str]) -> list[Skill]:
    """Load the skill of a folder with a SKILL.md, or the skills of all such direct subfolders, sorted by name.

    No file in a folder is executed. The other files are listed with the skill. After reading or applying the skill,
    the model can read them with the tool `read_skill_file`. Unknown settings are stored in `Skill.meta`. Hidden
    folders are skipped, and links that lead out of the folder are rejected.

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
        raise SkillError(root.name, f"neither {root} nor a subfolder contains a {SKILL_FILE}.")
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
            raise SkillError(child.name, f"{child} is a link that leads out of {root}; load that folder separately.")
    return found


def _has_skill_file(folder: Path) -> bool:
    return folder.is_dir() and os.path.lexists(folder / SKILL_FILE)


def _load_skill(folder: Path) -> Skill:
    absolute = Path(os.path.abspath(folder))
    file = str(folder / SKILL_FILE)
    try:
        files = SkillFolder.at(folder)
    except OSError as error:
        raise SkillError(absolute.name, f"the folder {folder} cannot be read: {error.strerror}.") from error
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


def _read_skill_file(files: SkillFolder, skill: str, file: str) -> str:
    data, size = files.read(SKILL_FILE, MAX_SKILL_FILE_BYTES, skill)
    if size > MAX_SKILL_FILE_BYTES:
        raise SkillError(skill, f"{file} is larger than {MAX_SKILL_FILE_BYTES} bytes; move parts of it to other files.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(skill, f"{file} is not UTF-8 text: {error.reason} at byte {error.start}.") from error


MAX_BODY = 100_000
"""Maximum number of characters of a skill that the model receives."""
_NOTE_CHARS = 100
"""Space for the truncation note, so that a truncated text is not truncated again."""

MAX_REQUIRED_SKILLS = 50
"""Maximum number of required skills: a resolver could generate endless requirements."""


def bind_context(fn: Callable[..., Any], ctx: Mapping[str, Any], skill_name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and keyword arguments of a body function, from the context by name.

    A parameter called `ctx` receives the whole context, and `**kwargs` the keys that no other parameter has. Arguments
    bound by a partial are not changed.
    """
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise SkillError(skill_name, f"the signature of {fn!r:.80} cannot be read: {error}.") from error
    bound_keywords = fn.keywords if isinstance(fn, functools.partial) else {}
    available = {key: value for key, value in ctx.items() if key not in bound_keywords}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    missing: list[str] = []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update({key: value for key, value in available.items() if key not in parameters})
        elif name != "ctx" and name not in available and parameter.default is parameter.empty:
            missing.append(name)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(dict(ctx) if name == "ctx" else available.get(name, parameter.default))
        elif name == "ctx" and name not in bound_keywords:
            kwargs[name] = dict(ctx)
        elif name in available:
            kwargs[name] = available[name]
    if missing:
        names = ", ".join(missing)
        raise SkillError(skill_name, f"its body requires {names} in the context. Call apply_skill with them in ctx.")
    return args, kwargs


async def load_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """Return the body for this context, from `body_fn` or `body`, followed by the list of the skill's files.

    The body is truncated so that both fit into `MAX_BODY` characters. Control characters are removed.

    >>> import asyncio
    >>> def greet(name: str) -> str: return f"Say hello to {name}."
    >>> asyncio.run(load_body(Skill("greet", "Greet people", body_fn=greet), {"name": "Maya"}))
    'Say hello to Maya.'
    """
    return append_file_list(skill, await load_full_body(skill, ctx), MAX_BODY)


async def load_full_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """Return the body without truncation."""
    if skill.body_fn is None:
        return strip_control_characters(skill.body or "")
    args, kwargs = bind_context(skill.body_fn, ctx, skill.name)
    text = await call_function(skill.body_fn, *args, **kwargs)
    if not isinstance(text, str):
        raise SkillError(skill.name, f"its body function must return text, got {type(text).__name__}.")
    return strip_control_characters(text)


def append_file_list(skill: Skill, body: str, limit: int) -> str:
    """Append the list of the skill's files to the body, both truncated to fit; the list gets at most half."""
    if skill.files is None or not skill.files.names:
        return truncate(body, limit)
    file_list = _format_file_list(skill.name, skill.files.names, skill.files.has_more, limit // 2)
    return truncate(body, limit - len(file_list)) + file_list


def _format_file_list(name: str, files: Sequence[str], has_more: bool, limit: int) -> str:
    text = f'\n\nFiles of this skill. Read them with read_skill_file(skill="{name}", path=...):'
    for file in files:
        if len(text) + len(file) > limit:
            has_more = True
            break
        text += f"\n- {file}"
    return f"{text}\n(and more that are not listed)" if has_more else text


def truncate(text: str, limit: int) -> str:
    """Truncate a text that is longer than `limit` characters, with a note."""
    if len(text) <= limit:
        return text
    length = max(limit - _NOTE_CHARS, 0)
    return f"{text[:length]}\n\n[Truncated: these are the first {length} of {len(text)} characters.]"


async def resolve_requirements(resolver: SkillResolver, name: str) -> list[Skill]:
    """Return the skill with this name, preceded by all skills that it requires, each once.

    Raises `NotFoundError` if there is no such skill, and `SkillError` with the chain of names if a requirement is
    unknown or circular.
    """
    ordered: dict[str, Skill] = {}

    async def visit(required_name: str, chain: tuple[str, ...]) -> None:
        path = " → ".join((*chain, required_name))
        if required_name in chain:
            raise SkillError(chain[0], f"its requirements are circular: {path}.")
        if required_name in ordered:
            return
        if len(ordered) + len(chain) >= MAX_REQUIRED_SKILLS:
            raise SkillError(chain[0], f"it requires more than {MAX_REQUIRED_SKILLS} skills.")
        skill = await resolver.read(required_name)
        if skill is None and chain:
            raise SkillError(chain[0], f"it requires {required_name!r}, which does not exist: {path}.")
        if skill is None:
            tool = "search_skills" if resolver.search_fn is not None else "list_skills"
            raise NotFoundError("skill", required_name, hint=f"Use the exact name; call {tool} to find it.")
        for required in skill.requires:
            await visit(required, (*chain, required_name))
        ordered.setdefault(skill.name, skill)  # a resolver may return it for several names

    await visit(name, ())
    return list(ordered.values())


async def render_skills(skills: Sequence[Skill], ctx: Mapping[str, Any]) -> str:
    """Render the bodies of skills, with their names as headings if there are several; about `MAX_BODY` in total."""
    bodies = [await load_full_body(skill, ctx) for skill in skills]
    texts = [append_file_list(skill, body, MAX_BODY) for skill, body in zip(skills, bodies, strict=True)]
    if len(texts) == 1:
        return texts[0]
    if sum(map(len, texts)) > MAX_BODY:
        share = MAX_BODY // len(texts)
        texts = [append_file_list(skill, body, share) for skill, body in zip(skills, bodies, strict=True)]
    return "\n\n".join(f"# Skill: {skill.name}\n\n{text}" for skill, text in zip(skills, texts, strict=True))
