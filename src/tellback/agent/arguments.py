"""What an agent is made of, checked when it is made: a mistake is found before anyone talks to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback.agent.values import CompositionMode
from tellback.errors import InvalidArgumentError


def validate_text(name: str, value: Any) -> str:
    """A text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{name} is a text, not {value!r:.80}.")
    return value


def validate_optional_text(name: str, value: Any) -> str | None:
    """A text or nothing."""
    return None if value is None else validate_text(name, value)


def validate_list(name: str, value: Any) -> Sequence[Any]:
    """A list; one thing alone is most likely a list that was forgotten."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InvalidArgumentError(f"{name} is a list, not {value!r:.80}: write {name}=[...].")
    return tuple(value)


def validate_texts(name: str, value: Any) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(validate_text(f"each of {name}", each) for each in validate_list(name, value))


def validate_mapping(name: str, value: Any) -> Mapping[str, Any]:
    """A mapping, empty if there is none."""
    if not isinstance(value, Mapping | None):
        raise InvalidArgumentError(f"{name} is a mapping, not {value!r:.80}.")
    return value or {}


def build_instance(name: str, kind: type[Any], value: Any) -> Any:
    """A value of that type, or made of its fields."""
    if value is None or isinstance(value, Mapping):
        try:
            return kind(**(value or {}))
        except TypeError as error:
            raise InvalidArgumentError(f"that makes no {name}: {error}.") from error
    if not isinstance(value, kind):
        raise InvalidArgumentError(f"{name} is a {kind.__name__}, not {value!r:.80}.")
    return value


def validate_callable(name: str, value: Any) -> Any:
    """A function or nothing."""
    if value is not None and not callable(value):
        raise InvalidArgumentError(f"{name} is a function, not {value!r:.80}.")
    return value


def validate_model(name: str, value: Any) -> Any:
    """A model's name, a model, or nothing."""
    if value is not None and (isinstance(value, type) or not (isinstance(value, str) or hasattr(value, "complete"))):
        raise InvalidArgumentError(f"{name} is a name or a model object, not {value!r:.80}.")
    return value


def resolve_session_store(value: Any) -> Any:
    """Something that keeps sessions, or nothing; also an adapter, or the arguments of a `Persistence`."""
    if isinstance(value, Mapping) or hasattr(value, "session_repository"):
        from tellback.agent.persistence import Persistence

        return build_instance("persistence", Persistence, value if isinstance(value, Mapping) else {"adapter": value})
    missing = [name for name in ("load", "save", "history") if not callable(getattr(value, name, None))]
    if value is not None and missing:
        raise InvalidArgumentError(
            f"persistence keeps sessions, such as Persistence(InMemoryAdapter()); {value!r:.80} has no"
            f" {', '.join(missing)}."
        )
    return value


def parse_composition_mode(value: Any) -> CompositionMode:
    """One of the four modes."""
    try:
        return CompositionMode(value)
    except ValueError:
        known = ", ".join(mode.value for mode in CompositionMode)
        raise InvalidArgumentError(f"composition_mode is one of {known}, not {value!r:.80}.") from None
