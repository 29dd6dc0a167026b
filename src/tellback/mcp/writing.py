"""The tools that change what is remembered."""

from __future__ import annotations

import asyncio
from datetime import datetime
from weakref import WeakValueDictionary

from tellback.errors import NotFoundError
from tellback.mcp.answers import Forgotten, Memory, Remembered
from tellback.mcp.arguments import ForgetAsked, Kind, RememberAsked
from tellback.mcp.spaces import made
from tellback.memory.extraction.likeness import same_words
from tellback.memory.tools.inputs import moment
from tellback.tools.schema import InvalidInput
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, MemorySpace
from tellback.user import User

MOST_LIKE = 20


async def remember(user: User, asked: RememberAsked) -> Remembered:
    """Keep something, unless it is known already, word for word."""
    since = moment("valid_from", asked.valid_from)
    if asked.replaces is not None:
        return await _replace(user, asked, asked.replaces, since)
    if not asked.text.strip():
        raise InvalidInput("text: it is empty")
    space = await made(user, asked.space)
    # A model's calls run at the same time: the second of two equal ones must see the first one's memory.
    async with _lock(space.id):
        known = await _known(user, space, asked, since)
        if known is not None:
            return Remembered(status="known already", memory=Memory.of(known), space=space.name)
        atom = await user.memory.add_atom(
            space.id, asked.text, _category(asked.category), asked.importance, valid_from=since
        )
    return Remembered(status="remembered", memory=Memory.of(atom), space=space.name)


async def forget(user: User, asked: ForgetAsked) -> Forgotten:
    """Put a memory aside, so that nothing recalls it."""
    atom = await user.memory.get_atom(asked.atom_id)
    if atom is None or atom.status is AtomStatus.DELETED:
        raise NotFoundError("atom", asked.atom_id, "Recall it first, and pass its id.")
    if atom.status is AtomStatus.ARCHIVED:
        return Forgotten(status="forgotten already", id=atom.id)
    return Forgotten(status="forgotten", id=(await user.memory.archive_atom(atom.id)).id)


async def _replace(user: User, asked: RememberAsked, old_id: str, since: datetime | None) -> Remembered:
    old = await user.memory.get_atom(old_id)
    if old is None or old.status is not AtomStatus.ACTIVE:
        raise NotFoundError("atom", old_id, "Recall it first, and pass its id.")
    space = await user.memory.get_space(old.space_id)
    name = asked.space if space is None else space.name
    if same_words(old.text, asked.text):
        return Remembered(status="known already", memory=Memory.of(old), space=name)
    is_pattern = old.category.kind is CategoryKind.PATTERN  # which only the platform writes
    category = _category(asked.category) if asked.category is not None or is_pattern else None
    atom = await user.memory.supersede_atom(old_id, asked.text, category, asked.importance, valid_from=since)
    return Remembered(status="remembered", memory=Memory.of(atom), space=name, replaced=old_id)


async def _known(user: User, space: MemorySpace, asked: RememberAsked, since: datetime | None) -> Atom | None:
    """What says the same; an episode of another day is something else."""
    on = (since or user.conversations.runtime.clock()).date()
    for atom in (await user.memory.recall_by_topic(space.id, asked.text, MOST_LIKE)).atoms:
        is_episode = CategoryKind.EPISODE in (asked.category, atom.category.kind)
        if same_words(atom.text, asked.text) and (not is_episode or atom.valid_from.date() == on):
            return atom
    return None


def _category(kind: Kind | None) -> Category:
    found = CategoryKind.FACT if kind is None else CategoryKind(kind)
    return Category(found.value.lower(), found)


_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


def _lock(space_id: str) -> asyncio.Lock:
    return _locks.setdefault((id(asyncio.get_running_loop()), space_id), asyncio.Lock())
