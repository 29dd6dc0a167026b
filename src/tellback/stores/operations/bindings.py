"""Bindings in SQL: `Bindings` on any engine."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from tellback.errors import NotFoundError
from tellback.stores import rows
from tellback.stores.engine import Operation, SqlEngine, event_statement, run_in_scope
from tellback.stores.ports import EventLog
from tellback.types.access import Scope
from tellback.types.ids import from_micros, to_micros
from tellback.types.jobs import ANY, Binding, ExtractionPolicy


class SqlBindings:
    """`Bindings` on an engine."""

    def __init__(self, engine: SqlEngine, events: EventLog) -> None:
        self._engine = engine
        self._events = events

    async def create(self, scope: Scope, binding: Binding, *, reuse_existing: bool = False) -> Binding:
        # What was committed before has a position up to this one, so it is not extracted.
        since = await self._events.latest()
        return await self._engine.write(scope, partial(_create_binding, scope, binding, since, reuse_existing))

    async def get(self, scope: Scope | None, id: str) -> Binding | None:
        return await self._engine.read(scope, partial(_get_visible, scope, id))

    async def list_bindings(
        self, scope: Scope | None, *, tenant_id: str | None = None, app_id: str | None = None
    ) -> list[Binding]:
        if scope is None:
            return await self._engine.read(None, partial(_list_all, {"tenant": tenant_id, "app": app_id}))
        return await self._engine.read(scope, partial(_list_visible, scope))

    async def update(
        self, scope: Scope | None, id: str, *, policy: ExtractionPolicy | None, enabled: bool | None, now: datetime
    ) -> Binding:
        # One that goes on holds from now on, as one that is made.
        since = await self._events.latest() if enabled else None
        return await self._engine.write(
            scope, partial(_update_binding, scope, id, policy, enabled, since, to_micros(now))
        )

    async def delete(self, scope: Scope | None, id: str, *, now: datetime) -> None:
        await self._engine.write(scope, partial(_delete_binding, scope, id, to_micros(now)))


def visible_to(binding: Binding, user_id: str) -> Binding | None:
    """A binding as a user may see it: all of one it made; of one that is about its conversations, nothing of others."""
    if binding.created_by == user_id:
        return binding
    scopes = tuple(scope for scope in binding.conversation_scope if scope.user_id in (ANY, user_id))
    if not scopes:
        return None
    return replace(binding, conversation_scope=scopes, created_by=None, memory_space_ids=())


def _create_binding(scope: Scope, binding: Binding, since: int, reuse_existing: bool) -> Operation[Binding]:
    if reuse_existing:
        yield "platform_mark_lock", {"name": f"bindings:{binding.tenant_id}:{binding.app_id}"}
        for existing in (yield from _list_visible(scope)):
            if _identity_of(existing) == _identity_of(binding):
                return existing
    values = rows.binding_values(binding, since)
    yield "platform_binding_create", values
    yield event_statement("binding.created", binding.id, {}, values["now"])
    return binding


def _identity_of(binding: Binding) -> tuple[object, ...]:
    """What makes two bindings the same: whose they are, and what goes where."""
    return binding.created_by, frozenset(binding.conversation_scope), frozenset(binding.memory_space_ids)


def _get_visible(scope: Scope | None, id: str) -> Operation[Binding | None]:
    binding = yield from _get_binding(scope, id)
    return binding if binding is None or scope is None else visible_to(binding, scope.user_id)


def _get_binding(scope: Scope | None, id: str) -> Operation[Binding | None]:
    found = yield "platform_binding_any" if scope is None else "platform_binding_get", {"id": id}
    return rows.binding_from_row(found[0]).binding if found else None


def _list_visible(scope: Scope) -> Operation[list[Binding]]:
    found = yield "platform_bindings_seen", {}
    visible = [visible_to(rows.binding_from_row(row).binding, scope.user_id) for row in found]
    return [binding for binding in visible if binding is not None]


def _list_all(values: dict[str, str | None]) -> Operation[list[Binding]]:
    found = yield "platform_bindings_all", values
    return [rows.binding_from_row(row).binding for row in found]


def _get_changeable(scope: Scope | None, id: str) -> Operation[tuple[Binding, Scope]]:
    """A binding, and in whose name it is changed: its maker's, or the platform's."""
    binding = yield from _get_binding(scope, id)
    if binding is None or (scope is not None and binding.created_by != scope.user_id):
        raise NotFoundError("binding", id)
    return binding, scope or Scope(binding.tenant_id, binding.app_id, binding.created_by or "")


def _update_binding(
    scope: Scope | None, id: str, policy: ExtractionPolicy | None, enabled: bool | None, since: int | None, now: int
) -> Operation[Binding]:
    binding, owner = yield from _get_changeable(scope, id)
    policy = binding.extraction_policy if policy is None else policy
    enabled = binding.enabled if enabled is None else enabled
    if (policy, enabled) == (binding.extraction_policy, binding.enabled):
        return binding
    since_position = since if enabled and not binding.enabled else None
    changed = replace(binding, extraction_policy=policy, enabled=enabled, updated_at=from_micros(now))
    return (yield from run_in_scope(owner, _write_update(changed, since_position, now)))


def _write_update(binding: Binding, since: int | None, now: int) -> Operation[Binding]:
    values = {**rows.binding_values(binding, 0), "since": since, "now": now}
    yield "platform_binding_update", values
    yield event_statement("binding.updated", binding.id, {"enabled": binding.enabled}, now)
    return binding


def _delete_binding(scope: Scope | None, id: str, now: int) -> Operation[None]:
    _, owner = yield from _get_changeable(scope, id)
    yield from run_in_scope(owner, _write_deletion(id, now))


def _write_deletion(id: str, now: int) -> Operation[None]:
    yield "platform_binding_delete", {"id": id}
    yield event_statement("binding.deleted", id, {}, now)
