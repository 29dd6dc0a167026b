"""The parts of a user's memory, by their names."""

from __future__ import annotations

from tellback.memory.memory import DEFAULT_SPACE_NAME
from tellback.tools.schema import InvalidInput
from tellback.types.memory import MemorySpace
from tellback.user import User

MAX_SPACES_LISTED = 20


async def find_space(user: User, name: str) -> MemorySpace | None:
    """The space of that name. Without the default one nothing is remembered yet; another name is a mistake."""
    found = await user.memory.list_spaces(name)
    if found:
        return found[0]
    if name == DEFAULT_SPACE_NAME:
        return None
    names = dict.fromkeys(space.name for space in await user.memory.list_spaces())
    known_names = ", ".join(repr(each) for each in list(names)[:MAX_SPACES_LISTED]) or "none yet"
    raise InvalidInput(f"There is no space {name!r}. There are: {known_names}.")


async def find_or_create_space(user: User, name: str) -> MemorySpace:
    """The space of that name, which is made if it is missing."""
    found = await user.memory.list_spaces(name)
    return found[0] if found else await user.memory.create_space(name, once=True)
