"""`user.memory`: what is remembered of one user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tellback.conversations import checks as common
from tellback.conversations.runtime import Runtime
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory import checks, searching
from tellback.memory.asking import DatetimeLike
from tellback.memory.drafts import build_atom_draft
from tellback.memory.embedding import EmbeddingService
from tellback.memory.extracting import MemoryExtraction
from tellback.memory.extraction.service import ExtractionService
from tellback.memory.recalling import RecallService
from tellback.memory.verbatim import build_verbatim_drafts
from tellback.stores import AtomDraft, AtomFilter, EntityDraft, MemoryStore
from tellback.types.ids import new_id
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    Entity,
    EntityType,
    MemorySpace,
)
from tellback.types.scope import Scope

DEFAULT_SPACE_NAME = "default"
DEFAULT_ENTITY_LIMIT = 20
MESSAGE_BATCH_SIZE = 500
BEGINNING_OF_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""Before anything was over."""

CategoryLike = Category | Mapping[str, Any] | tuple[str, str]


class Memory(MemoryExtraction):
    """One user's memory: spaces that hold atoms and entities, never seen by anyone else.

    `get_…` gives None for an unknown id, everything else raises `NotFoundError`; an id of another user is unknown.
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        embedding: EmbeddingService,
        recall: RecallService,
        extraction: ExtractionService,
    ) -> None:
        super().__init__(runtime, scope, recall, extraction)
        self._embedding = embedding

    # Spaces

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Make a space. With `once`, the first space of that name is given back if there is one."""
        now = self._runtime.clock()
        space = MemorySpace(
            id=new_id("ms"),
            scope=self._scope,
            name=common.validate_name("name", DEFAULT_SPACE_NAME if name is None else name),
            created_at=now,
            updated_at=now,
            metadata=common.validate_metadata(metadata),
        )
        return await self._memories.create_space(self._scope, space, reuse_existing=once)

    async def get_space(self, id: str) -> MemorySpace | None:
        """The space of that id, or None."""
        return await self._memories.space(self._scope, id) if common.is_valid_id(id) else None

    async def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """The spaces, the oldest first; with a name, those called that."""
        return await self._memories.spaces(
            self._scope, name=common.validate_optional_text("name", name, common.NAME_LENGTH)
        )

    async def delete_space(self, id: str) -> None:
        """Hide a space with all that is in it."""
        await self._memories.delete_space(self._scope, common.validate_id("space", id), now=self._runtime.clock())

    # Atoms

    async def add_atom(
        self,
        space_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: DatetimeLike = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: DatetimeLike = None,
    ) -> Atom:
        """Remember something: a fact of importance 3 that is certain, if you do not say otherwise.

        `valid_from` is when it became true (now, if you do not say), `valid_to` when it ends, if that is known. Cite
        where it comes from with `source_conversation_id` and `source_message_ids`.
        """
        draft = build_atom_draft(
            {
                "text": text,
                "category": category,
                "importance": importance,
                "confidence": confidence,
                "valid_from": valid_from,
                "source_conversation_id": source_conversation_id,
                "source_message_ids": source_message_ids,
                "entity_ids": entity_ids,
                "valid_to": valid_to,
            },
            self._runtime.clock(),
        )
        [atom] = await self._add_drafts(space_id, [draft])
        return atom

    async def add_atoms(self, space_id: str, atoms: Sequence[Mapping[str, Any]]) -> list[Atom]:
        """Remember many things in one transaction, for imports: all are stored, or none.

        Each is a mapping with what `add_atom` takes.
        """
        now = self._runtime.clock()
        drafts = [build_atom_draft(atom, now) for atom in checks.validate_mappings("atoms", atoms)]
        return await self._add_drafts(space_id, drafts)

    async def get_atom(self, id: str) -> Atom | None:
        """The atom of that id, whatever its status, or None."""
        return await self._memories.atom(self._scope, id) if common.is_valid_id(id) else None

    async def supersede_atom(
        self,
        old_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: DatetimeLike = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: DatetimeLike = None,
    ) -> Atom:
        """Put a new atom in an old one's place: the old one held until the new one's `valid_from` (now, if not said).

        What is not given is as in the old one, but for where it comes from: in place of a pattern, which only the
        platform writes, give another `category`. Only the last atom of a chain can be
        superseded: another raises `AtomSupersededError`, which names what took its place.
        """
        old = await self.get_atom(old_id)
        if old is None:
            raise NotFoundError("atom", old_id)
        draft = build_atom_draft(
            {
                "text": text,
                "category": old.category if category is None else category,
                "importance": old.importance if importance is None else importance,
                "confidence": old.confidence if confidence is None else confidence,
                "valid_from": valid_from,
                "source_conversation_id": source_conversation_id,
                "source_message_ids": source_message_ids,
                "entity_ids": old.entity_ids if entity_ids is None else entity_ids,
                "valid_to": valid_to,
            },
            self._runtime.clock(),
        )
        [draft] = await self._embed_drafts([draft])
        return await self._memories.supersede(self._scope, old_id, draft, now=self._runtime.clock())

    async def archive_atom(self, id: str) -> Atom:
        """Put an atom aside: it is kept, and recalled only when asked for."""
        return await self._set_status(id, AtomStatus.ARCHIVED)

    async def restore_atom(self, id: str) -> Atom:
        """Bring back what was archived."""
        return await self._set_status(id, AtomStatus.ACTIVE)

    async def delete_atom(self, id: str) -> Atom:
        """Forget an atom: it is never recalled again."""
        return await self._set_status(id, AtomStatus.DELETED)

    async def list_atoms(
        self,
        space_id: str,
        category: str | CategoryLike | None = None,
        status: str | None = None,
        valid_at: DatetimeLike = None,
        limit: int | None = None,
        *,
        known_at: DatetimeLike = None,
        categories: Iterable[str] | None = None,
        include_superseded: bool = False,
        before: str | Atom | None = None,
    ) -> list[Atom]:
        """Atoms, the newest first: those that are not over or, with `valid_at`, those that held at that moment.

        They are ACTIVE unless another `status` is asked for. Of those that were put aside, what is over is listed too,
        as it is of all with `include_superseded`. `known_at` gives what was known then, `category` and `categories`
        those of these names. For the next page, pass the last atom as `before`.
        """
        names = checks.validate_names("categories", categories) or ()
        if category is not None:
            names = (checks.parse_category_name(category), *names)
        moment = checks.validate_moment("valid_at", valid_at)
        atom_status = AtomStatus.ACTIVE if status is None else checks.validate_enum("status", status, AtomStatus)
        include_ended = include_superseded or atom_status is not AtomStatus.ACTIVE
        atom_filter = AtomFilter(
            status=atom_status,
            valid_at=moment or (BEGINNING_OF_TIME if include_ended else self._runtime.clock()),
            known_at=checks.validate_moment("known_at", known_at),
            must_have_started=moment is not None,
            categories=tuple(dict.fromkeys(names)),
            limit=None if limit is None else common.validate_count("limit", limit),
            before=before.id
            if isinstance(before, Atom)
            else common.validate_optional_text("before", before, common.KEY_LENGTH),
        )
        return await self._memories.atoms(self._scope, common.validate_id("space", space_id), atom_filter)

    # Entities

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
        draft = EntityDraft(
            id=new_id("ent"),
            type=checks.validate_enum("type", type, EntityType),
            canonical_name=common.validate_name("canonical_name", canonical_name, checks.MAX_NAME_LENGTH).strip(),
            description=common.validate_optional_text("description", description, checks.MAX_TEXT_LENGTH),
            attributes=common.validate_metadata(attributes),
            aliases=tuple(name.strip() for name in checks.validate_names("aliases", aliases) or ()),
        )
        space_id = common.validate_id("space", space_id)
        return await self._memories.create_entity(self._scope, space_id, draft, now=self._runtime.clock())

    async def get_entity(self, id: str) -> Entity | None:
        """The entity of that id, also one that was merged, or None."""
        return await self._memories.entity(self._scope, id) if common.is_valid_id(id) else None

    async def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """The entity called that, by its own name or by an alias; case, accents and spacing do not matter.

        Of several, those whose own name it is come first, then the oldest. `type` None looks at all types.
        """
        found = await self._memories.find_entities(
            self._scope,
            common.validate_id("space", space_id),
            common.validate_name("name", name, checks.MAX_NAME_LENGTH),
            type=None if type is None else checks.validate_enum("type", type, EntityType),
        )
        return found[0] if found else None

    async def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Let one entity stand for another: atoms about the alias become atoms about it, and the names are kept.

        Gives the entity that stands for both. Merging again changes nothing.
        """
        return await self._memories.merge(
            self._scope,
            common.validate_id("entity", canonical_id),
            common.validate_id("entity", alias_id),
            now=self._runtime.clock(),
        )

    async def list_entities(
        self, space_id: str, type: str | None = None, limit: int | None = None, *, after: str | Entity | None = None
    ) -> list[Entity]:
        """Entities, the oldest first, without those that were merged. For the next page, pass the last as `after`."""
        return await self._memories.entities(
            self._scope,
            common.validate_id("space", space_id),
            type=None if type is None else checks.validate_enum("type", type, EntityType),
            after=after.id
            if isinstance(after, Entity)
            else common.validate_optional_text("after", after, common.KEY_LENGTH),
            limit=None if limit is None else common.validate_count("limit", limit),
        )

    async def search_entities(
        self, space_id: str, query: str | None = None, type: str | None = None, limit: int | None = None
    ) -> list[Entity]:
        """Entities whose names or description match, the best first; without a query, those most spoken of."""
        if query is not None and not isinstance(query, str):
            raise InvalidArgumentError(f"query is a text, not {query!r:.80}.")
        found = await self._memories.entities(
            self._scope,
            common.validate_id("space", space_id),
            type=None if type is None else checks.validate_enum("type", type, EntityType),
        )
        best = await searching.rank_entities(found, (query or "")[: checks.MAX_NAME_LENGTH])
        return best[: DEFAULT_ENTITY_LIMIT if limit is None else common.validate_count("limit", limit)]

    # What was said

    async def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Remember a conversation word for word, without any model: each message becomes a dated, cited EPISODE atom.

        Doing it again adds only what was said since; what was deleted stays so. Messages that the person could not see,
        and what tools gave, stay in the log alone.
        """
        space_id = common.validate_id("space", space_id)
        log = self._runtime.store.conversations
        id = common.validate_id("conversation", conversation_id)
        conversation = await log.get(self._scope, id)
        if conversation is None:
            raise NotFoundError("conversation", id)
        stored: list[Atom] = []
        seq = 0
        while messages := await log.messages(self._scope, id, after=seq, limit=MESSAGE_BATCH_SIZE, from_start=True):
            drafts = build_verbatim_drafts(conversation, messages)
            known = await self._memories.atoms_by_origin(self._scope, space_id, [str(draft.origin) for draft in drafts])
            new = [draft for draft in drafts if draft.origin not in known]
            for draft, atom in zip(new, await self._add_drafts(space_id, new), strict=True):
                known[str(draft.origin)] = atom
            remembered = [known[str(draft.origin)] for draft in drafts]
            stored += [atom for atom in remembered if atom.status is not AtomStatus.DELETED]
            seq = messages[-1].seq
        return stored

    async def _add_drafts(self, space_id: str, drafts: Sequence[AtomDraft]) -> list[Atom]:
        space_id = common.validate_id("space", space_id)
        if not drafts:
            await self._memories.version(self._scope, space_id)  # an unknown space is unknown, whatever is added
            return []
        embedded = await self._embed_drafts(drafts)
        return await self._memories.add(self._scope, space_id, embedded, now=self._runtime.clock())

    async def _embed_drafts(self, drafts: Sequence[AtomDraft]) -> list[AtomDraft]:
        vectors = await self._embedding.encode([draft.text for draft in drafts])
        name = self._embedding.name
        return [
            draft if vector is None else replace(draft, embedder=name, vector=vector)
            for draft, vector in zip(drafts, vectors, strict=True)
        ]

    async def _set_status(self, id: str, status: AtomStatus) -> Atom:
        id = common.validate_id("atom", id)
        return await self._memories.set_status(self._scope, id, status, now=self._runtime.clock())

    @property
    def _memories(self) -> MemoryStore:
        return self._runtime.store.memories
