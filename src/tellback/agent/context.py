"""The context of a turn: values that the application passes to an agent and its tools, and the part a model may see."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import math
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from tellback.agent.sessions.session import SessionState
from tellback.errors import InvalidArgumentError
from tellback.tools.dispatch import call_function

MAX_DEPTH = 20
"""The nesting depth up to which values are shown; deeper values are omitted."""

_OMITTED: Any = object()


async def resolve_context(source: Any, session: SessionState, override: Mapping[str, Any] | None = None) -> Any:
    """Resolve the context of one turn: the source, updated with the values that tools stored in the session, and then
    with `override`.

    `source` is a mapping, a dataclass, a pydantic model, any other object, None, or a function that returns one of
    these and accepts no argument or the session. A turn works on a copy, so the source stays unchanged. An object of
    another type is not copied, and cannot be overridden.
    """
    if override is not None and not isinstance(override, Mapping):
        raise InvalidArgumentError(f"context_override must be a mapping of names to values, got {override!r:.80}.")
    value = await _call_context_function(source, session) if _is_function(source) else source
    if inspect.isclass(value):
        raise InvalidArgumentError(
            f"context must not be a class: pass an instance of {value.__name__}, or a function that returns one."
        )
    session_values, override_values = _copy_containers(session.context), _copy_containers(override or {})
    if value is None or isinstance(value, Mapping):
        return {**_copy_containers(value or {}), **session_values, **override_values}
    has_field = _field_predicate(value)
    if has_field is None:
        if override_values:
            raise InvalidArgumentError(
                f"a context of type {type(value).__name__} cannot be overridden: use a mapping, a dataclass or a"
                " pydantic model."
            )
        return value
    unknown = [name for name in override_values if not has_field(name)]
    if unknown:
        raise InvalidArgumentError(
            f"the context {type(value).__name__} has no {', '.join(map(repr, unknown))}: override only its fields."
        )
    return _replace_fields(
        value, {**{name: each for name, each in session_values.items() if has_field(name)}, **override_values}
    )


def update_context(context: Any, changes: Mapping[str, Any]) -> Any:
    """Return the context with changed values; a dataclass or model ignores names that it does not have."""
    if not changes:
        return context
    if isinstance(context, Mapping):
        return {**context, **changes}
    has_field = _field_predicate(context)
    if has_field is None:
        return context
    return _replace_fields(context, {name: value for name, value in changes.items() if has_field(name)})


def context_values(context: Any) -> dict[str, Any]:
    """Return the plain values of a context, which a model may see and templates may use, as JSON values.

    Names that begin with `_` are omitted, and so are clients, functions, secrets and all other objects, and fields
    hidden by `repr=False` or `exclude=True`. An object that is not a mapping, a dataclass or a pydantic model has no
    visible values.
    """
    if not isinstance(context, Mapping):
        context = dict(_visible_fields(context))
    values: dict[str, Any] = _to_plain(context, 0)
    return values


def split_context(source: Any, session: SessionState, context: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the plain values of a turn's context: those of the agent and the session, which usually stay the same, and
    those of this turn, which a function, a hook or an override returned.
    """
    values = context_values(context)
    if not values:
        return {}, {}
    lasting = {**({} if _is_function(source) else context_values(source)), **context_values(session.context)}
    is_lasting = {name: name in lasting and lasting[name] == value for name, value in values.items()}
    return (
        {name: value for name, value in values.items() if is_lasting[name]},
        {name: value for name, value in values.items() if not is_lasting[name]},
    )


def _is_function(value: Any) -> bool:
    return inspect.isroutine(value) or isinstance(value, functools.partial)


async def _call_context_function(fn: Any, session: SessionState) -> Any:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # some C functions have no signature
        parameters = []
    required = [each for each in parameters if each.default is each.empty and each.kind not in _VARIADIC]
    # A parameter with a default, as in `lambda db=db: ...`, gets no argument, unless its name is `session`.
    accepted = required or [each for each in parameters if each.name == "session" and each.kind not in _VARIADIC]
    if len(accepted) > 1:
        raise InvalidArgumentError(
            f"the context function {fn!r:.80} requires {', '.join(each.name for each in accepted)}, but it is called"
            " with no argument or with the session only."
        )
    if not accepted:
        return await call_function(fn)
    if accepted[0].kind is inspect.Parameter.POSITIONAL_ONLY:
        return await call_function(fn, session)
    return await call_function(fn, **{accepted[0].name: session})


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _copy_containers(value: Any) -> Any:
    """Copy containers, so that a tool that changes a list changes it only for this turn. Other values are shared."""
    if isinstance(value, Mapping):
        return {name: _copy_containers(each) for name, each in value.items()}
    if type(value) in (list, set, tuple):
        return type(value)(map(_copy_containers, value))
    return value


def _field_predicate(value: Any) -> Any:
    """Return a function that tells if a dataclass or pydantic model has a field, or None for other objects."""
    if dataclasses.is_dataclass(value):
        return {each.name for each in dataclasses.fields(value) if each.init}.__contains__
    if _is_pydantic_model(value):
        if value.model_config.get("extra") == "allow":
            return lambda name: not name.startswith("_")
        return type(value).model_fields.__contains__
    return None


def _is_pydantic_model(value: Any) -> bool:
    return hasattr(type(value), "model_fields") and hasattr(type(value), "model_copy")


def _replace_fields(value: Any, changes: Mapping[str, Any]) -> Any:
    if _is_pydantic_model(value):
        return value.model_copy(update=dict(changes))
    return dataclasses.replace(value, **changes) if changes else copy.copy(value)


def _visible_fields(context: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isclass(context):
        return
    if dataclasses.is_dataclass(context):
        for field in dataclasses.fields(context):
            if field.repr:
                yield field.name, getattr(context, field.name)
    elif _is_pydantic_model(context):
        hidden = {name for name, field in type(context).model_fields.items() if not field.repr or field.exclude}
        yield from ((name, value) for name, value in context if name not in hidden)


def _to_plain(value: Any, depth: int) -> Any:
    if isinstance(value, Enum):
        return _to_plain(value.value, depth)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _OMITTED
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if depth < MAX_DEPTH:
        if isinstance(value, Mapping):
            return _to_plain_mapping(value, depth + 1)
        if isinstance(value, set | frozenset):
            # Sorted, so that equal prompts are identical in every process and can be cached.
            value = sorted(value, key=repr)
        if isinstance(value, list | tuple):
            items = (_to_plain(each, depth + 1) for each in value)
            return [plain for plain in items if plain is not _OMITTED]
    return _OMITTED


def _to_plain_mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, each in value.items():
        name = _to_plain(key, MAX_DEPTH)
        plain = _to_plain(each, depth)
        if name is None or name is _OMITTED or plain is _OMITTED or str(name).startswith("_"):
            continue
        result[str(name)] = plain
    return result
