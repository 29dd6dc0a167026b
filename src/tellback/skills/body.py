"""A skill's body: as it was written, or made for the moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tellback.errors import SkillError
from tellback.skills.calling import bind_context, call_function
from tellback.skills.skill import Skill
from tellback.skills.texts import strip_control_characters

MAX_BODY = 100_000
"""How many characters of a skill reach the model; more would crowd out the conversation."""
_NOTE_CHARS = 100
"""Room for the note, so that a text that was cut once is not cut again."""


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
