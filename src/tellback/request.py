"""The request a tool serves: whose turn it is, for tools that must not take the model's word for it.

A turn binds it before the model is asked, and only code can bind it: nothing the model writes reaches it. It lives in a
context variable, so turns that run at the same time never see each other's.

>>> from tellback.types.conversations import Identity, Session
>>> with bind(Session("web-42"), Identity("maya"), {"plan": "pro"}):
...     session().id, sender().user_id, extras()["plan"]
('web-42', 'maya', 'pro')
>>> sender() is None
True
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tellback.types.conversations import Identity, Session

if TYPE_CHECKING:
    from tellback.types.memory import WorkingContext

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Request:
    """What is bound: session, sender and extras, where the turn is kept, once that is known, what it was reminded of,
    and the turn of the agent whose it is, for tools that take a `ToolContext`."""

    session: Session | None = None
    sender: Identity | None = None
    extras: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, hash=False)
    conversation_id: str | None = None
    message_id: str | None = None
    agent: Any = field(default=None, repr=False, compare=False)
    remembered: WorkingContext | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.extras) is not MappingProxyType:
            object.__setattr__(self, "extras", MappingProxyType(dict(self.extras)))


_UNBOUND = Request()
_current: ContextVar[Request] = ContextVar("tellback_request", default=_UNBOUND)


def session() -> Session | None:
    """The session of the turn that runs, or None outside of one."""
    return _current.get().session


def sender() -> Identity | None:
    """Who sent the message that is being answered, or None outside of a turn."""
    return _current.get().sender


def extras() -> Mapping[str, Any]:
    """What the application bound besides (`TurnInput.ctx_extras`); it cannot be changed. Empty outside of a turn."""
    return _current.get().extras


def remembered() -> WorkingContext | None:
    """What the turn that runs was reminded of, or None if nothing was looked for."""
    return _current.get().remembered


def current() -> Request:
    """All of it at once, with the ids of the conversation and of the user's message."""
    return _current.get()


class bind_request:  # noqa: N801
    """Bind a request that was made before."""

    __slots__ = ("_request", "_token")

    def __init__(self, request: Request) -> None:
        self._request = request

    def __enter__(self) -> None:
        self._token = _current.set(self._request)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


@contextmanager
def bind(
    session: Session | None = None,
    sender: Identity | None = None,
    extras: Mapping[str, Any] | None = None,
    *,
    conversation_id: str | None = None,
    message_id: str | None = None,
) -> Iterator[None]:
    """Bind a request for the block and the tasks started in it. Turns do it themselves; tests of tools need it."""
    with bind_request(Request(session, sender, extras or {}, conversation_id, message_id)):
        yield
