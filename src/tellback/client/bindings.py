"""Everyone's bindings on a server, for admins."""

from __future__ import annotations

import builtins

from tellback.client.handle import RemoteHandle
from tellback.client.ids import require_server_id
from tellback.client.pages import list_all
from tellback.client.transport import Transport, build_path
from tellback.client.values import encode_arguments, encode_mapping
from tellback.memory.binding_checks import PolicyLike
from tellback.types.bindings import Binding
from tellback.wire.bindings import BindingWire


class RemoteBindings(RemoteHandle):
    """Every binding of the credential's tenant and app, whoever made it, or at another path those of one user."""

    def __init__(
        self, transport: Transport, user: str | None, *, path: tuple[str, str] = ("ai-admin", "bindings")
    ) -> None:
        super().__init__(transport, user)
        self._path = path

    async def list(self) -> builtins.list[Binding]:
        """All bindings, the oldest first."""
        return await list_all(self._transport, build_path(*self._path), BindingWire, None, user=self._user, query={})

    async def get(self, id: str) -> Binding | None:
        """The binding of that id, or None."""
        found = await self._get_by_id(*self._path, id)
        return None if found is None else decode_binding(found)

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change when a binding extracts, or pause it with `enabled=False`."""
        body = encode_arguments(extraction_policy=encode_mapping(extraction_policy), enabled=enabled)
        path = build_path(*self._path, require_server_id("binding", id))
        return decode_binding(await self._transport.call("PATCH", path, user=self._user, body=body))

    async def delete(self, id: str) -> None:
        """End a binding; memories it made stay."""
        await self._delete(build_path(*self._path, require_server_id("binding", id)))


def decode_binding(payload: object) -> Binding:
    """The binding that a server tells of."""
    binding: Binding = BindingWire.model_validate(payload).value()
    return binding
