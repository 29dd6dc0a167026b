"""Everyone's bindings on a server, for admins."""

from __future__ import annotations

import builtins

from tellback.client.handle import RemoteHandle
from tellback.client.ids import made_id
from tellback.client.pages import listed
from tellback.client.transport import Transport, path_of
from tellback.client.values import given, named
from tellback.memory.binding_checks import PolicyLike
from tellback.types.bindings import Binding
from tellback.wire.bindings import BindingWire


class RemoteBindings(RemoteHandle):
    """Every binding of the credential's tenant and app, whoever made it, or at another path those of one user."""

    def __init__(
        self, transport: Transport, user: str | None, *, at: tuple[str, str] = ("ai-admin", "bindings")
    ) -> None:
        super().__init__(transport, user)
        self._at = at

    async def list(self) -> builtins.list[Binding]:
        """All bindings, the oldest first."""
        return await listed(self._transport, path_of(*self._at), BindingWire, None, user=self._user, query={})

    async def get(self, id: str) -> Binding | None:
        """The binding of that id, or None."""
        found = await self._found(*self._at, id)
        return None if found is None else binding_of(found)

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`."""
        body = given(extraction_policy=named(extraction_policy), enabled=enabled)
        path = path_of(*self._at, made_id("binding", id))
        return binding_of(await self._transport.call("PATCH", path, user=self._user, body=body))

    async def delete(self, id: str) -> None:
        """End a binding; memories it made stay."""
        await self._delete(path_of(*self._at, made_id("binding", id)))


def binding_of(told: object) -> Binding:
    """The binding that a server tells of."""
    binding: Binding = BindingWire.model_validate(told).value()
    return binding
