"""Opening a skill: its body, after the bodies of the skills it requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.errors import NotFoundError, SkillError
from tellback.skills.body import MAX_BODY, whole_body, with_files
from tellback.skills.resolver import SkillResolver
from tellback.skills.skill import Skill

MOST_SKILLS = 50
"""How many skills one may bring with it, so that a resolver that makes them up cannot go on for ever."""


async def with_required(resolver: SkillResolver, name: str) -> list[Skill]:
    """The skill of that name, last, after all that it requires, each once.

    Raises `NotFoundError` when there is no such skill, and `SkillError` with the chain of names when a requirement
    is unknown, or leads back to a skill that asked for it.
    """
    ordered: dict[str, Skill] = {}

    async def visit(wanted: str, chain: tuple[str, ...]) -> None:
        path = " → ".join((*chain, wanted))
        if wanted in chain:
            raise SkillError(chain[0], f"its requirements go in a circle: {path}.")
        if wanted in ordered:
            return
        if len(ordered) + len(chain) >= MOST_SKILLS:
            raise SkillError(chain[0], f"it requires more than {MOST_SKILLS} skills.")
        skill = await resolver.read(wanted)
        if skill is None and chain:
            raise SkillError(chain[0], f"it requires {wanted!r}, which does not exist: {path}.")
        if skill is None:
            raise NotFoundError("skill", wanted, hint=_hint(resolver))
        for required in skill.requires:
            await visit(required, (*chain, wanted))
        ordered.setdefault(skill.name, skill)  # a resolver may know it by several names

    await visit(name, ())
    return list(ordered.values())


async def text_of(skills: Sequence[Skill], ctx: Mapping[str, Any]) -> str:
    """The bodies of skills, each under its name when there are several; about `MAX_BODY` characters at most."""
    bodies = [await whole_body(skill, ctx) for skill in skills]
    texts = [with_files(skill, body, MAX_BODY) for skill, body in zip(skills, bodies, strict=True)]
    if len(texts) == 1:
        return texts[0]
    if sum(map(len, texts)) > MAX_BODY:
        fair = MAX_BODY // len(texts)
        texts = [with_files(skill, body, fair) for skill, body in zip(skills, bodies, strict=True)]
    return "\n\n".join(f"# Skill: {skill.name}\n\n{text}" for skill, text in zip(skills, texts, strict=True))


def _hint(resolver: SkillResolver) -> str:
    way = "search_skills finds them" if resolver.search_fn is not None else "list_skills gives their names"
    return f"Use a name as it is written; {way}."
