"""Load skills: from folders in the open Agent Skills format (a SKILL.md, with other files beside it), and their bodies,
filled from the context, after the bodies of the skills they require."""

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
        raise SkillError(skill, f"{file} is not text in UTF-8: {error.reason} at byte {error.start}.") from error


MAX_BODY = 100_000
"""How many characters of a skill reach the model; more would crowd out the conversation."""
_NOTE_CHARS = 100
"""Room for the note, so that a text that was cut once is not cut again."""

MAX_REQUIRED_SKILLS = 50
"""How many skills one may bring with it, so that a resolver that makes them up cannot go on for ever."""


def bind_context(fn: Callable[..., Any], ctx: Mapping[str, Any], skill_name: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for a body function, taken from the context by name.

    A parameter called `ctx` gets all of it, and `**kwargs` all that no other parameter took. What a partial has bound
    stays as it is.
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
        raise SkillError(skill_name, f"its body needs {names} in the context. Call apply_skill with them in ctx.")
    return args, kwargs


async def load_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """The body for this context: what `body_fn` makes of it, or `body`, or nothing; then the list of its files.

    It is cut after `MAX_BODY` characters; the list stays. Control characters are left out.

    >>> import asyncio
    >>> def greet(name: str) -> str: return f"Say hello to {name}."
    >>> asyncio.run(load_body(Skill("greet", "Greet people", body_fn=greet), {"name": "Maya"}))
    'Say hello to Maya.'
    """
    return append_file_list(skill, await load_full_body(skill, ctx), MAX_BODY)


async def load_full_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """The body, however long it is."""
    if skill.body_fn is None:
        return strip_control_characters(skill.body or "")
    args, kwargs = bind_context(skill.body_fn, ctx, skill.name)
    text = await call_function(skill.body_fn, *args, **kwargs)
    if not isinstance(text, str):
        raise SkillError(skill.name, f"its body function returned {type(text).__name__}; it must return text.")
    return strip_control_characters(text)


def append_file_list(skill: Skill, body: str, limit: int) -> str:
    """The body with the list of the skill's files, both cut to fit: the list takes half of the room at most."""
    if skill.files is None or not skill.files.names:
        return truncate(body, limit)
    file_list = _format_file_list(skill.name, skill.files.names, skill.files.has_more, limit // 2)
    return truncate(body, limit - len(file_list)) + file_list


def _format_file_list(name: str, files: Sequence[str], has_more: bool, limit: int) -> str:
    text = f'\n\nFiles of this skill, which read_skill_file(skill="{name}", path=...) reads:'
    for file in files:
        if len(text) + len(file) > limit:
            has_more = True
            break
        text += f"\n- {file}"
    return f"{text}\n(and more that are not listed)" if has_more else text


def truncate(text: str, limit: int) -> str:
    """The text, where it is longer than `limit` characters cut to fewer, with a note that says so."""
    if len(text) <= limit:
        return text
    length = max(limit - _NOTE_CHARS, 0)
    return f"{text[:length]}\n\n[Cut here: these are the first {length} of {len(text)} characters.]"


async def resolve_requirements(resolver: SkillResolver, name: str) -> list[Skill]:
    """The skill of that name, last, after all that it requires, each once.

    Raises `NotFoundError` when there is no such skill, and `SkillError` with the chain of names when a requirement
    is unknown, or leads back to a skill that asked for it.
    """
    ordered: dict[str, Skill] = {}

    async def visit(required_name: str, chain: tuple[str, ...]) -> None:
        path = " → ".join((*chain, required_name))
        if required_name in chain:
            raise SkillError(chain[0], f"its requirements go in a circle: {path}.")
        if required_name in ordered:
            return
        if len(ordered) + len(chain) >= MAX_REQUIRED_SKILLS:
            raise SkillError(chain[0], f"it requires more than {MAX_REQUIRED_SKILLS} skills.")
        skill = await resolver.read(required_name)
        if skill is None and chain:
            raise SkillError(chain[0], f"it requires {required_name!r}, which does not exist: {path}.")
        if skill is None:
            way = "search_skills finds them" if resolver.search_fn is not None else "list_skills gives their names"
            raise NotFoundError("skill", required_name, hint=f"Use a name as it is written; {way}.")
        for required in skill.requires:
            await visit(required, (*chain, required_name))
        ordered.setdefault(skill.name, skill)  # a resolver may know it by several names

    await visit(name, ())
    return list(ordered.values())


async def render_skills(skills: Sequence[Skill], ctx: Mapping[str, Any]) -> str:
    """The bodies of skills, each under its name when there are several; about `MAX_BODY` characters at most."""
    bodies = [await load_full_body(skill, ctx) for skill in skills]
    texts = [append_file_list(skill, body, MAX_BODY) for skill, body in zip(skills, bodies, strict=True)]
    if len(texts) == 1:
        return texts[0]
    if sum(map(len, texts)) > MAX_BODY:
        share = MAX_BODY // len(texts)
        texts = [append_file_list(skill, body, share) for skill, body in zip(skills, bodies, strict=True)]
    return "\n\n".join(f"# Skill: {skill.name}\n\n{text}" for skill, text in zip(skills, texts, strict=True))
