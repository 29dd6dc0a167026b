"""Bindings: validation of their scopes and policies, and `tb.bindings`, the bindings of all users."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from tellback import validation
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.portal import Handle
from tellback.runtime import Runtime
from tellback.types.jobs import ANY, Binding, ConversationScope, ExtractionPolicy

if TYPE_CHECKING:
    from tellback.memory.extraction.service import ExtractionService

T = TypeVar("T")
ScopeLike = ConversationScope | Mapping[str, Any]
PolicyLike = ExtractionPolicy | Mapping[str, Any]

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def validate_scopes(value: ScopeLike | Iterable[ScopeLike]) -> tuple[ConversationScope, ...]:
    """Validate one scope or several, and remove duplicates."""
    items = [value] if isinstance(value, ConversationScope | Mapping) else value
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise InvalidArgumentError(
            f"conversation_scope must be a mapping such as {{'namespace': 'chat', 'user_id': '*'}}, or a list of them,"
            f" got {value!r:.80}."
        )
    scopes = tuple(dict.fromkeys(_validate_scope(each) for each in items))
    if not scopes:
        raise InvalidArgumentError("conversation_scope is empty: pass a namespace, or '*' for all.")
    return scopes


def _validate_scope(value: ScopeLike) -> ConversationScope:
    scope = _coerce("a conversation scope", ConversationScope, value)
    for what, part in (("namespace", scope.namespace), ("user_id", scope.user_id)):
        validation.validate_name(what, part)
        if ANY in part and part != ANY:
            raise InvalidArgumentError(
                f"{what} must be a complete name or '*', got {part!r:.80}. Other wildcards are not supported."
            )
    return scope


def validate_policy(value: PolicyLike | None) -> ExtractionPolicy:
    """Validate an extraction policy; None means the default."""
    policy = ExtractionPolicy() if value is None else _coerce("an extraction policy", ExtractionPolicy, value)
    validate_extraction_version(policy.extraction_version)
    for what in ("on_conversation_closed", "windowed"):
        if not isinstance(getattr(policy, what), bool):
            raise InvalidArgumentError(f"{what} must be True or False, got {getattr(policy, what)!r:.80}.")
    validation.validate_count("window_turns", policy.window_turns)
    if policy.windowed and not policy.window_turns:
        raise InvalidArgumentError("windowed extraction requires window_turns, the number of turns per extraction.")
    if not policy.windowed and not policy.on_conversation_closed:
        raise InvalidArgumentError(
            "The policy never extracts: set on_conversation_closed or windowed, or pause it with enabled=False."
        )
    return policy


def validate_extraction_version(value: Any) -> str:
    """Validate the name of a prompt version."""
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise InvalidArgumentError(f"extraction_version must be a name such as 'v1', got {value!r:.80}.")
    return value


def _coerce(what: str, kind: type[T], value: Any) -> T:
    """Return the value, or build it from a mapping of its fields."""
    if isinstance(value, kind):
        return value
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(value, Mapping) or set(value) - set(known):
        raise InvalidArgumentError(f"{what} must have only the fields {', '.join(known)}, got {value!r:.120}.")
    return kind(**value)


class AllBindings(Handle):
    """The bindings of all users. A user sees and changes their own in `user.memory`."""

    def __init__(self, runtime: Runtime, extraction: ExtractionService) -> None:
        self._runtime = runtime
        self._extraction = extraction

    async def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[Binding]:
        """List all bindings, or those of a tenant and an app, the oldest first."""
        return await self._runtime.store.bindings.list_bindings(None, tenant_id=tenant_id, app_id=app_id)

    async def get(self, id: str) -> Binding | None:
        """Return the binding with that id, or None."""
        return await self._runtime.store.bindings.get(None, id) if validation.is_valid_id(id) else None

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change a binding's policy, or pause it with `enabled=False`. Conversations closed before are still
        extracted."""
        return await self._extraction.update_binding(None, id, extraction_policy, enabled)

    async def delete(self, id: str) -> None:
        """Delete a binding. Its memories stay, and conversations closed before are still extracted."""
        await self._extraction.delete_binding(None, id)


class AppBindings:
    """The bindings of one tenant and app. Bindings of others are unknown here."""

    def __init__(self, bindings: AllBindings, tenant_id: str, app_id: str) -> None:
        self._bindings = bindings
        self._tenant_id = tenant_id
        self._app_id = app_id

    async def list(self) -> builtins.list[Binding]:
        """List the bindings of the app, the oldest first."""
        return await self._bindings.list(self._tenant_id, self._app_id)

    async def get(self, id: str) -> Binding | None:
        """Return the binding with that id, or None."""
        found = await self._bindings.get(id)
        app = self._tenant_id, self._app_id
        return found if found is not None and (found.tenant_id, found.app_id) == app else None

    async def update(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change a binding's policy, or pause it."""
        return await self._bindings.update(await self._require(id), extraction_policy, enabled)

    async def delete(self, id: str) -> None:
        """Delete a binding. Its memories stay."""
        await self._bindings.delete(await self._require(id))

    async def _require(self, id: str) -> str:
        if await self.get(id) is None:
            raise NotFoundError("binding", id)
        return id
