"""Routes to look at: in words, and as Mermaid diagrams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tellback.agent.canned import CannedResponse
    from tellback.agent.route import Route
    from tellback.agent.session import SessionState
    from tellback.agent.state import State, Transition

_MARKUP = re.compile(r"^(\d*)([-+_~.)])")
"""What may begin a list or a line in Markdown, which newer versions of Mermaid read in labels."""
LIT = "classDef current fill:#ffd54f,stroke:#6d4c41,stroke-width:3px,color:#000"


def described(route: Route) -> str:
    """A route in words."""
    lines = [f"Route: {route.title} ({route.id})"]
    if route.description:
        lines.append(f"  {route.description}")
    for what, texts in (
        ("When", route.conditions),
        ("Must", route.rules),
        ("Must never", route.prohibitions),
        ("Domains", route.domains or ()),
        ("Guidelines", [_guideline(each) for each in route.guidelines]),
        ("Known from the start", [f"{name}={value!r}" for name, value in route.initial_data.items()]),
        ("Canned", [_canned(each) for each in route.canned_responses]),
    ):
        if texts:
            lines.append(f"  {what}: {'; '.join(texts)}")
    if route.gathering.fields:
        fields = [f"{field.name}{'' if field.needed else ' (optional)'}" for field in route.gathering.fields.values()]
        lines.append(f"  Gathers: {', '.join(fields)}")
    lines.append("States:")
    for state in route.states:
        lines += _state_lines(state)
    return "\n".join(lines)


def _state_lines(state: State) -> Iterable[str]:
    what = {"start": "start", "tool": f"run {state.tool.name if state.tool else ''}"}.get(state.kind, state.title)
    yield f"  - {what} ({state.id})"
    for label, names in (("gathers", state.gather), ("needs", state.required_data)):
        if names:
            yield f"      {label}: {', '.join(names)}"
    if state.save_as:
        yield f"      saves: {state.save_as}"
    yield from (f"      {line}" for line in _tool_lines(state))
    if state.skip_if is not None:
        yield "      skipped by code"
    for response in state.canned_responses:
        yield f"      canned: {_canned(response)}"
    for guideline in state.guidelines:
        yield f"      guideline: {_guideline(guideline)}"
    for way in state.transitions:
        label = _label(way)
        forgets = f" (forgets {', '.join(way.forgets)})" if way.forgets else ""
        yield f"      → {_target(way)}{f' when {label}' if label else ''}{forgets}"


def _tool_lines(state: State) -> Iterable[str]:
    if isinstance(state.arguments, Mapping):
        yield f"arguments: {', '.join(f'{name}={field}' for name, field in state.arguments.items())}"
    elif state.arguments is not None:
        yield f"arguments by code ({_named(state.arguments)})"
    if state.tool is not None and state.tool.requires_approval:
        yield "needs approval"
    if not state.repeat:
        yield "runs once"


def _canned(response: CannedResponse) -> str:
    text = f'"{" ".join(response.text.split())}"'
    return f"when {response.condition}: {text}" if response.condition else text


def _guideline(guideline: Any) -> str:
    return f"when {guideline.condition}: {guideline.action}" if guideline.condition else guideline.action


def _target(way: Transition) -> str:
    end = way.end_if_made()
    return "END_ROUTE" if getattr(end, "id", None) == "END_ROUTE" else getattr(end, "title", str(way.target))


def _label(way: Transition) -> str:
    said = way.condition if isinstance(way.condition, str) else f"code says so ({_named(way.condition)})"
    if not way.on_error:
        return "" if way.condition is None else said
    return "it fails" if way.condition is None else f"it fails, and {said}"


def _named(question: Any) -> str:
    name = getattr(question, "__name__", type(question).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def route_mermaid(route: Route, current_state: str | None = None) -> str:
    """A route as a Mermaid flowchart."""
    lines = ["flowchart TD", *_nodes(route, "s", "  ")]
    lit = [f"s{number}" for number, state in enumerate(route.states) if state.id == current_state]
    return "\n".join([*lines, *_lit(lit)])


def agent_mermaid(agent: Any, session: SessionState | None = None) -> str:
    """All routes of an agent, each in a box of its own."""
    lines = ["flowchart TD"]
    lit = []
    here = None if session is None or session.current_state is None else session.current_state.id
    route_id = None if session is None or session.current_route is None else session.current_route.id
    for index, route in enumerate(agent.routes):
        lines.append(f'  subgraph r{index}["{_escaped(route.title)}"]')
        lines += _nodes(route, f"r{index}s", "    ")
        lines.append("  end")
        if route.id == route_id:
            lit += [f"r{index}s{n}" for n, state in enumerate(route.states) if state.id == here]
    return "\n".join([*lines, *_lit(lit)])


def _nodes(route: Route, prefix: str, indent: str) -> list[str]:
    numbers = {state.id: f"{prefix}{number}" for number, state in enumerate(route.states)}
    lines = [f"{indent}{numbers[state.id]}{_shape(state)}" for state in route.states]
    ends = False
    for state in route.states:
        for way in state.transitions:
            end = way.end_if_made()
            if end is None:
                continue
            ends = ends or end.id == "END_ROUTE"
            label = _label(way)
            arrow = f'-->|"{_escaped(label)}"|' if label else "-->"
            lines.append(f"{indent}{numbers[state.id]} {arrow} {numbers.get(end.id, f'{prefix}End')}")
    if ends:
        lines.append(f'{indent}{prefix}End((("end")))')
    return lines


def _shape(state: State) -> str:
    if state.kind == "start":
        return "((start))"
    text = _escaped(state.title)
    if state.gather:
        text += f"<br/><i>{_escaped(', '.join(state.gather))}</i>"
    return f'[["{text}"]]' if state.kind == "tool" else f'["{text}"]'


def _escaped(text: str) -> str:
    """A text as Mermaid shows it: what could end a label, or begin markup or a directive, is written as an entity."""
    marks = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "#": "#35;", "*": "#42;", "%": "#37;"}
    shown = " ".join("".join(marks.get(letter, letter) for letter in text).split())
    return _MARKUP.sub(lambda found: f"{found[1]}#{ord(found[2])};", shown)


def _lit(nodes: list[str]) -> list[str]:
    return [f"  {LIT}", f"  class {','.join(nodes)} current"] if nodes else []
