"""`user.memory`: one user's spaces, atoms and entities, recall over them, and the bindings and jobs that fill them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tellback import validation
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.memory import bindings, recall_service
from tellback.memory.bindings import PolicyLike, ScopeLike
from tellback.memory.embedding import EmbeddingService, embed_changes
from tellback.memory.extraction.extractors import build_verbatim_drafts
from tellback.memory.extraction.service import ExtractionService, Replay, ReplayProgress, ReplayReport
from tellback.memory.recall_service import RecallRequest, RecallService
from tellback.memory.space_view import NEVER, RecallFilter
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.stores import AtomDraft, AtomFilter, EntityDraft, MemoryStore
from tellback.types.access import Scope
from tellback.types.ids import new_id, to_micros, utc_now
from tellback.types.jobs import Binding, ExtractionRun, Job, JobStatus
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Entity,
    EntityType,
    MemorySpace,
    RecallResult,
)
from tellback.validation import KEY_LENGTH, MAX_NAME_LENGTH, CategoryLike, DatetimeLike

DEFAULT_SPACE_NAME = "default"
DEFAULT_CATEGORY = Category("fact", CategoryKind.FACT)
_SYSTEM_FIELDS = {"id", "origin", "embedder", "vector", "other_sources", "slot", "value"}
ATOM_FIELDS = AtomDraft.__dataclass_fields__.keys() - _SYSTEM_FIELDS
DEFAULT_RECALL_LIMIT = 10
DEFAULT_TIMELINE_LIMIT = 20
DEFAULT_ENTITY_LIMIT = 20
DEFAULT_JOB_LIMIT = 100
MAX_NEIGHBOURS = 50
MESSAGE_BATCH_SIZE = 500
BEGINNING_OF_TIME = datetime(1, 1, 1, tzinfo=UTC)
"""As `valid_at`, includes atoms whose validity has ended."""


class Memory(Handle):
    """One user's memory: spaces with atoms and entities, isolated from all other users.

    `get_…` methods return None for an unknown id; the others raise `NotFoundError`. Ids of other users are unknown
    here.

    >>> from tellback import Tellback
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     space = memory.create_space("life")
    ...     porto = memory.add_atom(space.id, "Maya lives in Porto.", valid_from="2024-05-01T00:00:00Z")
    ...     lisbon = memory.supersede_atom(porto.id, "Maya lives in Lisbon.", valid_from="2026-03-01T00:00:00Z")
    ...     now = memory.recall_by_topic(space.id, "Where does Maya live?")
    ...     then = memory.recall_by_topic(space.id, "Where does Maya live?", valid_at="2025-01-01T00:00:00Z")
    >>> [hit.atom.text for hit in now.hits], [hit.atom.text for hit in then.hits]
    (['Maya lives in Lisbon.'], ['Maya lives in Porto.'])
    """

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        embedding: EmbeddingService,
        recall: RecallService,
        extraction: ExtractionService,
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._embedding = embedding
        self._recall = recall
        self._extraction = extraction

    # Spaces

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Create a space. With `once`, return the first space of that name if one exists.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space, again = memory.create_space("life", once=True), memory.create_space("life", once=True)
        >>> space.name, again.id == space.id
        ('life', True)
        """
        now = self._runtime.clock()
        space = MemorySpace(
            id=new_id("ms"),
            scope=self._scope,
            name=validation.validate_name("name", DEFAULT_SPACE_NAME if name is None else name),
            created_at=now,
            updated_at=now,
            metadata=validation.validate_metadata(metadata),
        )
        return await self._memories.create_space(self._scope, space, reuse_existing=once)

    async def get_space(self, id: str) -> MemorySpace | None:
        """Return the space with that id, or None."""
        return await self._memories.space(self._scope, id) if validation.is_valid_id(id) else None

    async def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """List the spaces, the oldest first; with `name`, only those with that name."""
        return await self._memories.spaces(
            self._scope, name=validation.validate_optional_text("name", name, validation.NAME_LENGTH)
        )

    async def delete_space(self, id: str) -> None:
        """Hide a space and everything in it."""
        await self._memories.delete_space(self._scope, validation.validate_id("space", id), now=self._runtime.clock())

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
        """Add a memory: by default a fact with importance 3 and full confidence.

        `valid_from` is when it became true (default: now), and `valid_to` when it ends, if that is known.
        `source_conversation_id` and `source_message_ids` cite its source.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     atom = memory.add_atom(space.id, "Maya is allergic to nuts.", ("health", "FACT"), importance=5)
        >>> atom.text, atom.category.name, atom.importance
        ('Maya is allergic to nuts.', 'health', 5)
        """
        draft = _build_atom_draft(
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
        """Add many atoms in one transaction, for imports: either all are stored or none.

        Each is a mapping of the arguments of `add_atom`.
        """
        now = self._runtime.clock()
        drafts = [_build_atom_draft(atom, now) for atom in validation.validate_mappings("atoms", atoms)]
        return await self._add_drafts(space_id, drafts)

    async def get_atom(self, id: str) -> Atom | None:
        """Return the atom with that id, with any status, or None."""
        return await self._memories.atom(self._scope, id) if validation.is_valid_id(id) else None

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
        """Replace an atom with a new one. The old one is valid until the new one's `valid_from` (default: now).

        If omitted, `category`, `importance`, `confidence` and `entity_ids` are copied from the old atom; the source and
        `valid_to` are not. Only the platform writes patterns, so pass another `category` to replace one. Only the last
        atom of a chain can be superseded; for another, this raises `AtomSupersededError`, which contains the id of its
        replacement.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     old = memory.add_atom(memory.create_space("life").id, "Maya lives in Porto.")
        ...     new = memory.supersede_atom(old.id, "Maya lives in Lisbon.")
        ...     ended = memory.get_atom(old.id)
        >>> new.supersedes == old.id, ended.superseded_by == new.id, ended.valid_to == new.valid_from
        (True, True, True)
        """
        old = await self.get_atom(old_id)
        if old is None:
            raise NotFoundError("atom", old_id)
        draft = _build_atom_draft(
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
        [draft] = await embed_changes(self._embedding, [draft])
        return await self._memories.supersede(self._scope, old_id, draft, now=self._runtime.clock())

    async def archive_atom(self, id: str) -> Atom:
        """Archive an atom: it stays stored, but is recalled only with `include_archived`."""
        return await self._set_status(id, AtomStatus.ARCHIVED)

    async def restore_atom(self, id: str) -> Atom:
        """Restore an archived atom."""
        return await self._set_status(id, AtomStatus.ACTIVE)

    async def delete_atom(self, id: str) -> Atom:
        """Delete an atom: it is never recalled again."""
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
        """List atoms, the newest first: those that have not ended or, with `valid_at`, those valid at that time.

        Only ACTIVE atoms are listed, unless another `status` is passed. With another status, or with
        `include_superseded`, atoms that have ended are listed too. `known_at` lists the atoms as they were known at
        that time. `category` and `categories` filter by name. For the next page, pass the last atom as `before`.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     hobby = memory.add_atom(space.id, "Maya keeps bees.", ("hobby", "FACT"))
        ...     health = memory.add_atom(space.id, "Maya is allergic to nuts.", ("health", "FACT"))
        ...     texts = [atom.text for atom in memory.list_atoms(space.id, category="health")]
        >>> texts
        ['Maya is allergic to nuts.']
        """
        names = validation.validate_names("categories", categories) or ()
        if category is not None:
            names = (validation.parse_category_name(category), *names)
        moment = validation.parse_optional_datetime("valid_at", valid_at)
        atom_status = AtomStatus.ACTIVE if status is None else validation.validate_enum("status", status, AtomStatus)
        include_ended = include_superseded or atom_status is not AtomStatus.ACTIVE
        atom_filter = AtomFilter(
            status=atom_status,
            valid_at=moment or (BEGINNING_OF_TIME if include_ended else self._runtime.clock()),
            known_at=validation.parse_optional_datetime("known_at", known_at),
            must_have_started=moment is not None,
            categories=tuple(dict.fromkeys(names)),
            limit=None if limit is None else validation.validate_count("limit", limit),
            before=_validate_cursor("before", before, Atom),
        )
        return await self._memories.atoms(self._scope, validation.validate_id("space", space_id), atom_filter)

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
        """Create an entity that atoms can be linked to.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     ana = memory.create_entity(space.id, "PERSON", "Ana", aliases=["Anita"])
        ...     found = memory.find_entity_by_name(space.id, name="anita")
        >>> found.canonical_name
        'Ana'
        """
        draft = EntityDraft(
            id=new_id("ent"),
            type=validation.validate_enum("type", type, EntityType),
            canonical_name=validation.validate_name("canonical_name", canonical_name, MAX_NAME_LENGTH).strip(),
            description=validation.validate_optional_text("description", description, validation.MAX_TEXT_LENGTH),
            attributes=validation.validate_metadata(attributes),
            aliases=tuple(name.strip() for name in validation.validate_names("aliases", aliases) or ()),
        )
        space_id = validation.validate_id("space", space_id)
        return await self._memories.create_entity(self._scope, space_id, draft, now=self._runtime.clock())

    async def get_entity(self, id: str) -> Entity | None:
        """Return the entity with that id, even if it was merged, or None."""
        return await self._memories.entity(self._scope, id) if validation.is_valid_id(id) else None

    async def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """Find an entity by its name or an alias, ignoring case, accents and spacing.

        Of several matches, those by name come before those by alias, then the oldest wins. With `type` None, all types
        are searched.
        """
        found = await self._memories.find_entities(
            self._scope,
            validation.validate_id("space", space_id),
            validation.validate_name("name", name, MAX_NAME_LENGTH),
            type=_validate_entity_type(type),
        )
        return found[0] if found else None

    async def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Merge the alias entity into the canonical one. Its atoms and names move to the canonical entity.

        Return the canonical entity. Merging again changes nothing.
        """
        return await self._memories.merge(
            self._scope,
            validation.validate_id("entity", canonical_id),
            validation.validate_id("entity", alias_id),
            now=self._runtime.clock(),
        )

    async def list_entities(
        self, space_id: str, type: str | None = None, limit: int | None = None, *, after: str | Entity | None = None
    ) -> list[Entity]:
        """List entities, the oldest first, without merged ones. For the next page, pass the last one as `after`."""
        return await self._memories.entities(
            self._scope,
            validation.validate_id("space", space_id),
            type=_validate_entity_type(type),
            after=_validate_cursor("after", after, Entity),
            limit=None if limit is None else validation.validate_count("limit", limit),
        )

    async def search_entities(
        self, space_id: str, query: str | None = None, type: str | None = None, limit: int | None = None
    ) -> list[Entity]:
        """Search entities by names and description, the best match first; without a query, those with the most atoms
        first."""
        if query is not None and not isinstance(query, str):
            raise InvalidArgumentError(f"query must be a string, got {query!r:.80}.")
        found = await self._memories.entities(
            self._scope,
            validation.validate_id("space", space_id),
            type=_validate_entity_type(type),
        )
        best = await recall_service.rank_entities(found, (query or "")[:MAX_NAME_LENGTH])
        return best[: DEFAULT_ENTITY_LIMIT if limit is None else validation.validate_count("limit", limit)]

    # Recall

    async def recall_by_topic(
        self,
        space_id: str,
        query: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        min_importance: int | None = None,
        valid_at: DatetimeLike = None,
        *,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        min_score: float = 0.0,
        neighbours: int = 0,
        include_archived: bool = False,
    ) -> RecallResult:
        """Return the memories that answer a question best, ranked by words, meaning, time, speakers, entities, age and
        importance.

        `valid_at` recalls what was valid at that time, and `known_at` what was known at that time; by default,
        everything that has not ended. Expressions such as "last May" in the query are relative to `now`. With
        `neighbours`, a hit from a conversation includes that many turns before and after it, as `hit.context`.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     atoms = memory.add_atoms(space.id, [{"text": "Maya keeps bees."}, {"text": "Maya works in a library."}])
        ...     result = memory.recall_by_topic(space.id, "Where does Maya work?", limit=1)
        >>> [hit.atom.text for hit in result.hits]
        ['Maya works in a library.']
        """
        request = self._recall_request(
            space_id, limit, now, valid_at, known_at, category_names, include_archived, min_importance, neighbours
        )
        return await self._recall.by_topic(
            request, validation.validate_query("query", query), validation.validate_ratio("min_score", min_score)
        )

    async def recall_by_entity(
        self,
        space_id: str,
        entity_id_or_name: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        *,
        valid_at: DatetimeLike = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        include_archived: bool = False,
    ) -> RecallResult:
        """Return the memories about an entity, the newest first, at most `limit` (default: 10).

        If no entity has that name, return the memories that mention it, or that a person of that name said.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     ana = memory.create_entity(space.id, "PERSON", "Ana")
        ...     atom = memory.add_atom(space.id, "Maya's sister visits in May.", entity_ids=[ana.id])
        ...     result = memory.recall_by_entity(space.id, "Ana")
        >>> [hit.atom.text for hit in result.hits]
        ["Maya's sister visits in May."]
        """
        request = self._recall_request(space_id, limit, now, valid_at, known_at, category_names, include_archived)
        entity_ids, name = await self._resolve_entity(request.space_id, entity_id_or_name)
        return await self._recall.by_entity(request, entity_ids, name)

    async def recall_timeline(
        self,
        space_id: str,
        entity_id_or_name: str | None = None,
        query: str | None = None,
        from_: DatetimeLike = None,
        to: DatetimeLike = None,
        limit: int | None = None,
        include_superseded: bool = True,
        *,
        category_names: Iterable[str] | None = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
    ) -> RecallResult:
        """Return the memories valid at some time from `from_` to `to`, the oldest first, including those that have
        ended.

        Filter by an entity, a topic, or both. If there are more than `limit`, the best matches for the query are
        returned, or the newest.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     porto = memory.add_atom(space.id, "Maya lives in Porto.", valid_from="2024-05-01T00:00:00Z")
        ...     lisbon = memory.supersede_atom(porto.id, "Maya lives in Lisbon.", valid_from="2026-03-01T00:00:00Z")
        ...     result = memory.recall_timeline(space.id)
        >>> [(f"{hit.atom.valid_from:%B %Y}", hit.atom.text) for hit in result.hits]
        [('May 2024', 'Maya lives in Porto.'), ('March 2026', 'Maya lives in Lisbon.')]
        """
        start, end = validation.parse_optional_datetime("from_", from_), validation.parse_optional_datetime("to", to)
        if start is not None and end is not None and start > end:
            raise InvalidArgumentError(f"from_ must not be after to: {start.isoformat()} is after {end.isoformat()}.")
        limit = DEFAULT_TIMELINE_LIMIT if limit is None else limit
        request = self._recall_request(space_id, limit, now, None, known_at, category_names)
        request = replace(request, filter=replace(request.filter, include_superseded=include_superseded))
        entity_ids: list[str] | None = None
        name = None
        if entity_id_or_name is not None:
            entity_ids, name = await self._resolve_entity(request.space_id, entity_id_or_name)
        return await self._recall.timeline(
            request,
            entity_ids=entity_ids,
            name=name,
            query=None if query is None else validation.validate_query("query", query),
            start=-NEVER if start is None else to_micros(start),
            end=NEVER if end is None else to_micros(end),
        )

    # Bindings and extraction

    async def create_binding(
        self,
        conversation_scope: ScopeLike | Iterable[ScopeLike],
        memory_space_ids: Iterable[str],
        extraction_policy: PolicyLike | None = None,
        *,
        once: bool = False,
    ) -> Binding:
        """Create a binding: from now on, matching conversations become memories.

        `conversation_scope` selects the conversations: `{"namespace": "chat", "user_id": "*"}`, where "*" matches any
        value, or a list of such mappings. `memory_space_ids` are spaces of this user. Conversations of other users go
        to their own spaces of the same names, which are created when missing. By default a conversation is extracted
        when it closes. With `once`, an existing binding of this user with the same scopes and spaces is returned
        unchanged, for programs that create their bindings at every start.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     memory = tb.user("maya").memory
        ...     space = memory.create_space("life")
        ...     binding = memory.create_binding({"namespace": "chat"}, [space.id])
        >>> binding.memory_space_names, binding.matches("chat", "maya"), binding.matches("support", "maya")
        (('life',), True, False)
        """
        scopes = bindings.validate_scopes(conversation_scope)
        policy = bindings.validate_policy(extraction_policy)
        self._extraction.check_version(policy.extraction_version)
        ids = validation.validate_ids("memory_space_ids", memory_space_ids)
        if not ids:
            raise InvalidArgumentError("memory_space_ids is empty: pass at least one space id.")
        names = []
        for id in ids:
            space = await self._memories.space(self._scope, validation.validate_id("space", id))
            if space is None:
                raise NotFoundError("space", id)
            names.append(space.name)
        now = self._runtime.clock()
        binding = Binding(
            id=new_id("bind"),
            tenant_id=self._scope.tenant_id,
            app_id=self._scope.app_id,
            conversation_scope=scopes,
            memory_space_ids=ids,
            memory_space_names=tuple(names),
            extraction_policy=policy,
            created_at=now,
            updated_at=now,
            created_by=self._scope.user_id,
        )
        stored = await self._runtime.store.bindings.create(self._scope, binding, reuse_existing=once)
        self._runtime.jobs.wake()
        return stored

    async def get_binding(self, id: str) -> Binding | None:
        """Return the binding with that id if this user created it or it matches this user's conversations, otherwise
        None."""
        return await self._runtime.store.bindings.get(self._scope, id) if validation.is_valid_id(id) else None

    async def list_bindings(self) -> list[Binding]:
        """List the bindings that this user created, and those that match this user's conversations."""
        return await self._runtime.store.bindings.list_bindings(self._scope)

    async def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change a binding's extraction policy, or pause it with `enabled=False`. Its scopes and spaces never change.

        Conversations closed before the change are still extracted. Those closed while it is paused are extracted only
        on request.
        """
        return await self._extraction.update_binding(self._scope, id, extraction_policy, enabled)

    async def delete_binding(self, id: str) -> None:
        """Delete a binding for all users it applies to. Its memories stay, and conversations closed before are
        extracted."""
        await self._extraction.delete_binding(self._scope, id)

    async def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed. Repeating it does not add known facts again.

        Every enabled binding that matches creates its jobs, at `extraction_version` instead of its own. With
        `space_id`, no binding is needed. `await tb.jobs.drain()` waits for the jobs.
        """
        if extraction_version is not None:
            self._extraction.check_version(bindings.validate_extraction_version(extraction_version))
        jobs = await self._runtime.store.jobs.plan(
            self._scope,
            validation.validate_id("conversation", conversation_id),
            version=extraction_version,
            space_id=None if space_id is None else validation.validate_id("space", space_id),
            window_length=self._runtime.window_length,
            now=self._runtime.clock(),
        )
        self._runtime.jobs.wake()
        return ExtractionRun(tuple(jobs))

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it is not an error
        """Wait until this user's closed conversations are extracted; return False if `timeout` seconds pass first.

        It does not wait for failed jobs that are waiting for their next attempt.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:", extractor="verbatim") as tb:
        ...     maya = tb.user("maya")
        ...     space = maya.memory.create_space("life")
        ...     binding = maya.memory.create_binding({"namespace": "chat"}, [space.id])
        ...     conversation = maya.conversations.create("chat")
        ...     message = maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
        ...     closed = maya.conversations.close(conversation.id)
        ...     done, [atom] = maya.memory.wait_for_extraction(timeout=30), maya.memory.list_atoms(space.id)
        >>> done, atom.text
        (True, 'User: I moved to Lisbon.')
        """
        try:
            async with asyncio.timeout(timeout):
                await self._extraction.dispatch_pending()
                now = utc_now()  # leases and retries use the machine's clock
                # In the order of a job's states, so that a job that starts in between is not missed.
                jobs = [
                    job
                    for status in (JobStatus.QUEUED, JobStatus.RUNNING)
                    for job in await self._runtime.store.jobs.list_jobs(self._scope, status=status)
                ]
                return await self._runtime.jobs.wait([job.id for job in jobs if job.due_at <= now])
        except TimeoutError:
            return False

    async def replay(
        self,
        namespace: str | None = None,
        extraction_version: str | None = None,
        *,
        on_progress: Callable[[ReplayProgress], Any] | None = None,
    ) -> ReplayReport:
        """Extract this user's conversations again, the oldest first, and wait until that is done.

        With `namespace`, only those of that namespace are extracted. `on_progress` is called when a conversation is
        planned and when jobs end. Cancelling the replay cancels its jobs that have not started.
        """
        if extraction_version is not None:
            self._extraction.check_version(bindings.validate_extraction_version(extraction_version))
        name = validation.validate_optional_text("namespace", namespace, validation.NAME_LENGTH)
        return await Replay(self._runtime, self._extraction, extraction_version, on_progress).run(self._scope, name)

    async def list_jobs(
        self,
        conversation_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        *,
        before: str | None = None,
    ) -> list[Job]:
        """List this user's extraction jobs, the newest first. For the next page, pass the last job's id as `before`."""
        return await self._runtime.store.jobs.list_jobs(
            self._scope,
            status=None if status is None else JobStatus(validation.validate_choice("status", status, (*JobStatus,))),
            conversation_id=validation.validate_optional_text("conversation_id", conversation_id, KEY_LENGTH),
            limit=DEFAULT_JOB_LIMIT if limit is None else validation.validate_count("limit", limit),
            before=validation.validate_optional_text("before", before, KEY_LENGTH),
        )

    async def get_job(self, id: str) -> Job | None:
        """Return the current state of a job of this user, or None."""
        return await self._runtime.store.jobs.get(self._scope, id) if validation.is_valid_id(id) else None

    async def retry_job(self, id: str) -> Job:
        """Queue a failed, cancelled or finished job of this user again, with no attempts and no error."""
        now = self._runtime.clock()
        job = await self._runtime.store.jobs.retry(self._scope, validation.validate_id("job", id), now=now)
        self._runtime.jobs.wake()
        return job

    async def cancel_job(self, id: str) -> Job:
        """Cancel a job of this user that has not ended yet."""
        now = self._runtime.clock()
        return await self._runtime.store.jobs.cancel(self._scope, validation.validate_id("job", id), now=now)

    # Conversations

    async def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Store a conversation verbatim, without a model: each message becomes a dated, cited EPISODE atom.

        Repeating it adds only new messages; deleted atoms stay deleted. Messages that the user could not see and tool
        results are not stored as memories.

        >>> from tellback import Tellback
        >>> with Tellback(":memory:") as tb:
        ...     maya = tb.user("maya")
        ...     conversation = maya.conversations.create("chat")
        ...     message = maya.conversations.append_user_message(conversation.id, "I moved to Lisbon.")
        ...     space = maya.memory.create_space("life")
        ...     [atom] = maya.memory.remember_conversation(space.id, conversation.id)
        >>> atom.text, atom.source_message_ids == (message.id,)
        ('User: I moved to Lisbon.', True)
        """
        space_id = validation.validate_id("space", space_id)
        log = self._runtime.store.conversations
        id = validation.validate_id("conversation", conversation_id)
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

    def _recall_request(
        self,
        space_id: str,
        limit: int | None,
        now: DatetimeLike,
        valid_at: DatetimeLike,
        known_at: DatetimeLike,
        categories: Iterable[str] | None,
        include_archived: bool = False,
        min_importance: int | None = None,
        neighbours: int = 0,
    ) -> RecallRequest:
        moment = validation.parse_optional_datetime("now", now) or self._runtime.clock()
        valid = validation.parse_optional_datetime("valid_at", valid_at)
        known = validation.parse_optional_datetime("known_at", known_at)
        return RecallRequest(
            scope=self._scope,
            space_id=validation.validate_id("space", space_id),
            now=to_micros(moment),
            filter=RecallFilter(
                valid_at=to_micros(valid or moment),
                known_at=NEVER if known is None else to_micros(known),
                must_have_started=valid is not None,
                include_archived=include_archived,
                categories=validation.validate_names("category_names", categories) or None,
                min_importance=0 if not min_importance else validation.validate_importance(min_importance),
            ),
            limit=DEFAULT_RECALL_LIMIT if limit is None else validation.validate_count("limit", limit),
            neighbours=min(validation.validate_count("neighbours", neighbours), MAX_NEIGHBOURS),
        )

    async def _resolve_entity(self, space_id: str, id_or_name: str) -> tuple[list[str], str | None]:
        """Return the ids of the entity with that id or of those with that name; and the name, if it is one."""
        reference = validation.validate_name("entity_id_or_name", id_or_name, MAX_NAME_LENGTH)
        entity = await self._memories.entity(self._scope, reference)
        while entity is not None and entity.merged_into is not None:
            entity = await self._memories.entity(self._scope, entity.merged_into)
        if entity is not None and entity.memory_space_id == space_id:
            return [entity.id], None
        if reference.startswith("ent_"):
            raise NotFoundError("entity", reference)
        found = await self._memories.find_entities(self._scope, space_id, reference)
        return [entity.id for entity in found], reference

    async def _add_drafts(self, space_id: str, drafts: Sequence[AtomDraft]) -> list[Atom]:
        space_id = validation.validate_id("space", space_id)
        if not drafts:
            # Raise for an unknown space, even if there is nothing to add.
            await self._memories.version(self._scope, space_id)
            return []
        embedded = await embed_changes(self._embedding, drafts)
        return await self._memories.add(self._scope, space_id, embedded, now=self._runtime.clock())

    async def _set_status(self, id: str, status: AtomStatus) -> Atom:
        id = validation.validate_id("atom", id)
        return await self._memories.set_status(self._scope, id, status, now=self._runtime.clock())

    @property
    def _memories(self) -> MemoryStore:
        return self._runtime.store.memories


def _validate_entity_type(type: str | None) -> EntityType | None:
    return None if type is None else validation.validate_enum("type", type, EntityType)


def _validate_cursor(name: str, value: Any, kind: type[Atom | Entity]) -> str | None:
    return value.id if isinstance(value, kind) else validation.validate_optional_text(name, value, KEY_LENGTH)


async def load_versions(memory: Memory, atom: Atom, limit: int | None = None) -> list[Atom]:
    """Return the chain of atoms that superseded each other, the oldest first; at most `limit` before and after
    `atom`."""

    async def follow(id_of_next: Callable[[Atom], str | None]) -> list[Atom]:
        chain = [atom]
        while (limit is None or len(chain) <= limit) and (id := id_of_next(chain[-1])) is not None:
            found = await memory.get_atom(id)
            if found is None:
                break
            chain.append(found)
        return chain[1:]

    earlier, later = await follow(lambda each: each.supersedes), await follow(lambda each: each.superseded_by)
    return [*reversed(earlier), atom, *later]


def _build_atom_draft(fields: Mapping[str, Any], now: datetime) -> AtomDraft:
    """Build an atom from the arguments of `add_atom`; None means the default."""
    unknown = set(fields) - ATOM_FIELDS
    if unknown or "text" not in fields:
        problem = f"unknown fields: {', '.join(sorted(map(str, unknown)))}" if unknown else "no text"
        raise InvalidArgumentError(f"Invalid atom: {problem}. Its fields are {', '.join(sorted(ATOM_FIELDS))}.")
    values = {name: value for name, value in fields.items() if value is not None}
    valid_from = validation.parse_optional_datetime("valid_from", values.get("valid_from")) or now.astimezone(UTC)
    valid_to = validation.parse_optional_datetime("valid_to", values.get("valid_to"))
    if valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to must be after {valid_from.isoformat()}, got {valid_to.isoformat()}.")
    source = values.get("source_conversation_id")
    return AtomDraft(
        id=new_id("atom"),
        text=validation.validate_memory_text(fields["text"]),
        category=validation.validate_category(values.get("category", DEFAULT_CATEGORY)),
        valid_from=valid_from,
        importance=validation.validate_importance(values.get("importance", 3)),
        confidence=validation.validate_ratio("confidence", values.get("confidence", 1.0)),
        valid_to=valid_to,
        source_conversation_id=validation.validate_optional_text("source_conversation_id", source, KEY_LENGTH),
        source_message_ids=validation.validate_ids("source_message_ids", values.get("source_message_ids", ())),
        entity_ids=validation.validate_ids("entity_ids", values.get("entity_ids", ())),
    )
