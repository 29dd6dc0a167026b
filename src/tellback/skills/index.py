"""The index of skills that a model is shown, and search by words."""

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


_MAX_QUERY_WORDS = 50
"""A query is a few words; one of a million would only cost time."""


def find_skill(skills: Iterable[Skill | Callable[..., Any]], name: str) -> Skill | None:
    """The skill of that name, or None.

    >>> find_skill([Skill("tone", "Our voice")], "manners") is None
    True
    """
    return next((skill for skill in skills_for(skills) if skill.name == name), None)


def search_skills_of(
    skills: Iterable[Skill | Callable[..., Any]], query: str, limit: int = 10, min_score: float = 1
) -> list[Skill]:
    """The skills that match the query's words best, the earlier one first where two match alike.

    A word counts 3 where it is part of the name, 2 for a trigger phrase and 1 for the description, upper or lower case.

    >>> pool = [Skill("tone", "Our voice"), Skill("refunds", "Angry customers", when=["money back"])]
    >>> [skill.name for skill in search_skills_of(pool, "They want their MONEY")]
    ['refunds']
    """
    words = _split_query(query)
    scored = [(_score_skill(skill, words), skill) for skill in skills_for(skills)]
    matches = [pair for pair in scored if pair[0] >= min_score]
    matches.sort(key=lambda pair: -pair[0])
    return [skill for _, skill in matches[: max(limit, 0)]]


def _split_query(query: str) -> list[str]:
    words = list(dict.fromkeys(query.casefold().split()))[:_MAX_QUERY_WORDS]
    # A single letter is part of nearly everything.
    return [word for word in words if len(word) > 1] or words


def _score_skill(skill: Skill, words: list[str]) -> int:
    name, description = skill.name.casefold(), skill.description.casefold()
    when = "\n".join(skill.when).casefold()
    return sum(3 * (word in name) + 2 * (word in when) + (word in description) for word in words)
