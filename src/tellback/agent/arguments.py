"""What an agent is made of, checked when it is made: a mistake is found before anyone talks to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.agent.values import CompositionMode
from tellback.errors import InvalidArgumentError


def text(what: str, given: Any) -> str:
    """A text that is not empty."""
    if not isinstance(given, str) or not given.strip():
        raise InvalidArgumentError(f"{what} is a text, not {given!r:.80}.")
    return given


def optional_text(what: str, given: Any) -> str | None:
    """A text or nothing."""
    return None if given is None else text(what, given)


def listed(what: str, given: Any) -> Sequence[Any]:
    """A list; one thing alone is most likely a list that was forgotten."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidArgumentError(f"{what} is a list, not {given!r:.80}: write {what}=[...].")
    return tuple(given)


def texts(what: str, given: Any) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text(f"each of {what}", each) for each in listed(what, given))


def mapping(what: str, given: Any) -> Mapping[str, Any]:
    """A mapping, empty if there is none."""
    if not isinstance(given, Mapping | None):
        raise InvalidArgumentError(f"{what} is a mapping, not {given!r:.80}.")
    return given or {}


def instance(what: str, kind: type[Any], given: Any) -> Any:
    """A value of that type, or made of its fields."""
    if given is None or isinstance(given, Mapping):
        try:
            return kind(**(given or {}))
        except TypeError as error:
            raise InvalidArgumentError(f"that makes no {what}: {error}.") from error
    if not isinstance(given, kind):
        raise InvalidArgumentError(f"{what} is a {kind.__name__}, not {given!r:.80}.")
    return given


def function(what: str, given: Any) -> Any:
    """A function or nothing."""
    if given is not None and not callable(given):
        raise InvalidArgumentError(f"{what} is a function, not {given!r:.80}.")
    return given


def model(what: str, given: Any) -> Any:
    """A model's name, a model, or nothing."""
    if given is not None and (isinstance(given, type) or not (isinstance(given, str) or hasattr(given, "complete"))):
        raise InvalidArgumentError(f"{what} is a name or a model object, not {given!r:.80}.")
    return given


def session_store(given: Any) -> Any:
    """Something that keeps sessions, or nothing; also an adapter, or the arguments of a `Persistence`."""
    if isinstance(given, Mapping) or hasattr(given, "session_repository"):
        from tellback.agent.persistence import Persistence

        return instance("persistence", Persistence, given if isinstance(given, Mapping) else {"adapter": given})
    missing = [name for name in ("load", "save", "history") if not callable(getattr(given, name, None))]
    if given is not None and missing:
        raise InvalidArgumentError(
            f"persistence keeps sessions, such as Persistence(InMemoryAdapter()); {given!r:.80} has no"
            f" {', '.join(missing)}."
        )
    return given


def composition_mode(given: Any) -> CompositionMode:
    """One of the four modes."""
    try:
        return CompositionMode(given)
    except ValueError:
        known = ", ".join(mode.value for mode in CompositionMode)
        raise InvalidArgumentError(f"composition_mode is one of {known}, not {given!r:.80}.") from None
