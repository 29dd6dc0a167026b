"""The request of the current turn, for tools: session, sender and extras.

The turn engine binds it before it calls the model. The model cannot change it. A tool can therefore trust the user id
in it, but not a user id in its arguments, which the model writes. It is stored in a context variable, so concurrent
turns do not share it.

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
    """The bound values: session, sender, extras, the ids of the conversation and of the user's message, the recalled
    memories, and the agent's turn (for tools that take a `ToolContext`).

    >>> from tellback.types.conversations import Identity, Session
    >>> now = Request(Session("web-42"), Identity("maya"), {"plan": "pro"}, conversation_id="conv_1")
    >>> now.session.id, now.sender.user_id, now.extras["plan"], now.conversation_id
    ('web-42', 'maya', 'pro', 'conv_1')
    """

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
    """Return the session of the current turn, or None outside a turn.

    >>> from tellback.types.conversations import Session
    >>> def cart() -> str:
    ...     return f"The cart of {session().id} is empty."
    >>> with bind(Session("web-42")):
    ...     cart()
    'The cart of web-42 is empty.'
    """
    return _current.get().session


def sender() -> Identity | None:
    """Return the sender of the user's message, or None outside a turn.

    >>> from tellback.types.conversations import Identity
    >>> balances = {"maya": 12}
    >>> def balance() -> str:
    ...     return f"{balances[sender().user_id]} euros"
    >>> with bind(sender=Identity("maya")):
    ...     balance()
    '12 euros'
    """
    return _current.get().sender


def extras() -> Mapping[str, Any]:
    """Return the read-only extras that the application passed (`TurnInput.ctx_extras`). Empty outside a turn.

    >>> def delivery() -> str:
    ...     return "tomorrow" if extras().get("plan") == "pro" else "in three days"
    >>> delivery()
    'in three days'
    >>> with bind(extras={"plan": "pro"}):
    ...     delivery()
    'tomorrow'
    """
    return _current.get().extras


def remembered() -> WorkingContext | None:
    """Return the working context that was recalled for the current turn, or None without recall.

    >>> from tellback import Tellback
    >>> from tellback.testing import ScriptedModel, calls, says
    >>> def recalled() -> str:
    ...     return "; ".join(atom.text for atom in remembered().atoms_used)
    >>> with Tellback(":memory:", model=ScriptedModel([calls("recalled"), says("Bees.")])) as tb:
    ...     maya = tb.user("maya")
    ...     atom = maya.memory.add_atom(maya.memory.create_space("default").id, "Maya keeps bees.")
    ...     reply = maya.chat("What does Maya keep?", tools=[recalled])
    >>> reply.tool_invocations[0].content
    'Maya keeps bees.'
    """
    return _current.get().remembered


def current() -> Request:
    """Return the current request with all its fields.

    >>> from tellback.types.conversations import Session
    >>> with bind(Session("web-42"), conversation_id="conv_1", message_id="msg_1"):
    ...     now = current()
    >>> now.session.id, now.conversation_id, now.message_id
    ('web-42', 'conv_1', 'msg_1')
    """
    return _current.get()


class bind_request:  # noqa: N801
    """Bind an existing `Request` for a `with` block.

    >>> from tellback.types.conversations import Identity
    >>> with bind_request(Request(sender=Identity("maya"), conversation_id="conv_1")):
    ...     current().conversation_id
    'conv_1'
    """

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
    """Bind a request for the block and for tasks started in it. The turn engine does this. Use it in tests of tools.

    >>> from tellback.types.conversations import Identity
    >>> with bind(sender=Identity("maya"), extras={"plan": "pro"}):
    ...     sender().user_id, extras()["plan"]
    ('maya', 'pro')
    """
    with bind_request(Request(session, sender, extras or {}, conversation_id, message_id)):
        yield
