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
"""Before anything was over."""


class Memory(Handle):
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
        self._runtime = runtime
        self._scope = scope
        self._embedding = embedding
        self._recall = recall
        self._extraction = extraction

    # Spaces

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Make a space. With `once`, the first space of that name is given back if there is one."""
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
        """The space of that id, or None."""
        return await self._memories.space(self._scope, id) if validation.is_valid_id(id) else None

    async def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """The spaces, the oldest first; with a name, those called that."""
        return await self._memories.spaces(
            self._scope, name=validation.validate_optional_text("name", name, validation.NAME_LENGTH)
        )

    async def delete_space(self, id: str) -> None:
        """Hide a space with all that is in it."""
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
        """Remember something: a fact of importance 3 that is certain, if you do not say otherwise.

        `valid_from` is when it became true (now, if you do not say), `valid_to` when it ends, if that is known. Cite
        where it comes from with `source_conversation_id` and `source_message_ids`.
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
        """Remember many things in one transaction, for imports: all are stored, or none.

        Each is a mapping with what `add_atom` takes.
        """
        now = self._runtime.clock()
        drafts = [_build_atom_draft(atom, now) for atom in validation.validate_mappings("atoms", atoms)]
        return await self._add_drafts(space_id, drafts)

    async def get_atom(self, id: str) -> Atom | None:
        """The atom of that id, whatever its status, or None."""
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
        """Put a new atom in an old one's place: the old one held until the new one's `valid_from` (now, if not said).

        What is not given is as in the old one, but for where it comes from: in place of a pattern, which only the
        platform writes, give another `category`. Only the last atom of a chain can be
        superseded: another raises `AtomSupersededError`, which names what took its place.
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
        """Make an entity that atoms can be about."""
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
        """The entity of that id, also one that was merged, or None."""
        return await self._memories.entity(self._scope, id) if validation.is_valid_id(id) else None

    async def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """The entity called that, by its own name or by an alias; case, accents and spacing do not matter.

        Of several, those whose own name it is come first, then the oldest. `type` None looks at all types.
        """
        found = await self._memories.find_entities(
            self._scope,
            validation.validate_id("space", space_id),
            validation.validate_name("name", name, MAX_NAME_LENGTH),
            type=_validate_entity_type(type),
        )
        return found[0] if found else None

    async def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Let one entity stand for another: atoms about the alias become atoms about it, and the names are kept.

        Gives the entity that stands for both. Merging again changes nothing.
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
        """Entities, the oldest first, without those that were merged. For the next page, pass the last as `after`."""
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
        """Entities whose names or description match, the best first; without a query, those most spoken of."""
        if query is not None and not isinstance(query, str):
            raise InvalidArgumentError(f"query is a text, not {query!r:.80}.")
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
        """What answers a question best, ranked by words, meaning, time, speakers, entities, age and importance.

        `valid_at` recalls what held at a moment and `known_at` what was known then; without them, whatever is not over.
        Expressions such as "last May" in the query are understood relative to `now`. With `neighbours`, a hit that was
        said in a conversation brings so many turns before and after it along, as `hit.context`.
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
        """Everything about an entity, the newest first.

        A name that no entity has recalls what mentions it, or was said by somebody of that name.
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
        """How things changed: what held at some moment from `from_` to `to`, the oldest first, even if it is over.

        About an entity, on a topic, or both; without either, everything. Where there is more than `limit`, the best for
        the query stay, or the newest.
        """
        start, end = validation.parse_optional_datetime("from_", from_), validation.parse_optional_datetime("to", to)
        if start is not None and end is not None and start > end:
            raise InvalidArgumentError(f"from_ ({start.isoformat()}) is after to ({end.isoformat()}).")
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
        """From now on, let conversations become memories.

        `conversation_scope` says which: `{"namespace": "chat", "user_id": "*"}`, where "*" is any, or a list of such.
        `memory_space_ids` are spaces of this user; conversations of others go to their own spaces of the same names,
        made when missing. By default a conversation is extracted when it closes. With `once`, a binding that this user
        made before of the same scopes and spaces is given back as it is: for programs that bind whenever they start.
        """
        scopes = bindings.validate_scopes(conversation_scope)
        policy = bindings.validate_policy(extraction_policy)
        self._extraction.check_version(policy.extraction_version)
        ids = validation.validate_ids("memory_space_ids", memory_space_ids)
        if not ids:
            raise InvalidArgumentError("memory_space_ids is empty: name at least one space.")
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
        """The binding of that id, if this user made it or it is about this user's conversations, or None."""
        return await self._runtime.store.bindings.get(self._scope, id) if validation.is_valid_id(id) else None

    async def list_bindings(self) -> list[Binding]:
        """The bindings this user made, and those that are about this user's conversations."""
        return await self._runtime.store.bindings.list_bindings(self._scope)

    async def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`; what it is about never changes.

        What was closed before is extracted; what is closed while it is paused is not, unless someone asks for it.
        """
        return await self._extraction.update_binding(self._scope, id, extraction_policy, enabled)

    async def delete_binding(self, id: str) -> None:
        """End a binding, for everyone it is about; memories it made stay, and what was closed before is extracted."""
        await self._extraction.delete_binding(self._scope, id)

    async def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed, as often as you like: what is known already is not added again.

        Every enabled binding that matches gives its jobs, at `extraction_version` instead of its own; or name a space,
        and no binding is needed. `await tb.jobs.drain()` waits for them.
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
        """Wait until this user's conversations that were closed have become memories; False if they have not by then.

        Jobs that failed and wait for their next attempt are not waited for.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._extraction.dispatch_pending()
                now = utc_now()  # leases and retries go by the machine's clock
                # In the order in which a job goes: one that begins meanwhile is found where it was, or where it is.
                jobs = [job for status in ("queued", "running") for job in await self.list_jobs(status=status)]
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
        """Extract all of this user's conversations of a namespace again, the oldest first, and wait until that is done.

        `on_progress` is called as jobs end. Cancelling it cancels the jobs that were not begun.
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
        """This user's extraction jobs, the newest first. For the next page, pass the last one's id as `before`."""
        return await self._runtime.store.jobs.list_jobs(
            self._scope,
            status=None if status is None else JobStatus(validation.validate_choice("status", status, (*JobStatus,))),
            conversation_id=validation.validate_optional_text("conversation_id", conversation_id, KEY_LENGTH),
            limit=DEFAULT_JOB_LIMIT if limit is None else validation.validate_count("limit", limit),
            before=validation.validate_optional_text("before", before, KEY_LENGTH),
        )

    async def get_job(self, id: str) -> Job | None:
        """A job of this user as it stands now, or None."""
        return await self._runtime.store.jobs.get(self._scope, id) if validation.is_valid_id(id) else None

    async def retry_job(self, id: str) -> Job:
        """Queue a job of this user that failed, was cancelled or is done again, as if it were new."""
        now = self._runtime.clock()
        job = await self._runtime.store.jobs.retry(self._scope, validation.validate_id("job", id), now=now)
        self._runtime.jobs.wake()
        return job

    async def cancel_job(self, id: str) -> Job:
        """End a job of this user that has not ended yet."""
        now = self._runtime.clock()
        return await self._runtime.store.jobs.cancel(self._scope, validation.validate_id("job", id), now=now)

    # Conversations

    async def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Remember a conversation word for word, without any model: each message becomes a dated, cited EPISODE atom.

        Doing it again adds only what was said since; what was deleted stays so. Messages that the person could not see,
        and what tools gave, stay in the log alone.
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
        """The entity of that id, or those of that name; and the name, if it is one."""
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
            await self._memories.version(self._scope, space_id)  # an unknown space is unknown, whatever is added
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
    """Return what stood in an atom's place, the oldest first, itself among it; at most `limit` before and after it."""

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
    """An atom from what `add_atom` takes; None is as if it were not given."""
    unknown = set(fields) - ATOM_FIELDS
    if unknown or "text" not in fields:
        problem = f"no {', '.join(sorted(map(str, unknown)))}" if unknown else "a text"
        raise InvalidArgumentError(f"an atom has {problem}; it takes {', '.join(sorted(ATOM_FIELDS))}.")
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
