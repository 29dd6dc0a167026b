"""Canned responses: answers written beforehand, with places for what was gathered.

They are Mustache templates of plain text: "Your flight to {{destination}} leaves on {{departure}}."
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.agent.context import context_values
from tellback.errors import FlowError
from tellback.types.jsontext import dump_json

_VARIABLE = (False, True, False)
_SECTION = (True, False, True)
_PARTIAL = (True, False, False)


@dataclass(frozen=True, slots=True)
class CannedResponse:
    """An answer written beforehand; `condition` says in words when it fits.

    >>> CannedResponse("Welcome back, {{name}}!", condition="the user was here before").id is None
    True
    """

    text: str
    id: str | None = None
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class Missing:
    """A canned response cannot be said yet: these names have no value.

    >>> fill(CannedResponse("To {{destination}}!"), {}, None)
    Missing(names=('destination',))
    """

    names: tuple[str, ...]


def as_canned(given: Iterable[Any] | None, place: str) -> tuple[CannedResponse, ...]:
    """Canned responses from texts, mappings or such responses; `place` is named when one is wrong.

    >>> as_canned(["Hello!", {"text": "Hi {{name}}", "id": "hi"}], "agent 'Wanda'")[1].id
    'hi'
    """
    if given is None:
        return ()
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise FlowError(place, f"canned responses are a list, not {given!r:.80}: write canned_responses=[...].")
    return tuple(_canned(each, f"{place}, canned response {number}") for number, each in enumerate(given, 1))


def fill(response: CannedResponse, data: Mapping[str, Any], context: Any) -> str | Missing:
    """The response with its values: of the gathered data first, then of the context.

    A name whose value is None or not there is missing; a section without a value is left away. Only plain values are
    used, and none of them is read as a template.

    >>> response = CannedResponse("{{#flights}}{{no}} {{/flights}}for {{name}}")
    >>> fill(response, {"flights": [{"no": "TP1"}]}, {"name": "Maya"})
    'TP1 for Maya'
    """
    return _filled(response, _view(data, context))


def fillable(
    responses: Iterable[CannedResponse], data: Mapping[str, Any], context: Any
) -> tuple[list[tuple[CannedResponse, str]], tuple[str, ...]]:
    """The responses that can be said now, each with its text, and the names that the others miss.

    >>> fillable([CannedResponse("Hello!"), CannedResponse("To {{destination}}!")], {}, None)
    ([(CannedResponse(text='Hello!', id=None, condition=None), 'Hello!')], ('destination',))
    """
    view = _view(data, context)
    ready: list[tuple[CannedResponse, str]] = []
    missing: dict[str, None] = {}
    for response in responses:
        filled = _filled(response, view)
        if isinstance(filled, Missing):
            missing.update(dict.fromkeys(filled.names))
        elif filled.strip():  # when all its sections are empty there is nothing to say
            ready.append((response, filled))
    return ready, tuple(missing)


def _canned(given: Any, place: str) -> CannedResponse:
    if isinstance(given, str):
        given = CannedResponse(given)
    elif isinstance(given, Mapping):
        try:
            given = CannedResponse(**given)
        except TypeError as error:
            raise FlowError(place, f"a canned response has text, id and condition: {error}.") from error
    if not isinstance(given, CannedResponse):
        raise FlowError(place, f"a canned response is a text or a CannedResponse, not {given!r:.80}.")
    if not isinstance(given.text, str) or not given.text.strip():
        raise FlowError(place, f"its text is Mustache that is not empty, not {given.text!r:.80}.")
    for name, value in (("id", given.id), ("condition", given.condition)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise FlowError(place, f"its {name} is a text, not {value!r:.80}.")
    _check_template(given.text, place)
    return given


def _check_template(text: str, place: str) -> None:
    # Imported here: agents without canned responses do not need it.
    import mstache

    try:
        tokens = mstache.tokenize(text.encode())
    except (mstache.TokenException, UnicodeEncodeError) as error:
        raise FlowError(place, f"{text!r:.80} is not valid Mustache: {error}.") from error
    for *kind, name, _, _ in tokens:
        if tuple(kind) == _PARTIAL:
            raise FlowError(place, f"it has the partial {{{{> {name.decode()}}}}}, but there are none. Write it out.")
        if tuple(kind) in (_VARIABLE, _SECTION) and not name:
            raise FlowError(place, f"{text!r:.80} has a tag without a name.")


def _view(data: Mapping[str, Any], context: Any) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    # What was gathered may be models and dates of its schema, all of it said by the user: nothing there is secret.
    gathered = context_values(to_jsonable_python(dict(data), fallback=_nothing))
    return {**context_values(context), **{name: value for name, value in gathered.items() if value is not None}}


def _filled(response: CannedResponse, view: Mapping[str, Any]) -> str | Missing:
    import mstache

    missing: dict[str, None] = {}
    try:
        text: str = mstache.render(
            response.text,
            dict(view),
            getter=_getter(missing),
            stringify=_as_bytes,
            escape=_as_it_is,
            resolver=_nothing,
        )
    except (mstache.TokenException, UnicodeEncodeError) as error:
        raise FlowError(f"canned response {response.text!r:.80}", f"it is not valid Mustache: {error}.") from error
    return Missing(tuple(missing)) if missing else text


def _getter(missing: dict[str, None]) -> Callable[..., Any]:
    """Looks names up in values only, where mstache's own would reach attributes and call methods."""

    def look_up(scope: Any, scopes: Sequence[Any], key: Any, default: Any = None) -> Any:
        name = key.decode() if isinstance(key, bytes) else str(key)
        value = scope if name == "." else _found(name.split("."), (scope, *reversed(scopes)))
        if value is not None:
            return value
        if default is not None:  # mstache gives None for sections, and a mark of its own for variables
            missing[name] = None
        return default

    return look_up


def _found(path: Sequence[str], scopes: Iterable[Any]) -> Any:
    """The value of a dotted name; the innermost scope that has its first part decides."""
    first, *rest = path
    for scope in scopes:
        if isinstance(scope, Mapping) and first in scope:
            value = scope[first]
            for name in rest:
                value = _part(value, name)
            return value
    return None


def _part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
        return value[int(name)]
    return None


def _as_bytes(value: Any, text: bool) -> bytes:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        shown = ", ".join(_one(each) for each in value)
    else:
        shown = _one(value)
    return shown.encode(errors="replace")


def _one(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def _as_it_is(text: bytes) -> bytes:
    return text


def _nothing(given: Any) -> None:
    return None
