"""Calling the functions an application gives: sync or async, never blocking the event loop, and in time."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from tellback.errors import ConfigurationError, NotFoundError, SkillError
from tellback.tools.threads import run_in_thread

T = TypeVar("T")


async def call_function(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The function's result; a sync one runs in a thread, with the caller's context variables."""
    if _is_async_callable(fn):
        return await fn(*args, **kwargs)
    value = await run_in_thread(fn, *args, **kwargs)
    return await value if inspect.isawaitable(value) else value


async def await_resolver(work: Awaitable[T], source: str, seconds: float | None) -> T:
    """What a resolver's function gives. That it fails, or is not done in time, is a `SkillError` that names it."""
    try:
        async with asyncio.timeout(seconds) as deadline:
            return await work
    except (ConfigurationError, NotFoundError, SkillError):
        raise
    except Exception as error:  # an application's function may raise anything
        if isinstance(error, TimeoutError) and deadline.expired():
            problem = f"it did not answer within {seconds:g} seconds."
        else:
            problem = f"it failed: {type(error).__name__}: {error}"
        raise SkillError(source, problem) from error


def bind_context(fn: Callable[..., Any], ctx: Mapping[str, Any], skill_name: str) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments for a body function, taken from the context by name.

    A parameter called `ctx` gets all of it, and `**kwargs` all that no other parameter took. What a partial has bound
    stays as it is.
    """
    parameters = _read_parameters(fn, skill_name)
    bound_keywords = fn.keywords if isinstance(fn, functools.partial) else {}
    available = {key: value for key, value in ctx.items() if key not in bound_keywords}
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    missing: list[str] = []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update({key: value for key, value in available.items() if key not in parameters})
        elif name != "ctx" and name not in available and parameter.default is parameter.empty:
            missing.append(name)
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(dict(ctx) if name == "ctx" else available.get(name, parameter.default))
        elif name == "ctx" and name not in bound_keywords:
            kwargs[name] = dict(ctx)
        elif name in available:
            kwargs[name] = available[name]
    if missing:
        names = ", ".join(missing)
        raise SkillError(skill_name, f"its body needs {names} in the context. Call apply_skill with them in ctx.")
    return args, kwargs


def _read_parameters(fn: Callable[..., Any], skill_name: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise SkillError(skill_name, f"the signature of {fn!r:.80} cannot be read: {error}.") from error


def _is_async_callable(fn: Any) -> bool:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn))  # noqa: B004
