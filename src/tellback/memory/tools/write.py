"""The tools that write: remember and forget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from weakref import WeakValueDictionary

from tellback import validation
from tellback.errors import AtomSupersededError, NotFoundError
from tellback.memory.text_similarity import same_words, text_key
from tellback.memory.tools.base import (
    DATE_FORMAT,
    DEFAULT_TIMEOUT,
    BoundSpace,
    MemoryLike,
    MemoryTool,
    bind_space,
    input_errors_for_model,
    parse_moment,
    render_atom,
)
from tellback.tools.dispatch import run_in_thread
from tellback.tools.schema import InvalidInput
from tellback.types.memory import Atom, Category, CategoryKind

MAX_FORGOTTEN = 50
MAX_COMPARED = 1_000
MAX_SIMILAR = 200
"""A new memory is compared with the newest ones and, in a larger space, with those that are most like it."""
WRITABLE_KINDS = [kind.value for kind in CategoryKind if kind is not CategoryKind.PATTERN]
NOT_FOUND = "no such memory"

REMEMBER_DESCRIPTION = (
    "Remember something for later conversations: one thing, in a short sentence that can be understood by itself."
    " If it corrects or updates a memory you have seen, give that one's id in `replaces`."
)
FORGET_DESCRIPTION = "Forget memories that the user does not want kept, by their ids as recall gave them."

_REMEMBER_PROPERTIES = {
    "text": {
        "type": "string",
        "minLength": 1,
        "maxLength": 2_000,
        "description": "What to remember, such as 'Maya is vegetarian.'",
    },
    "category": {
        "type": "string",
        "enum": WRITABLE_KINDS,
        "description": "What sort of thing it is: FACT, if left out.",
    },
    "valid_from": {"type": "string", "description": f"Since when it is true: {DATE_FORMAT}. Now, if left out."},
    "replaces": {"type": "string", "description": "The id of the memory whose place it takes, if there is one."},
}
_FORGET_PROPERTIES = {
    "ids": {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": MAX_FORGOTTEN,
        "description": "The ids of the memories to forget.",
    }
}


class Remember(MemoryTool):
    """Lets a model keep something in a user's space, citing the user's message of the turn that runs.

    What is known already, word for word, is not kept twice. In a space of more than `MAX_COMPARED` memories, only
    the newest of them and those that are most like it are looked at.

    >>> from tellback import Tellback
    >>> Remember(Tellback(":memory:").user("maya"), "ms_1").parameters["properties"]["category"]["enum"]
    ['FACT', 'RULE', 'INTENTION', 'EPISODE', 'PREFERENCE']
    """

    __slots__ = ()

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "remember",
        description: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        requires_approval: bool = False,
    ) -> None:
        super().__init__(
            _WriteHandlers(bind_space(memory, space_id)).remember,
            _REMEMBER_PROPERTIES,
            "text",
            name=name,
            description=description,
            default_description=REMEMBER_DESCRIPTION,
            timeout=timeout,
            requires_approval=requires_approval,
        )


class Forget(MemoryTool):
    """Lets a model put memories of a user's space aside, so that no recall gives them (`restore_atom` does undo it).

    >>> from tellback import Tellback
    >>> Forget(Tellback(":memory:").user("maya"), "ms_1", requires_approval=True).requires_approval
    True
    """

    __slots__ = ()

    def __init__(
        self,
        memory: MemoryLike,
        space_id: str,
        *,
        name: str = "forget",
        description: str | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
        requires_approval: bool = False,
    ) -> None:
        super().__init__(
            _WriteHandlers(bind_space(memory, space_id)).forget,
            _FORGET_PROPERTIES,
            "ids",
            name=name,
            description=description,
            default_description=FORGET_DESCRIPTION,
            timeout=timeout,
            requires_approval=requires_approval,
        )


@dataclass(frozen=True, slots=True)
class _WriteHandlers:
    """What the tools do, in their place."""

    space: BoundSpace

    async def remember(
        self, text: str, category: str | None = None, valid_from: str | None = None, replaces: str | None = None
    ) -> dict[str, Any]:
        since = parse_moment("valid_from", valid_from)
        kind = None if category is None else CategoryKind(category)
        # The calls of one reply run at the same time: the second of two equal ones must see the first one's memory.
        async with _space_lock(self.space.space_id):
            with input_errors_for_model():
                validation.validate_memory_text(text)
                if replaces is not None:
                    return await self._replace(text, kind, since, replaces)
                known = await self._find_known(text, kind, since or self.space.now())
                if known is not None:
                    return {"status": "known already", "memory": render_atom(known)}
                added = await self.space.memory.add_atom(
                    self.space.space_id,
                    text,
                    _to_category(kind),
                    valid_from=since,
                    **await self.space.citation(),
                )
                return {"status": "remembered", "memory": render_atom(added)}

    async def forget(self, ids: list[str]) -> dict[str, Any]:
        results = [{"id": id, "status": await self._forget_one(id)} for id in dict.fromkeys(ids)]
        return {"forgotten": sum(each["status"] == "forgotten" for each in results), "results": results}

    async def _replace(
        self, text: str, kind: CategoryKind | None, since: datetime | None, replaces: str
    ) -> dict[str, Any]:
        old = await self.space.find_atom(replaces)
        if old is None:
            raise InvalidInput(f"replaces: there is {NOT_FOUND} as {replaces[:80]!r}; look it up first")
        if same_words(old.text, text):
            return {"status": "known already", "memory": render_atom(old)}
        is_pattern = old.category.kind is CategoryKind.PATTERN
        try:
            new = await self.space.memory.supersede_atom(
                replaces,
                text,
                None if kind is None and not is_pattern else _to_category(kind),
                valid_from=since,
                **await self.space.citation(),
            )
        except AtomSupersededError as error:
            raise InvalidInput(f"replaces: {replaces} was replaced by {error.superseded_by} before") from error
        return {"status": "remembered", "memory": render_atom(new), "replaced": replaces}

    async def _find_known(self, text: str, kind: CategoryKind | None, since: datetime) -> Atom | None:
        """What says the same word for word; what happened on another day is something else."""
        memory, space_id = self.space.memory, self.space.space_id
        newest = await memory.list_atoms(space_id, limit=MAX_COMPARED)
        found = await run_in_thread(_find_same, newest, text, kind, since)  # a second, where all of them are long
        if found is not None or len(newest) < MAX_COMPARED:
            return found
        return _find_same((await memory.recall_by_topic(space_id, text, MAX_SIMILAR)).atoms, text, kind, since)

    async def _forget_one(self, id: str) -> str:
        if await self.space.find_atom(id) is None:
            return NOT_FOUND
        try:
            await self.space.memory.archive_atom(id)
        except NotFoundError:  # it was deleted meanwhile
            return NOT_FOUND
        return "forgotten"


def _find_same(atoms: Sequence[Atom], text: str, kind: CategoryKind | None, since: datetime) -> Atom | None:
    wanted_key, length = text_key(text), len(text)
    for atom in atoms:
        if not length <= 2 * len(atom.text) + 50 <= 4 * length + 150:  # too short or too long to be the same
            continue
        is_episode = CategoryKind.EPISODE in (kind, atom.category.kind)
        if text_key(atom.text) == wanted_key and (not is_episode or atom.valid_from.date() == since.date()):
            return atom
    return None


def _to_category(kind: CategoryKind | None) -> Category:
    kind = CategoryKind.FACT if kind is None else kind
    return Category(kind.value.lower(), kind)


_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()


def _space_lock(space_id: str) -> asyncio.Lock:
    return _locks.setdefault((id(asyncio.get_running_loop()), space_id), asyncio.Lock())
