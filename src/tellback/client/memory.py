"""`user.memory` and `user.working_context` of a server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Any

from tellback import validation
from tellback.client.admin import RemoteBindings, RemoteJobs, decode_binding, decode_job
from tellback.client.transport import (
    RemoteHandle,
    build_path,
    encode_arguments,
    encode_cursor,
    encode_datetime,
    encode_mapping,
    encode_metadata,
    list_all,
    require_server_id,
)
from tellback.errors import NotFoundError, RemoteUnavailableError, StoreError
from tellback.memory.bindings import PolicyLike, ScopeLike
from tellback.memory.memory import DEFAULT_ENTITY_LIMIT
from tellback.types.jobs import Binding, ConversationScope, ExtractionRun, Job
from tellback.types.memory import Atom, Category, Entity, MemorySpace, RecallResult, WorkingContext
from tellback.validation import CategoryLike, DatetimeLike
from tellback.wire.memory import AtomWire, EntityWire, RecallResultWire, SpaceWire, WorkingContextWire

MEMORY_PATH = "ai-memory"
MAX_WAIT_SECONDS = 20.0
"""How many seconds one request waits."""
RECONNECT_SECONDS = 1.0


class RemoteWorkingContextBuilder(RemoteHandle):
    """Builds the working context of a user's conversations, on a server."""

    async def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8_000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Put together what a model should know before it answers in this conversation, or with None, in a new one."""
        body = encode_arguments(
            conversation_id=conversation_id,
            memory_space_id=memory_space_id,
            recall_query=recall_query,
            recent_turns=recent_turns,
            recall_limit=recall_limit,
            token_budget=token_budget,
            include_rolling_summary=include_rolling_summary,
            always_on_category_names=always_on_category_names or None,
            template_id=template_id,
            now=encode_datetime("now", now),
            min_score=min_score,
        )
        path = build_path("ai-working-context")
        payload = await self._transport.call("POST", path, user=self._user, body=body, is_read=True)
        context: WorkingContext = WorkingContextWire.model_validate(payload).value()
        return context


class RemoteMemory(RemoteHandle):
    """One user's memory, kept by a server. It has the methods of `user.memory`."""

    async def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Make a space. With `once`, the first space of that name is given back if there is one."""
        body = encode_arguments(name=name, metadata=encode_metadata(metadata), once=once or None)
        return self._decode_space(await self._post(build_path(MEMORY_PATH, "spaces"), body))

    async def get_space(self, id: str) -> MemorySpace | None:
        """The space of that id, or None."""
        found = await self._get_by_id(MEMORY_PATH, "spaces", id)
        return None if found is None else self._decode_space(found)

    async def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """The spaces, the oldest first; with a name, those called that."""
        return await list_all(
            self._transport,
            build_path(MEMORY_PATH, "spaces"),
            SpaceWire,
            None,
            user=self._user,
            query=encode_arguments(name=name),
        )

    async def delete_space(self, id: str) -> None:
        """Hide a space with all that is in it."""
        await self._delete(build_path(MEMORY_PATH, "spaces", require_server_id("space", id)))

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
        """Remember something: a fact of importance 3 that is certain, if you do not say otherwise."""
        body = encode_arguments(
            text=text,
            category=_encode_category(category),
            importance=importance,
            confidence=confidence,
            valid_from=encode_datetime("valid_from", valid_from),
            source_conversation_id=source_conversation_id,
            source_message_ids=source_message_ids,
            entity_ids=entity_ids,
            valid_to=encode_datetime("valid_to", valid_to),
        )
        return self._decode_atom(await self._post(self._space_path(space_id, "atoms"), body))

    async def add_atoms(self, space_id: str, atoms: Sequence[Mapping[str, Any]]) -> list[Atom]:
        """Remember many things in one transaction, for imports: all are stored, or none."""
        body = {"atoms": [_encode_atom(atom) for atom in atoms]}
        found = await self._post(self._space_path(space_id, "atoms", "batch"), body)
        return [self._decode_atom(each) for each in found["items"]]

    async def get_atom(self, id: str) -> Atom | None:
        """The atom of that id, whatever its status, or None."""
        found = await self._get_by_id(MEMORY_PATH, "atoms", id)
        return None if found is None else self._decode_atom(found)

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
        """Put a new atom in an old one's place: the old one held until the new one's `valid_from`."""
        body = encode_arguments(
            text=text,
            category=_encode_category(category),
            importance=importance,
            confidence=confidence,
            valid_from=encode_datetime("valid_from", valid_from),
            source_conversation_id=source_conversation_id,
            source_message_ids=source_message_ids,
            entity_ids=entity_ids,
            valid_to=encode_datetime("valid_to", valid_to),
        )
        return self._decode_atom(
            await self._post(build_path(MEMORY_PATH, "atoms", require_server_id("atom", old_id), "supersede"), body)
        )

    async def archive_atom(self, id: str) -> Atom:
        """Put an atom aside: it is kept, and recalled only when asked for."""
        return self._decode_atom(
            await self._post(build_path(MEMORY_PATH, "atoms", require_server_id("atom", id), "archive"))
        )

    async def restore_atom(self, id: str) -> Atom:
        """Bring back what was archived."""
        return self._decode_atom(
            await self._post(build_path(MEMORY_PATH, "atoms", require_server_id("atom", id), "restore"))
        )

    async def delete_atom(self, id: str) -> Atom:
        """Forget an atom: it is never recalled again."""
        return self._decode_atom(await self._delete(build_path(MEMORY_PATH, "atoms", require_server_id("atom", id))))

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
        """Atoms, the newest first: those that are not over or, with `valid_at`, those that held at that moment."""
        names = (
            [] if category is None else [category if isinstance(category, str) else _encode_category(category)["name"]]
        )
        query = encode_arguments(
            category=[*names, *(categories or ())] or None,
            status=status,
            valid_at=encode_datetime("valid_at", valid_at),
            known_at=encode_datetime("known_at", known_at),
            include_superseded="true" if include_superseded else None,
        )
        cursor = encode_cursor(before.id if isinstance(before, Atom) else before)
        path = self._space_path(space_id, "atoms")
        if limit == 0:
            await self._require_space(space_id)
        return await list_all(self._transport, path, AtomWire, limit, user=self._user, query=query, cursor=cursor)

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
        body = encode_arguments(
            type=type,
            canonical_name=canonical_name,
            description=description,
            attributes=encode_metadata(attributes),
            aliases=[*aliases] or None,
        )
        return self._decode_entity(await self._post(self._space_path(space_id, "entities"), body))

    async def get_entity(self, id: str) -> Entity | None:
        """The entity of that id, also one that was merged, or None."""
        found = await self._get_by_id(MEMORY_PATH, "entities", id)
        return None if found is None else self._decode_entity(found)

    async def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """The entity called that, by its own name or by an alias; case, accents and spacing do not matter."""
        query = encode_arguments(type=type, name=validation.validate_name("name", name, 1_000))
        path = self._space_path(space_id, "entities", "by-name")
        try:
            return self._decode_entity(await self._transport.call("GET", path, user=self._user, query=query))
        except NotFoundError as error:
            if getattr(error, "kind", None) == "space":
                raise
            return None

    async def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Let one entity stand for another: atoms about the alias become atoms about it, and the names are kept."""
        path = build_path(MEMORY_PATH, "entities", require_server_id("entity", canonical_id), "merge")
        return self._decode_entity(await self._post(path, {"aliasId": require_server_id("entity", alias_id)}))

    async def list_entities(
        self, space_id: str, type: str | None = None, limit: int | None = None, *, after: str | Entity | None = None
    ) -> list[Entity]:
        """Entities, the oldest first, without those that were merged. For the next page, pass the last as `after`."""
        if limit == 0:
            await self._require_space(space_id)
        path, cursor = (
            self._space_path(space_id, "entities"),
            encode_cursor(after.id if isinstance(after, Entity) else after),
        )
        query = encode_arguments(type=type)
        return await list_all(self._transport, path, EntityWire, limit, user=self._user, query=query, cursor=cursor)

    async def search_entities(
        self, space_id: str, query: str | None = None, type: str | None = None, limit: int | None = None
    ) -> list[Entity]:
        """Entities whose names or description match, the best first; without a query, those most spoken of."""
        if limit == 0:
            await self._require_space(space_id)
        max_entities, parameters = (
            DEFAULT_ENTITY_LIMIT if limit is None else limit,
            {**encode_arguments(type=type), "query": query or ""},
        )
        return await list_all(
            self._transport,
            self._space_path(space_id, "entities"),
            EntityWire,
            max_entities,
            user=self._user,
            query=parameters,
        )

    async def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Remember a conversation word for word, without any model: each message becomes a cited EPISODE atom."""
        found = await self._post(
            self._space_path(space_id, "remember-conversation"), encode_arguments(conversation_id=conversation_id)
        )
        return [self._decode_atom(each) for each in found["items"]]

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
        """What is remembered about a topic, the best first."""
        body = encode_arguments(
            query=query,
            limit=limit,
            category_names=category_names,
            min_importance=min_importance,
            valid_at=encode_datetime("valid_at", valid_at),
            known_at=encode_datetime("known_at", known_at),
            now=encode_datetime("now", now),
            min_score=min_score or None,
            neighbours=neighbours or None,
            include_archived=include_archived or None,
        )
        return await self._recall(space_id, "recall-by-topic", body)

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
        """What is remembered about an entity, the newest first."""
        body = encode_arguments(
            entity_id_or_name=entity_id_or_name,
            limit=limit,
            category_names=category_names,
            valid_at=encode_datetime("valid_at", valid_at),
            known_at=encode_datetime("known_at", known_at),
            now=encode_datetime("now", now),
            include_archived=include_archived or None,
        )
        return await self._recall(space_id, "recall-by-entity", body)

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
        """How things changed: what held at some moment from `from_` to `to`, the oldest first, even if it is over."""
        body = encode_arguments(
            entity_id_or_name=entity_id_or_name,
            query=query,
            from_=encode_datetime("from_", from_),
            to=encode_datetime("to", to),
            limit=limit,
            include_superseded=None if include_superseded else False,
            category_names=category_names,
            known_at=encode_datetime("known_at", known_at),
            now=encode_datetime("now", now),
        )
        return await self._recall(space_id, "recall-timeline", body)

    async def create_binding(
        self,
        conversation_scope: ScopeLike | Iterable[ScopeLike],
        memory_space_ids: Iterable[str],
        extraction_policy: PolicyLike | None = None,
        *,
        once: bool = False,
    ) -> Binding:
        """From now on, let conversations become memories."""
        if isinstance(conversation_scope, ConversationScope | Mapping):
            scopes: Any = encode_mapping(conversation_scope)
        else:
            scopes = [encode_mapping(each) for each in conversation_scope]
        body = encode_arguments(
            memory_space_ids=memory_space_ids, extraction_policy=encode_mapping(extraction_policy), once=once or None
        )
        return decode_binding(
            await self._post(build_path(MEMORY_PATH, "bindings"), {**body, "conversationScope": scopes})
        )

    async def get_binding(self, id: str) -> Binding | None:
        """The binding of that id, if this user made it or it is about this user's conversations, or None."""
        return await self._bindings.get(id)

    async def list_bindings(self) -> list[Binding]:
        """The bindings this user made, and those that are about this user's conversations."""
        return await self._bindings.list()

    async def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`; what it is about never changes."""
        return await self._bindings.update(id, extraction_policy, enabled)

    async def delete_binding(self, id: str) -> None:
        """End a binding, for everyone it is about; memories it made stay."""
        await self._bindings.delete(id)

    async def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed: what is known already is not added again."""
        body = encode_arguments(
            conversation_id=conversation_id, extraction_version=extraction_version, memory_space_id=space_id
        )
        found = await self._post(build_path(MEMORY_PATH, "extractions"), body)
        return ExtractionRun(tuple(decode_job(each) for each in found["jobs"]))

    async def list_jobs(
        self, conversation_id: str | None = None, status: str | None = None, limit: int | None = None
    ) -> list[Job]:
        """This user's extraction jobs, the newest first."""
        return await self._jobs.list(status, conversation_id=conversation_id, limit=100 if limit is None else limit)

    async def get_job(self, id: str) -> Job | None:
        """A job as it stands now, or None."""
        return await self._jobs.get(id)

    async def retry_job(self, id: str) -> Job:
        """Queue a job that failed, was cancelled or is done again, as if it were new."""
        return await self._jobs.retry(id)

    async def cancel_job(self, id: str) -> Job:
        """End a job that has not ended yet."""
        return await self._jobs.cancel(id)

    async def follow_job(self, id: str) -> AsyncGenerator[Job, None]:
        """A job as it stands, and again at each change, until it is over. While the server is away it waits."""
        path, job = build_path(MEMORY_PATH, "jobs", require_server_id("job", id), "events"), None
        while job is None or not job.status.is_finished:
            try:
                async with aclosing(self._transport.stream_events("GET", path, user=self._user)) as events:
                    async for item in events:
                        found = decode_job(json.loads(item.data))
                        if found != job:
                            job = found
                            yield job
            except (RemoteUnavailableError, StoreError):
                if job is None:
                    raise
            if job is None or not job.status.is_finished:
                await asyncio.sleep(RECONNECT_SECONDS)

    async def wait_for_extraction(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - it is not an error
        """Wait until this user's closed conversations have become memories; False if they have not by then."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = (
                MAX_WAIT_SECONDS if deadline is None else min(MAX_WAIT_SECONDS, max(0.0, deadline - time.monotonic()))
            )
            path = build_path(MEMORY_PATH, "extractions", "wait")
            payload = await self._transport.call(
                "POST", path, user=self._user, body={"timeout": remaining}, is_read=True
            )
            if payload["done"] or (deadline is not None and time.monotonic() >= deadline):
                return bool(payload["done"])

    @property
    def _bindings(self) -> RemoteBindings:
        return RemoteBindings(self._transport, self._user, path=(MEMORY_PATH, "bindings"))

    @property
    def _jobs(self) -> RemoteJobs:
        return RemoteJobs(self._transport, self._user, path=(MEMORY_PATH, "jobs"))

    async def _recall(self, space_id: str, operation: str, body: Mapping[str, Any]) -> RecallResult:
        path = self._space_path(space_id, operation)
        # Nothing is changed by it, so it may be asked again; it needs no key.
        found = await self._transport.call("POST", path, user=self._user, body=body, is_read=True)
        recalled: RecallResult = RecallResultWire.model_validate(found).value()
        return recalled

    async def _require_space(self, space_id: str) -> None:
        if await self.get_space(space_id) is None:
            raise NotFoundError("space", space_id)

    def _space_path(self, space_id: str, *more: str) -> str:
        return build_path(MEMORY_PATH, "spaces", require_server_id("space", space_id), *more)

    @staticmethod
    def _decode_space(payload: Any) -> MemorySpace:
        space: MemorySpace = SpaceWire.model_validate(payload).value()
        return space

    @staticmethod
    def _decode_atom(payload: Any) -> Atom:
        atom: Atom = AtomWire.model_validate(payload).value()
        return atom

    @staticmethod
    def _decode_entity(payload: Any) -> Entity:
        entity: Entity = EntityWire.model_validate(payload).value()
        return entity


def _encode_category(category: CategoryLike | None) -> Any:
    """A category on the wire: of its value, of a pair, or as it was written."""
    if isinstance(category, Category):
        return {"name": category.name, "kind": category.kind.value}
    if isinstance(category, tuple | list) and len(category) == 2:
        return {"name": category[0], "kind": category[1]}
    return category


def _encode_atom(atom: Mapping[str, Any]) -> dict[str, Any]:
    body = dict(atom)
    if "category" in body:
        body["category"] = _encode_category(body["category"])
    for name in ("valid_from", "valid_to"):
        if name in body:
            body[name] = encode_datetime(name, body[name])
    return encode_arguments(**{str(name): value for name, value in body.items()})
