"""The parts of a user's memory, by their names."""

from __future__ import annotations

from tellback.memory.memory import DEFAULT_SPACE
from tellback.tools.schema import InvalidInput
from tellback.types.memory import MemorySpace
from tellback.user import User

NAMES = 20


async def existing(user: User, name: str) -> MemorySpace | None:
    """The space of that name. Without the default one nothing is remembered yet; another name is a mistake."""
    found = await user.memory.list_spaces(name)
    if found:
        return found[0]
    if name == DEFAULT_SPACE:
        return None
    names = dict.fromkeys(space.name for space in await user.memory.list_spaces())
    there_are = ", ".join(repr(each) for each in list(names)[:NAMES]) or "none yet"
    raise InvalidInput(f"There is no space {name!r}. There are: {there_are}.")


async def made(user: User, name: str) -> MemorySpace:
    """The space of that name, which is made if it is missing."""
    found = await user.memory.list_spaces(name)
    return found[0] if found else await user.memory.create_space(name, once=True)
