"""Load a skill's body, filled from the context, after the bodies of the skills it requires."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tellback.errors import NotFoundError, SkillError
from tellback.skills.resolver import SkillResolver
from tellback.skills.skill import Skill, strip_control_characters
from tellback.tools.dispatch import call_function

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
    parameters = _read_parameters(fn, skill_name)
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


def _read_parameters(fn: Callable[..., Any], skill_name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise SkillError(skill_name, f"the signature of {fn!r:.80} cannot be read: {error}.") from error


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
            raise NotFoundError("skill", required_name, hint=_lookup_hint(resolver))
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


def _lookup_hint(resolver: SkillResolver) -> str:
    way = "search_skills finds them" if resolver.search_fn is not None else "list_skills gives their names"
    return f"Use a name as it is written; {way}."
