"""Finding skills, by name or by words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tellback.skills.skill import Skill, skills_for

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
