"""Canned responses: Mustache templates that are filled with gathered data and context values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellback.agent.context import context_values
from tellback.errors import FlowError, InvalidArgumentError
from tellback.types.jsontext import dump_json
from tellback.validation import validate_list

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


def parse_canned_responses(responses: Iterable[Any] | None, place: str) -> tuple[CannedResponse, ...]:
    """Canned responses from texts, mappings or such responses; `place` is named when one is wrong."""
    try:
        listed = () if responses is None else validate_list("canned_responses", responses)
    except InvalidArgumentError as error:
        raise FlowError(place, str(error)) from None
    return tuple(
        _parse_canned_response(each, f"{place}, canned response {number}") for number, each in enumerate(listed, 1)
    )


def fill_canned_response(
    response: CannedResponse, data: Mapping[str, Any], context: Any
) -> tuple[str, tuple[str, ...]]:
    """The response with its values, of the gathered data first, then of the context; and the names that it misses.

    A name whose value is None or not there is missing; a section without a value is left away. Only plain values are
    used, and none of them is read as a template.

    >>> response = CannedResponse("{{#flights}}{{no}} {{/flights}}for {{name}}")
    >>> fill_canned_response(response, {"flights": [{"no": "TP1"}]}, {"name": "Maya"})
    ('TP1 for Maya', ())
    """
    return _render_template(response, _template_values(data, context))


def fill_canned_responses(
    responses: Iterable[CannedResponse], data: Mapping[str, Any], context: Any
) -> tuple[list[tuple[CannedResponse, str]], tuple[str, ...]]:
    """The responses that can be said now, each with its text, and the names that the others miss."""
    values = _template_values(data, context)
    ready: list[tuple[CannedResponse, str]] = []
    missing: dict[str, None] = {}
    for response in responses:
        text, missing_names = _render_template(response, values)
        missing.update(dict.fromkeys(missing_names))
        if text.strip() and not missing_names:  # when all its sections are empty there is nothing to say
            ready.append((response, text))
    return ready, tuple(missing)


def _parse_canned_response(response: Any, place: str) -> CannedResponse:
    if isinstance(response, str):
        response = CannedResponse(response)
    elif isinstance(response, Mapping):
        try:
            response = CannedResponse(**response)
        except TypeError as error:
            raise FlowError(place, f"a canned response has text, id and condition: {error}.") from error
    if not isinstance(response, CannedResponse):
        raise FlowError(place, f"a canned response is a text or a CannedResponse, not {response!r:.80}.")
    if not isinstance(response.text, str) or not response.text.strip():
        raise FlowError(place, f"its text is Mustache that is not empty, not {response.text!r:.80}.")
    for name, value in (("id", response.id), ("condition", response.condition)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise FlowError(place, f"its {name} is a text, not {value!r:.80}.")
    _check_template(response.text, place)
    return response


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


def _template_values(data: Mapping[str, Any], context: Any) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    # What was gathered may be models and dates of its schema, all of it said by the user: nothing there is secret.
    gathered = context_values(to_jsonable_python(dict(data), fallback=_return_none))
    return {**context_values(context), **{name: value for name, value in gathered.items() if value is not None}}


def _render_template(response: CannedResponse, values: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    import mstache

    missing: dict[str, None] = {}
    try:
        text: str = mstache.render(
            response.text,
            dict(values),
            getter=_build_getter(missing),
            stringify=_to_bytes,
            escape=lambda rendered: rendered,
            resolver=_return_none,
        )
    except (mstache.TokenException, UnicodeEncodeError) as error:
        raise FlowError(f"canned response {response.text!r:.80}", f"it is not valid Mustache: {error}.") from error
    return text, tuple(missing)


def _build_getter(missing: dict[str, None]) -> Callable[..., Any]:
    """Looks names up in values only, where mstache's own would reach attributes and call methods."""

    def look_up(scope: Any, scopes: Sequence[Any], key: Any, default: Any = None) -> Any:
        name = key.decode() if isinstance(key, bytes) else str(key)
        value = scope if name == "." else _resolve_name(name.split("."), (scope, *reversed(scopes)))
        if value is not None:
            return value
        if default is not None:  # mstache gives None for sections, and a mark of its own for variables
            missing[name] = None
        return default

    return look_up


def _resolve_name(path: Sequence[str], scopes: Iterable[Any]) -> Any:
    """The value of a dotted name; the innermost scope that has its first part decides."""
    first, *rest = path
    for scope in scopes:
        if isinstance(scope, Mapping) and first in scope:
            value = scope[first]
            for name in rest:
                value = _get_part(value, name)
            return value
    return None


def _get_part(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
        return value[int(name)]
    return None


def _to_bytes(value: Any, text: bool) -> bytes:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        rendered = ", ".join(_format_value(each) for each in value)
    else:
        rendered = _format_value(value)
    return rendered.encode(errors="replace")


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else dump_json(value)


def _return_none(value: Any) -> None:
    return None
