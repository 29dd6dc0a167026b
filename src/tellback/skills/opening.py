"""Opening a skill: its body, after the bodies of the skills it requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.errors import NotFoundError, SkillError
from tellback.skills.body import MAX_BODY, append_file_list, load_full_body
from tellback.skills.resolver import SkillResolver
from tellback.skills.skill import Skill

MAX_REQUIRED_SKILLS = 50
"""How many skills one may bring with it, so that a resolver that makes them up cannot go on for ever."""


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
