"""`rc.bindings`: the bindings of all users, for whoever runs the platform."""

from __future__ import annotations

import builtins

from recollect.conversations import checks as common
from recollect.conversations.runtime import Runtime
from recollect.memory import binding_checks
from recollect.memory.binding_checks import PolicyLike
from recollect.types.bindings import Binding


class AllBindings:
    """Every binding, whoever made it, also if its maker is gone. Users see and change their own in `user.memory`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[Binding]:
        """All bindings, or those of a tenant and an app, the oldest first."""
        return await self._runtime.store.bindings.listed(None, tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> Binding | None:
        """The binding of that id, or None."""
        return await self._runtime.store.bindings.get(None, id) if common.is_id(id) else None

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`."""
        policy = None if extraction_policy is None else binding_checks.policy(extraction_policy)
        id = common.known_id("binding", id)
        now = self._runtime.clock()
        return await self._runtime.store.bindings.update(None, id, policy=policy, enabled=enabled, now=now)

    async def delete(self, id: str) -> None:
        """End a binding; memories it made stay."""
        id = common.known_id("binding", id)
        await self._runtime.store.bindings.delete(None, id, now=self._runtime.clock())
