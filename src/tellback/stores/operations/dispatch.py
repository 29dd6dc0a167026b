"""Bindings in SQL, and dispatch: match new events with bindings, and queue a job for each window of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import rows
from tellback.stores.engine import Operation, StorePart, event_statement, reads, run_in_scope, scope_values, writes
from tellback.stores.events import EventLog
from tellback.stores.operations.atoms import create_space, get_space, list_spaces
from tellback.stores.values import DispatchResult
from tellback.types.access import Scope
from tellback.types.conversations import Conversation
from tellback.types.ids import from_micros, new_id, now_micros, to_micros
from tellback.types.jobs import ANY, Binding, ExtractionPolicy, Job

DISPATCH_CURSOR = "dispatched"
"""The name of the state with the position of the last dispatched event."""

MAX_SKIPPED_EVENTS = 1_000
"""After this many events that no binding needs, their position is stored anyway."""

DIRECT_BINDING_ID = "direct"
"""The binding id of jobs for a space that was passed directly."""

EXTRACTION_JOB = "extract"
"""The kind of extraction jobs."""

UNFINISHED_STOP_REASONS = ("tool_use", "pause_turn")
"""Stop reasons after which the assistant continues."""


def dispatch_jobs(window_length: int, limit: int, until: int, now: int) -> Operation[DispatchResult]:
    """Create the jobs for new events. Return them, and whether there are more events."""
    yield "platform_named_lock", {"name": DISPATCH_CURSOR}
    after, events = yield from _load_new_events(until, limit)
    latest = {(rows.scope_from_row(row), row["subject_id"]): int(row["position"]) for row in events}
    jobs: list[Job] = []
    for (scope, id), position in latest.items():
        jobs += yield from run_in_scope(scope, _plan_triggered_jobs(id, position, window_length, now))
    reached = int(events[-1]["position"]) if len(events) == limit else until
    # Store the position if events were dispatched, otherwise rarely: each write wakes the other processes, which then
    # check for work.
    if events or reached - after > MAX_SKIPPED_EVENTS:
        yield "platform_state_set", {"name": DISPATCH_CURSOR, "value": reached}
    return DispatchResult(tuple(jobs), reached < until)


def has_pending_events(until: int) -> Operation[bool]:
    """Whether there are undispatched events that a binding may match."""
    return bool((yield from _load_new_events(until, 1))[1])


def _load_new_events(until: int, limit: int) -> Operation[tuple[int, list[Any]]]:
    """Return the position of the last dispatched event, and the events after it."""
    [wanted] = yield "platform_bindings_dispatch_range", {}
    if wanted["since"] is None:
        return until, []  # no binding needs events; a new one stores the position where it starts
    cursor = yield "platform_state_get", {"name": DISPATCH_CURSOR}
    after = max(int(cursor[0]["value"]) if cursor else 0, wanted["since"])
    if after >= until:
        return after, []
    statement = "platform_events_for_extraction" if wanted["windowed"] else "platform_close_events"
    return after, (yield statement, {"after": after, "until": until, "limit": limit})


def plan_jobs(id: str, version: str | None, space_id: str | None, window_length: int, now: int) -> Operation[list[Job]]:
    """Create or requeue the jobs of a conversation, whatever their triggers."""
    yield "platform_named_lock", {"name": DISPATCH_CURSOR}
    found = yield "conversation_get", {"id": id}
    if not found:
        raise NotFoundError("conversation", id)
    conversation = rows.CONVERSATION.read(found[0])
    jobs: list[Job] = []
    for target in (yield from _requested_targets(conversation, version, space_id, now)):
        covered = 0
        for row in (yield "jobs_of_target", target.values(id)):
            job = rows.JOB.read(row)
            if job.status.is_finished:
                job = yield from change_job(job, "job_requeue", "extraction.queued", now)
            jobs.append(job)
            covered = job.to_seq
        turns = yield from _load_turns(id, covered)
        jobs += yield from _insert_jobs(target, id, _split_into_windows(turns, window_length), now)
    return jobs


def change_job(job: Job, statement: str, event_type: str, now: int) -> Operation[Job]:
    """Requeue or cancel a job. A job whose status does not allow this stays unchanged."""
    found = yield statement, {**scope_values(job.scope), "id": job.id, "due_at": now_micros(), "now": now}
    if not found:
        return job
    yield event_statement(event_type, job.id, {"conversation_id": job.conversation_id}, now, job.scope)
    return rows.JOB.read(found[0])


@dataclass(frozen=True, slots=True)
class _ExtractionTarget:
    """The space and version for which a conversation is extracted."""

    binding_id: str
    space_id: str
    version: str
    policy: ExtractionPolicy

    def values(self, conversation_id: str) -> dict[str, Any]:
        return {
            "conversation_id": conversation_id,
            "binding_id": self.binding_id,
            "space_id": self.space_id,
            "version": self.version,
        }


@dataclass(frozen=True, slots=True)
class _TurnExtent:
    """The messages of a turn, or of several that overlap. It is complete if it ends with a final reply."""

    first_seq: int
    last_seq: int
    length: int
    is_complete: bool


def _requested_targets(
    conversation: Conversation, version: str | None, space_id: str | None, now: int
) -> Operation[list[_ExtractionTarget]]:
    """Return the targets of an explicitly requested extraction."""
    if space_id is not None:
        if (yield from get_space(space_id)) is None:
            raise NotFoundError("space", space_id)
        policy = ExtractionPolicy()
        return [_ExtractionTarget(DIRECT_BINDING_ID, space_id, version or policy.extraction_version, policy)]
    bindings = [binding for binding, _ in (yield from _matching_bindings(conversation))]
    targets = yield from _targets_of_bindings(conversation, bindings, now, version)
    if not targets:
        hint = "No enabled binding covers this namespace: create one with create_binding, or pass space_id."
        raise NotFoundError("binding", conversation.namespace, hint)
    return targets


def _matching_bindings(conversation: Conversation) -> Operation[list[tuple[Binding, int]]]:
    """Return the bindings of a conversation in the order of creation, each with the position where it starts."""
    found = [(rows.BINDING.read(row), row["since"]) for row in (yield "platform_bindings_matching_user", {})]
    subject = (conversation.namespace, conversation.scope.user_id)
    matching = [each for each in found if each[0].enabled and each[0].matches(*subject)]
    return sorted(matching, key=lambda each: each[0].id)


def _targets_of_bindings(
    conversation: Conversation, bindings: Sequence[Binding], now: int, version: str | None = None
) -> Operation[list[_ExtractionTarget]]:
    found: dict[tuple[str, str], _ExtractionTarget] = {}
    for binding in bindings:
        policy = binding.extraction_policy
        for space_id in (yield from _spaces_of_binding(conversation.user_id, binding, now)):
            target = _ExtractionTarget(binding.id, space_id, version or policy.extraction_version, policy)
            found[binding.id, space_id] = target
    return list(found.values())


def _spaces_of_binding(user_id: str, binding: Binding, now: int) -> Operation[list[str]]:
    """Return the user's spaces for a binding: by id for its creator, by name for others, created when missing."""
    ids = binding.memory_space_ids if binding.created_by == user_id else ()
    found: list[str] = []
    for index, name in enumerate(binding.memory_space_names):
        space = (yield from get_space(ids[index])) if index < len(ids) else None
        if space is None:
            same_name = yield from list_spaces(name)
            space = same_name[0] if same_name else None
        if space is None:
            values = {"id": new_id("ms"), "name": name, "metadata": "{}", "now": now}
            space = yield from create_space(values, reuse_existing=True)
        found.append(space.id)
    return found


def _plan_triggered_jobs(id: str, position: int, window_length: int, now: int) -> Operation[list[Job]]:
    """Create the jobs that an event at that position triggers for its conversation."""
    found = yield "conversation_get", {"id": id}
    if not found:
        return []  # the conversation was erased
    conversation = rows.CONVERSATION.read(found[0])
    active = [binding for binding, since in (yield from _matching_bindings(conversation)) if since < position]
    triggered = [binding for binding in active if _is_triggered(binding.extraction_policy, conversation)]
    jobs: list[Job] = []
    for target in (yield from _targets_of_bindings(conversation, triggered, now)):
        last = yield "job_last_of_target", target.values(id)
        turns = yield from _load_turns(id, int(last[0]["to_seq"]) if last else 0)
        windows = _windows_to_extract(turns, target.policy, conversation.is_open, window_length)
        jobs += yield from _insert_jobs(target, id, windows, now)
    return jobs


def _is_triggered(policy: ExtractionPolicy, conversation: Conversation) -> bool:
    if conversation.is_open:
        return policy.windowed and conversation.turns >= policy.window_turns
    return policy.on_conversation_closed or policy.windowed


def _load_turns(id: str, after: int) -> Operation[list[_TurnExtent]]:
    found = yield "message_lengths", {"conversation_id": id, "after": after}
    turns: list[_TurnExtent] = []
    index_by_turn: dict[str, int] = {}
    for row in found:
        seq, length = row["seq"], row["length"]
        is_complete = row["role"] == "assistant" and row["stop_reason"] not in UNFINISHED_STOP_REASONS
        index = index_by_turn.setdefault(row["turn_id"], len(turns))
        overlapping = turns[index:]
        if not overlapping:
            turns.append(_TurnExtent(seq, seq, length, is_complete))
            continue
        # Treat turns that overlap as one, so that windows have no gaps and do not overlap.
        turns[index:] = [
            _TurnExtent(overlapping[0].first_seq, seq, length + sum(turn.length for turn in overlapping), is_complete)
        ]
        if len(overlapping) > 1:
            index_by_turn = {id: min(known_index, index) for id, known_index in index_by_turn.items()}
    return turns


def _windows_to_extract(
    turns: list[_TurnExtent], policy: ExtractionPolicy, is_open: bool, length: int
) -> list[tuple[int, int]]:
    """Return the windows to extract now: one for every `window_turns` turns and, once it is closed, the rest."""
    windows: list[tuple[int, int]] = []
    size = max(1, policy.window_turns)
    while policy.windowed and len(turns) >= size and (len(turns) > size or turns[size - 1].is_complete or not is_open):
        windows += _split_into_windows(turns[:size], length)
        turns = turns[size:]
    if not is_open and policy.on_conversation_closed:
        windows += _split_into_windows(turns, length)
    return windows


def _split_into_windows(turns: Sequence[_TurnExtent], length: int) -> list[tuple[int, int]]:
    """Split turns into windows of about `length` characters, without splitting a turn."""
    windows: list[tuple[int, int]] = []
    size = 0
    for turn in turns:
        if windows and size + turn.length <= length:
            windows[-1] = (windows[-1][0], turn.last_seq)
            size += turn.length
        else:
            windows.append((turn.first_seq, turn.last_seq))
            size = turn.length
    return windows


def _insert_jobs(
    target: _ExtractionTarget, id: str, windows: Sequence[tuple[int, int]], now: int
) -> Operation[list[Job]]:
    jobs = []
    for first, last in windows:
        values = {**target.values(id), "id": new_id("job"), "kind": EXTRACTION_JOB, "from_seq": first, "to_seq": last}
        inserted = yield "job_insert", {**values, "due_at": now_micros(), "now": now}
        if inserted:
            job = rows.JOB.read(inserted[0])
            data = {"conversation_id": id, "space_id": target.space_id, "from_seq": first, "to_seq": last}
            yield event_statement("extraction.queued", job.id, data, now)
            jobs.append(job)
    return jobs


class Bindings(StorePart):
    """Bindings of a tenant and app. Each change writes its event in the same transaction.

    - A user sees the bindings it created, and the parts of other matching bindings that do not refer to other users. It
      may change those it created; others raise `NotFoundError`. Without a scope, all are visible and can be changed.
    - `create` makes a binding for later events: conversations closed before are not extracted. With `reuse_existing`,
      an existing binding of the user with the same scopes and spaces is returned unchanged.
    - `update` leaves fields that are None unchanged. The scope cannot change. A paused binding that is resumed applies
      to later events.
    """

    async def create(self, scope: Scope, binding: Binding, *, reuse_existing: bool = False) -> Binding:
        # Events committed before have positions up to this one, so they are not extracted.
        since = await EventLog(self._engine).latest()
        return await self._create(scope, binding, since, reuse_existing)

    @writes
    def _create(self, scope: Scope, binding: Binding, since: int, reuse_existing: bool) -> Operation[Binding]:
        if reuse_existing:
            yield "platform_named_lock", {"name": f"bindings:{binding.tenant_id}:{binding.app_id}"}
            for existing in (yield from _list_visible(scope)):
                if _identity_of(existing) == _identity_of(binding):
                    return existing
        values = rows.binding_values(binding, since)
        yield "platform_binding_create", values
        yield event_statement("binding.created", binding.id, {}, values["created_at"])
        return binding

    @reads
    def get(self, scope: Scope | None, id: str) -> Operation[Binding | None]:
        binding = yield from _get_binding(scope, id)
        return binding if binding is None or scope is None else visible_to(binding, scope.user_id)

    @reads
    def list_bindings(
        self, scope: Scope | None, *, tenant_id: str | None = None, app_id: str | None = None
    ) -> Operation[list[Binding]]:
        if scope is None:
            return rows.BINDING.read_all((yield "platform_bindings_all", {"tenant": tenant_id, "app": app_id}))
        return (yield from _list_visible(scope))

    async def update(
        self, scope: Scope | None, id: str, *, policy: ExtractionPolicy | None, enabled: bool | None, now: datetime
    ) -> Binding:
        # A resumed binding starts now, like a new one.
        since = await EventLog(self._engine).latest() if enabled else None
        return await self._update(scope, id, policy, enabled, since, to_micros(now))

    @writes
    def _update(
        self,
        scope: Scope | None,
        id: str,
        policy: ExtractionPolicy | None,
        enabled: bool | None,
        since: int | None,
        now: int,
    ) -> Operation[Binding]:
        binding, owner = yield from _get_changeable(scope, id)
        policy = binding.extraction_policy if policy is None else policy
        enabled = binding.enabled if enabled is None else enabled
        if (policy, enabled) == (binding.extraction_policy, binding.enabled):
            return binding
        changed = replace(binding, extraction_policy=policy, enabled=enabled, updated_at=from_micros(now))
        values = rows.binding_values(changed, since if enabled and not binding.enabled else None)
        yield "platform_binding_update", {**scope_values(owner), **values}
        yield event_statement("binding.updated", id, {"enabled": enabled}, now, owner)
        return changed

    @writes
    def delete(self, scope: Scope | None, id: str, *, now: datetime) -> Operation[None]:
        _, owner = yield from _get_changeable(scope, id)
        yield "platform_binding_delete", {**scope_values(owner), "id": id}
        yield event_statement("binding.deleted", id, {}, to_micros(now), owner)


def visible_to(binding: Binding, user_id: str) -> Binding | None:
    """Return the part of a binding that a user may see: all of its own, or only its own scopes. None hides it."""
    if binding.created_by == user_id:
        return binding
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id in (ANY, user_id))
    if not scopes:
        return None
    return replace(binding, conversation_scope=scopes, created_by=None, memory_space_ids=())


def _identity_of(binding: Binding) -> tuple[object, ...]:
    """Return the key of a binding: its creator, scopes and spaces."""
    return binding.created_by, frozenset(binding.conversation_scope), frozenset(binding.memory_space_ids)


def _get_binding(scope: Scope | None, id: str) -> Operation[Binding | None]:
    found = yield "platform_binding_get_by_id" if scope is None else "platform_binding_get", {"id": id}
    return rows.BINDING.read_first(found)


def _list_visible(scope: Scope) -> Operation[list[Binding]]:
    found = yield "platform_bindings_visible_to_user", {}
    visible = [visible_to(binding, scope.user_id) for binding in rows.BINDING.read_all(found)]
    return [binding for binding in visible if binding is not None]


def _get_changeable(scope: Scope | None, id: str) -> Operation[tuple[Binding, Scope]]:
    """Return a binding, and the scope that changes it: its creator's, or the platform's."""
    binding = yield from _get_binding(scope, id)
    if binding is None or (scope is not None and binding.created_by != scope.user_id):
        raise NotFoundError("binding", id)
    return binding, scope or Scope(binding.tenant_id, binding.app_id, binding.created_by or "")
