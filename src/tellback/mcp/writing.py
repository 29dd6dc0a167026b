"""The tools that change what is remembered."""

from __future__ import annotations

import asyncio
from datetime import datetime
from weakref import WeakValueDictionary

from tellback.errors import NotFoundError
from tellback.mcp.answers import ForgetOutput, MemoryItem, RememberOutput
from tellback.mcp.arguments import CategoryKindName, ForgetInput, RememberInput
from tellback.mcp.spaces import find_or_create_space
from tellback.memory.extraction.likeness import same_words
from tellback.memory.tools.inputs import parse_moment
from tellback.tools.schema import InvalidInput
from tellback.types.memory import Atom, AtomStatus, Category, CategoryKind, MemorySpace
from tellback.user import User

MAX_SIMILAR = 20


async def run_remember(user: User, arguments: RememberInput) -> RememberOutput:
    """Keep something, unless it is known already, word for word."""
    since = parse_moment("valid_from", arguments.valid_from)
    if arguments.replaces is not None:
        return await _supersede_memory(user, arguments, arguments.replaces, since)
    if not arguments.text.strip():
        raise InvalidInput("text: it is empty")
    space = await find_or_create_space(user, arguments.space)
    # A model's calls run at the same time: the second of two equal ones must see the first one's memory.
    async with _space_lock(space.id):
        duplicate = await _find_duplicate(user, space, arguments, since)
        if duplicate is not None:
            return RememberOutput(status="known already", memory=MemoryItem.from_atom(duplicate), space=space.name)
        atom = await user.memory.add_atom(
            space.id, arguments.text, _default_category(arguments.category), arguments.importance, valid_from=since
        )
    return RememberOutput(status="remembered", memory=MemoryItem.from_atom(atom), space=space.name)


async def run_forget(user: User, arguments: ForgetInput) -> ForgetOutput:
    """Put a memory aside, so that nothing recalls it."""
    atom = await user.memory.get_atom(arguments.atom_id)
    if atom is None or atom.status is AtomStatus.DELETED:
        raise NotFoundError("atom", arguments.atom_id, "Recall it first, and pass its id.")
    if atom.status is AtomStatus.ARCHIVED:
        return ForgetOutput(status="forgotten already", id=atom.id)
    return ForgetOutput(status="forgotten", id=(await user.memory.archive_atom(atom.id)).id)


async def _supersede_memory(
    user: User, arguments: RememberInput, old_id: str, since: datetime | None
) -> RememberOutput:
    old = await user.memory.get_atom(old_id)
    if old is None or old.status is not AtomStatus.ACTIVE:
        raise NotFoundError("atom", old_id, "Recall it first, and pass its id.")
    space = await user.memory.get_space(old.space_id)
    name = arguments.space if space is None else space.name
    if same_words(old.text, arguments.text):
        return RememberOutput(status="known already", memory=MemoryItem.from_atom(old), space=name)
    is_pattern = old.category.kind is CategoryKind.PATTERN  # which only the platform writes
    category = _default_category(arguments.category) if arguments.category is not None or is_pattern else None
    atom = await user.memory.supersede_atom(old_id, arguments.text, category, arguments.importance, valid_from=since)
    return RememberOutput(status="remembered", memory=MemoryItem.from_atom(atom), space=name, replaced=old_id)


async def _find_duplicate(
    user: User, space: MemorySpace, arguments: RememberInput, since: datetime | None
) -> Atom | None:
    """What says the same; an episode of another day is something else."""
    day = (since or user.conversations.runtime.clock()).date()
    for atom in (await user.memory.recall_by_topic(space.id, arguments.text, MAX_SIMILAR)).atoms:
        is_episode = CategoryKind.EPISODE in (arguments.category, atom.category.kind)
        if same_words(atom.text, arguments.text) and (not is_episode or atom.valid_from.date() == day):
            return atom
    return None


def _default_category(kind: CategoryKindName | None) -> Category:
    found = CategoryKind.FACT if kind is None else CategoryKind(kind)
    return Category(found.value.lower(), found)


_space_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


def _space_lock(space_id: str) -> asyncio.Lock:
    return _space_locks.setdefault((id(asyncio.get_running_loop()), space_id), asyncio.Lock())
