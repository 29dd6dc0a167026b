"""`rc.bindings`: the bindings of all users, for whoever runs the platform."""

from __future__ import annotations

import builtins

from tellback.conversations import checks as common
from tellback.conversations.runtime import Runtime
from tellback.memory.binding_checks import PolicyLike
from tellback.memory.extraction.service import ExtractionService
from tellback.types.bindings import Binding


class AllBindings:
    """Every binding, whoever made it, also if its maker is gone. Users see and change their own in `user.memory`."""

    def __init__(self, runtime: Runtime, extraction: ExtractionService) -> None:
        self._runtime = runtime
        self._extraction = extraction

    async def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[Binding]:
        """All bindings, or those of a tenant and an app, the oldest first."""
        return await self._runtime.store.bindings.list_bindings(None, tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> Binding | None:
        """The binding of that id, or None."""
        return await self._runtime.store.bindings.get(None, id) if common.is_valid_id(id) else None

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`: what was closed before is extracted."""
        return await self._extraction.update_binding(None, id, extraction_policy, enabled)

    async def delete(self, id: str) -> None:
        """End a binding; memories it made stay, and what was closed before is extracted."""
        await self._extraction.delete_binding(None, id)
