"""Bindings: the port."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from tellback.types.bindings import Binding, ExtractionPolicy
from tellback.types.scope import Scope


class Bindings(Protocol):
    """Bindings of a tenant and app, each change with its event in the same transaction.

    - A user sees the bindings it made, and of those that match its conversations what does not name others. It may
      change those it made; others raise `NotFoundError`. Without a scope, all are seen and may be changed.
    - `create` holds for what happens from then on: a conversation that was closed before is not extracted. With `once`,
      the user's binding of the same scopes and spaces is given back as it is, if there is one.
    - `update` leaves what is None as it is. The scope never changes. One that was paused holds for what happens from
      then on.
    """

    async def create(self, scope: Scope, binding: Binding, *, reuse_existing: bool = False) -> Binding: ...

    async def get(self, scope: Scope | None, id: str) -> Binding | None: ...

    async def list_bindings(
        self, scope: Scope | None, *, tenant_id: str | None = None, app_id: str | None = None
    ) -> list[Binding]: ...

    async def update(
        self, scope: Scope | None, id: str, *, policy: ExtractionPolicy | None, enabled: bool | None, now: datetime
    ) -> Binding: ...

    async def delete(self, scope: Scope | None, id: str, *, now: datetime) -> None: ...
