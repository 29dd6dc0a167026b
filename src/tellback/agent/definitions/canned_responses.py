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
    """A prewritten answer; `condition` describes in words when to use it.

    >>> CannedResponse("Welcome back, {{name}}!", condition="the user was here before").id is None
    True
    """

    text: str
    id: str | None = None
    condition: str | None = None


def parse_canned_responses(responses: Iterable[Any] | None, place: str) -> tuple[CannedResponse, ...]:
    """Parse strings, mappings and `CannedResponse` objects; errors contain `place`."""
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
    """Fill the template from the gathered data, then from the context; also return the names that have no value.

    A name is missing when its value is None or absent; a section without a value is omitted. Only plain values are
    used, and a value is never rendered as a template.

    >>> response = CannedResponse("{{#flights}}{{no}} {{/flights}}for {{name}}")
    >>> fill_canned_response(response, {"flights": [{"no": "TP1"}]}, {"name": "Maya"})
    ('TP1 for Maya', ())
    """
    return _render_template(response, _template_values(data, context))


def fill_canned_responses(
    responses: Iterable[CannedResponse], data: Mapping[str, Any], context: Any
) -> tuple[list[tuple[CannedResponse, str]], tuple[str, ...]]:
    """Return the responses whose values are all known, each with its text, and the missing names of the others."""
    values = _template_values(data, context)
    ready: list[tuple[CannedResponse, str]] = []
    missing: dict[str, None] = {}
    for response in responses:
        text, missing_names = _render_template(response, values)
        missing.update(dict.fromkeys(missing_names))
        if text.strip() and not missing_names:  # all sections may be empty
            ready.append((response, text))
    return ready, tuple(missing)


def _parse_canned_response(response: Any, place: str) -> CannedResponse:
    if isinstance(response, str):
        response = CannedResponse(response)
    elif isinstance(response, Mapping):
        try:
            response = CannedResponse(**response)
        except TypeError as error:
            raise FlowError(place, f"a canned response accepts text, id and condition: {error}.") from error
    if not isinstance(response, CannedResponse):
        raise FlowError(place, f"a canned response must be a string or a CannedResponse, got {response!r:.80}.")
    if not isinstance(response.text, str) or not response.text.strip():
        raise FlowError(place, f"text must be a non-empty Mustache template, got {response.text!r:.80}.")
    for name, value in (("id", response.id), ("condition", response.condition)):
        if value is not None and (not isinstance(value, str) or not value.strip()):
            raise FlowError(place, f"{name} must be a non-empty string, got {value!r:.80}.")
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
            raise FlowError(place, f"partials are not supported: write out {{{{> {name.decode()}}}}}.")
        if tuple(kind) in (_VARIABLE, _SECTION) and not name:
            raise FlowError(place, f"{text!r:.80} contains a tag without a name.")


def _template_values(data: Mapping[str, Any], context: Any) -> dict[str, Any]:
    from pydantic_core import to_jsonable_python

    # Gathered values may be models and dates. None of them is hidden, because they come from this conversation.
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
    """Return a lookup in the values only; mstache's own lookup would also read attributes and call methods."""

    def look_up(scope: Any, scopes: Sequence[Any], key: Any, default: Any = None) -> Any:
        name = key.decode() if isinstance(key, bytes) else str(key)
        value = scope if name == "." else _resolve_name(name.split("."), (scope, *reversed(scopes)))
        if value is not None:
            return value
        if default is not None:  # mstache passes None for sections, and its own marker for variables
            missing[name] = None
        return default

    return look_up


def _resolve_name(path: Sequence[str], scopes: Iterable[Any]) -> Any:
    """Return the value of a dotted name from the innermost scope that contains its first part."""
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
