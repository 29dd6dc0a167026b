"""Bindings in SQL: `Bindings` on any engine."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from recollect.errors import NotFoundError
from recollect.stores import job_rows
from recollect.stores.atoms import event
from recollect.stores.engine import Engine, Operation
from recollect.stores.ports import EventLog
from recollect.types.bindings import ANY, Binding, ExtractionPolicy
from recollect.types.scope import Scope
from recollect.types.times import to_micros


class SqlBindings:
    """`Bindings` on an engine."""

    def __init__(self, engine: Engine, events: EventLog) -> None:
        self._engine = engine
        self._events = events

    async def create(self, scope: Scope, binding: Binding, *, once: bool = False) -> Binding:
        # What was committed before has a position up to this one, so it is not extracted.
        since = await self._events.latest()
        return await self._engine.write(scope, partial(_create, scope, binding, since, once))

    async def get(self, scope: Scope, id: str) -> Binding | None:
        return await self._engine.read(scope, partial(_get, scope, id))

    async def listed(self, scope: Scope) -> list[Binding]:
        return await self._engine.read(scope, partial(_list, scope))

    async def update(
        self, scope: Scope, id: str, *, policy: ExtractionPolicy | None, enabled: bool | None, now: datetime
    ) -> Binding:
        return await self._engine.write(scope, partial(_update, scope, id, policy, enabled, to_micros(now)))

    async def delete(self, scope: Scope, id: str, *, now: datetime) -> None:
        await self._engine.write(scope, partial(_delete, scope, id, to_micros(now)))


def concerns(binding: Binding, user_id: str) -> bool:
    """Whether a user may see a binding: one it made, or one that is about its conversations."""
    about = any(scope.user_id in (ANY, user_id) for scope in binding.conversation_scope)
    return about or binding.created_by == user_id


def _create(scope: Scope, binding: Binding, since: int, once: bool) -> Operation[Binding]:
    if once:
        yield "platform_mark_lock", {"name": f"bindings:{binding.tenant_id}:{binding.app_id}"}
        for known in (yield from _list(scope)):
            if _means(known) == _means(binding):
                return known
    values = job_rows.binding_values(binding, since)
    yield "platform_binding_create", values
    yield event("binding.created", binding.id, {}, values["now"])
    return binding


def _means(binding: Binding) -> tuple[object, ...]:
    """What makes two bindings the same: whose they are, and what goes where."""
    return binding.created_by, frozenset(binding.conversation_scope), frozenset(binding.memory_space_ids)


def _get(scope: Scope, id: str) -> Operation[Binding | None]:
    found = yield "platform_binding_get", {"id": id}
    if not found:
        return None
    binding = job_rows.binding(found[0]).binding
    return binding if concerns(binding, scope.user_id) else None


def _list(scope: Scope) -> Operation[list[Binding]]:
    found = yield "platform_bindings_of_app", {}
    bindings = [job_rows.binding(row).binding for row in found]
    return [binding for binding in bindings if concerns(binding, scope.user_id)]


def _changeable(scope: Scope, id: str) -> Operation[Binding]:
    binding = yield from _get(scope, id)
    if binding is None or binding.created_by not in (None, scope.user_id):
        raise NotFoundError("binding", id)
    return binding


def _update(
    scope: Scope, id: str, policy: ExtractionPolicy | None, enabled: bool | None, now: int
) -> Operation[Binding]:
    binding = yield from _changeable(scope, id)
    policy = binding.extraction_policy if policy is None else policy
    enabled = binding.enabled if enabled is None else enabled
    if (policy, enabled) == (binding.extraction_policy, binding.enabled):
        return binding
    changed = {"policy": job_rows.policy_text(policy), "windowed": int(policy.windowed), "enabled": int(enabled)}
    yield "platform_binding_update", {"id": id, "now": now, **changed}
    yield event("binding.updated", id, {"enabled": enabled}, now)
    [row] = yield "platform_binding_get", {"id": id}
    return job_rows.binding(row).binding


def _delete(scope: Scope, id: str, now: int) -> Operation[None]:
    yield from _changeable(scope, id)
    yield "platform_binding_delete", {"id": id}
    yield event("binding.deleted", id, {}, now)
