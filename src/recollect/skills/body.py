"""A skill's body: as it was written, or made for the moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.errors import SkillError
from recollect.skills.calling import call, filled
from recollect.skills.skill import Skill

MAX_BODY = 100_000
"""How many characters of a skill reach the model; more would crowd out the conversation."""
_NOTE = 100
"""Room for the note, so that a text that was cut once is not cut again."""


async def load_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """The body for this context: what `body_fn` makes of it, or `body`, or nothing. Cut after `MAX_BODY` characters.

    >>> import asyncio
    >>> def greet(name: str) -> str: return f"Say hello to {name}."
    >>> asyncio.run(load_body(Skill("greet", "Greet people", body_fn=greet), {"name": "Maya"}))
    'Say hello to Maya.'
    """
    return cut(await whole_body(skill, ctx), MAX_BODY)


async def whole_body(skill: Skill, ctx: Mapping[str, Any]) -> str:
    """The body, however long it is."""
    if skill.body_fn is None:
        return skill.body or ""
    args, kwargs = filled(skill.body_fn, ctx, skill.name)
    text = await call(skill.body_fn, *args, **kwargs)
    if not isinstance(text, str):
        raise SkillError(skill.name, f"its body function returned {type(text).__name__}; it must return text.")
    return text


def cut(text: str, limit: int) -> str:
    """The text, where it is longer than `limit` characters cut to fewer, with a note that says so."""
    if len(text) <= limit:
        return text
    kept = limit - _NOTE
    return f"{text[:kept]}\n\n[Cut here: these are the first {kept} of {len(text)} characters.]"
