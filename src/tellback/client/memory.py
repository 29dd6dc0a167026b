"""`user.memory` of a server: spaces, atoms, entities, and what is recalled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.client.extracting import RemoteExtracting
from tellback.client.ids import made_id
from tellback.client.pages import cursor_at, listed
from tellback.client.transport import path_of
from tellback.client.values import given, metadata_json, moment_json
from tellback.conversations import checks
from tellback.errors import NotFoundError
from tellback.memory.asking import Moment
from tellback.memory.memory import ENTITY_LIMIT, CategoryLike
from tellback.types.memory import Atom, Category, Entity, MemorySpace, RecallResult
from tellback.wire.memory import AtomWire, EntityWire, SpaceWire
from tellback.wire.recall import RecallResultWire

HERE = "ai-memory"


class RemoteMemory(RemoteExtracting):
    """One user's memory, kept by a server. It has the methods of `user.memory`."""

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Make a space. With `once`, the first space of that name is given back if there is one."""
        body = given(name=name, metadata=metadata_json(metadata), once=once or None)
        return self._space(await self._post(path_of(HERE, "spaces"), body))

    async def get_space(self, id: str) -> MemorySpace | None:
        """The space of that id, or None."""
        found = await self._found(HERE, "spaces", id)
        return None if found is None else self._space(found)

    async def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """The spaces, the oldest first; with a name, those called that."""
        return await listed(
            self._transport, path_of(HERE, "spaces"), SpaceWire, None, user=self._user, query=given(name=name)
        )

    async def delete_space(self, id: str) -> None:
        """Hide a space with all that is in it."""
        await self._delete(path_of(HERE, "spaces", made_id("space", id)))

    async def add_atom(
        self,
        space_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: Moment = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: Moment = None,
    ) -> Atom:
        """Remember something: a fact of importance 3 that is certain, if you do not say otherwise."""
        body = given(
            text=text,
            category=_category(category),
            importance=importance,
            confidence=confidence,
            valid_from=moment_json("valid_from", valid_from),
            source_conversation_id=source_conversation_id,
            source_message_ids=source_message_ids,
            entity_ids=entity_ids,
            valid_to=moment_json("valid_to", valid_to),
        )
        return self._atom(await self._post(self._in(space_id, "atoms"), body))

    async def add_atoms(self, space_id: str, atoms: Sequence[Mapping[str, Any]]) -> list[Atom]:
        """Remember many things in one transaction, for imports: all are stored, or none."""
        body = {"atoms": [_atom_json(atom) for atom in atoms]}
        found = await self._post(self._in(space_id, "atoms", "batch"), body)
        return [self._atom(each) for each in found["items"]]

    async def get_atom(self, id: str) -> Atom | None:
        """The atom of that id, whatever its status, or None."""
        found = await self._found(HERE, "atoms", id)
        return None if found is None else self._atom(found)

    async def supersede_atom(
        self,
        old_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: Moment = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: Moment = None,
    ) -> Atom:
        """Put a new atom in an old one's place: the old one held until the new one's `valid_from`."""
        body = given(
            text=text,
            category=_category(category),
            importance=importance,
            confidence=confidence,
            valid_from=moment_json("valid_from", valid_from),
            source_conversation_id=source_conversation_id,
            source_message_ids=source_message_ids,
            entity_ids=entity_ids,
            valid_to=moment_json("valid_to", valid_to),
        )
        return self._atom(await self._post(path_of(HERE, "atoms", made_id("atom", old_id), "supersede"), body))

    async def archive_atom(self, id: str) -> Atom:
        """Put an atom aside: it is kept, and recalled only when asked for."""
        return self._atom(await self._post(path_of(HERE, "atoms", made_id("atom", id), "archive")))

    async def restore_atom(self, id: str) -> Atom:
        """Bring back what was archived."""
        return self._atom(await self._post(path_of(HERE, "atoms", made_id("atom", id), "restore")))

    async def delete_atom(self, id: str) -> Atom:
        """Forget an atom: it is never recalled again."""
        return self._atom(await self._delete(path_of(HERE, "atoms", made_id("atom", id))))

    async def list_atoms(
        self,
        space_id: str,
        category: str | CategoryLike | None = None,
        status: str | None = None,
        valid_at: Moment = None,
        limit: int | None = None,
        *,
        known_at: Moment = None,
        categories: Iterable[str] | None = None,
        include_superseded: bool = False,
        before: str | Atom | None = None,
    ) -> list[Atom]:
        """Atoms, the newest first: those that are not over or, with `valid_at`, those that held at that moment."""
        named = [] if category is None else [category if isinstance(category, str) else _category(category)["name"]]
        query = given(
            category=[*named, *(categories or ())] or None,
            status=status,
            valid_at=moment_json("valid_at", valid_at),
            known_at=moment_json("known_at", known_at),
            include_superseded="true" if include_superseded else None,
        )
        cursor = cursor_at(before.id if isinstance(before, Atom) else before)
        path = self._in(space_id, "atoms")
        if limit == 0:
            await self._known(space_id)
        return await listed(self._transport, path, AtomWire, limit, user=self._user, query=query, cursor=cursor)

    async def create_entity(
        self,
        space_id: str,
        type: str,
        canonical_name: str,
        description: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        aliases: Iterable[str] = (),
    ) -> Entity:
        """Make an entity that atoms can be about."""
        body = given(
            type=type,
            canonical_name=canonical_name,
            description=description,
            attributes=metadata_json(attributes),
            aliases=[*aliases] or None,
        )
        return self._entity(await self._post(self._in(space_id, "entities"), body))

    async def get_entity(self, id: str) -> Entity | None:
        """The entity of that id, also one that was merged, or None."""
        found = await self._found(HERE, "entities", id)
        return None if found is None else self._entity(found)

    async def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """The entity called that, by its own name or by an alias; case, accents and spacing do not matter."""
        query = given(type=type, name=checks.name("name", name, 1_000))
        path = self._in(space_id, "entities", "by-name")
        try:
            return self._entity(await self._transport.call("GET", path, user=self._user, query=query))
        except NotFoundError as error:
            if getattr(error, "kind", None) == "space":
                raise
            return None

    async def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Let one entity stand for another: atoms about the alias become atoms about it, and the names are kept."""
        path = path_of(HERE, "entities", made_id("entity", canonical_id), "merge")
        return self._entity(await self._post(path, {"aliasId": made_id("entity", alias_id)}))

    async def list_entities(
        self, space_id: str, type: str | None = None, limit: int | None = None, *, after: str | Entity | None = None
    ) -> list[Entity]:
        """Entities, the oldest first, without those that were merged. For the next page, pass the last as `after`."""
        if limit == 0:
            await self._known(space_id)
        path, cursor = self._in(space_id, "entities"), cursor_at(after.id if isinstance(after, Entity) else after)
        query = given(type=type)
        return await listed(self._transport, path, EntityWire, limit, user=self._user, query=query, cursor=cursor)

    async def search_entities(
        self, space_id: str, query: str | None = None, type: str | None = None, limit: int | None = None
    ) -> list[Entity]:
        """Entities whose names or description match, the best first; without a query, those most spoken of."""
        if limit == 0:
            await self._known(space_id)
        most, asked = ENTITY_LIMIT if limit is None else limit, {**given(type=type), "query": query or ""}
        return await listed(
            self._transport, self._in(space_id, "entities"), EntityWire, most, user=self._user, query=asked
        )

    async def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Remember a conversation word for word, without any model: each message becomes a cited EPISODE atom."""
        found = await self._post(self._in(space_id, "remember-conversation"), given(conversation_id=conversation_id))
        return [self._atom(each) for each in found["items"]]

    async def recall_by_topic(
        self,
        space_id: str,
        query: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        min_importance: int | None = None,
        valid_at: Moment = None,
        *,
        known_at: Moment = None,
        now: Moment = None,
        min_score: float = 0.0,
        neighbours: int = 0,
        include_archived: bool = False,
    ) -> RecallResult:
        """What is remembered about a topic, the best first."""
        body = given(
            query=query,
            limit=limit,
            category_names=category_names,
            min_importance=min_importance,
            valid_at=moment_json("valid_at", valid_at),
            known_at=moment_json("known_at", known_at),
            now=moment_json("now", now),
            min_score=min_score or None,
            neighbours=neighbours or None,
            include_archived=include_archived or None,
        )
        return await self._recalled(space_id, "recall-by-topic", body)

    async def recall_by_entity(
        self,
        space_id: str,
        entity_id_or_name: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        *,
        valid_at: Moment = None,
        known_at: Moment = None,
        now: Moment = None,
        include_archived: bool = False,
    ) -> RecallResult:
        """What is remembered about an entity, the newest first."""
        body = given(
            entity_id_or_name=entity_id_or_name,
            limit=limit,
            category_names=category_names,
            valid_at=moment_json("valid_at", valid_at),
            known_at=moment_json("known_at", known_at),
            now=moment_json("now", now),
            include_archived=include_archived or None,
        )
        return await self._recalled(space_id, "recall-by-entity", body)

    async def recall_timeline(
        self,
        space_id: str,
        entity_id_or_name: str | None = None,
        query: str | None = None,
        from_: Moment = None,
        to: Moment = None,
        limit: int | None = None,
        include_superseded: bool = True,
        *,
        category_names: Iterable[str] | None = None,
        known_at: Moment = None,
        now: Moment = None,
    ) -> RecallResult:
        """How things changed: what held at some moment from `from_` to `to`, the oldest first, even if it is over."""
        body = given(
            entity_id_or_name=entity_id_or_name,
            query=query,
            from_=moment_json("from_", from_),
            to=moment_json("to", to),
            limit=limit,
            include_superseded=None if include_superseded else False,
            category_names=category_names,
            known_at=moment_json("known_at", known_at),
            now=moment_json("now", now),
        )
        return await self._recalled(space_id, "recall-timeline", body)

    async def _recalled(self, space_id: str, way: str, body: Mapping[str, Any]) -> RecallResult:
        path = self._in(space_id, way)
        # Nothing is changed by it, so it may be asked again; it needs no key.
        found = await self._transport.call("POST", path, user=self._user, body=body, is_read=True)
        recalled: RecallResult = RecallResultWire.model_validate(found).value()
        return recalled

    async def _known(self, space_id: str) -> None:
        if await self.get_space(space_id) is None:
            raise NotFoundError("space", space_id)

    def _in(self, space_id: str, *more: str) -> str:
        return path_of(HERE, "spaces", made_id("space", space_id), *more)

    @staticmethod
    def _space(told: Any) -> MemorySpace:
        space: MemorySpace = SpaceWire.model_validate(told).value()
        return space

    @staticmethod
    def _atom(told: Any) -> Atom:
        atom: Atom = AtomWire.model_validate(told).value()
        return atom

    @staticmethod
    def _entity(told: Any) -> Entity:
        entity: Entity = EntityWire.model_validate(told).value()
        return entity


def _category(category: CategoryLike | None) -> Any:
    """A category on the wire: of its value, of a pair, or as it was written."""
    if isinstance(category, Category):
        return {"name": category.name, "kind": category.kind.value}
    if isinstance(category, tuple | list) and len(category) == 2:
        return {"name": category[0], "kind": category[1]}
    return category


def _atom_json(atom: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(atom)
    if "category" in body:
        body["category"] = _category(body["category"])
    for name in ("valid_from", "valid_to"):
        if name in body:
            body[name] = moment_json(name, body[name])
    return given(**{str(name): value for name, value in body.items()})
