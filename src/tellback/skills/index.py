"""What a model is told about skills before it reads one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tellback.skills.skill import Skill, skills_for

HEADER = "Available skills you can read with read_skill(name):"


def build_index(skills: Iterable[Skill | Callable[..., Any]]) -> str:
    """A piece of a system prompt that lists the skills; empty when there are none.

    >>> print(build_index([Skill("customer-tone", "Apply our voice", when=["reply", "marketing"])]))
    Available skills you can read with read_skill(name):
    - customer-tone: Apply our voice (when: reply, marketing)
    """
    lines = [index_line(skill) for skill in skills_for(skills)]
    return "\n".join([HEADER, *lines]) if lines else ""


def index_line(skill: Skill) -> str:
    """One skill on one line, whatever its description holds.

    >>> index_line(Skill("receipts", "Read a receipt", when=["expense"], modalities=["image", "pdf"]))
    '- receipts: Read a receipt (when: expense) [modalities: image, pdf]'
    """
    line = f"- {skill.name}"
    description = _one_line(skill.description)
    if description:
        line += f": {description}"
    if skill.when:
        line += f" (when: {', '.join(map(_one_line, skill.when))})"
    if skill.modalities and tuple(skill.modalities) != ("text",):
        line += f" [modalities: {', '.join(map(_one_line, skill.modalities))}]"
    return line


def list_skills_of(skills: Iterable[Skill | Callable[..., Any]]) -> list[dict[str, Any]]:
    """What `list_skills` answers: name, description and trigger phrases of each skill.

    >>> list_skills_of([Skill("tone", "Our voice", when=["reply"])])
    [{'name': 'tone', 'description': 'Our voice', 'when': ['reply']}]
    """
    return [
        {"name": skill.name, "description": skill.description, "when": list(skill.when)} for skill in skills_for(skills)
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())
