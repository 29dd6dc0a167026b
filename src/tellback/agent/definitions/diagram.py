"""Descriptions of routes as text and as Mermaid diagrams."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tellback.agent.definitions.canned_responses import CannedResponse
    from tellback.agent.definitions.route import Route
    from tellback.agent.definitions.state import State, Transition
    from tellback.agent.sessions.session import SessionState

_MARKDOWN_MARKER = re.compile(r"^(\d*)([-+_~.)])")
"""Characters that begin a list or a line in Markdown, which newer versions of Mermaid parse in labels."""
_ENTITIES = str.maketrans(
    {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "#": "#35;", "*": "#42;", "%": "#37;"}
)
CURRENT_STATE_STYLE = "classDef current fill:#ffd54f,stroke:#6d4c41,stroke-width:3px,color:#000"


def describe_route(route: Route) -> str:
    """Describe a route as indented text."""
    lines = [f"Route: {route.title} ({route.id})"]
    if route.description:
        lines.append(f"  {route.description}")
    for heading, texts in (
        ("When", route.conditions),
        ("Must", route.rules),
        ("Must never", route.prohibitions),
        ("Domains", route.domains or ()),
        ("Guidelines", [_format_guideline(each) for each in route.guidelines]),
        ("Initial data", [f"{name}={value!r}" for name, value in route.initial_data.items()]),
        ("Canned", [_format_canned_response(each) for each in route.canned_responses]),
    ):
        if texts:
            lines.append(f"  {heading}: {'; '.join(texts)}")
    if route.schema.fields:
        fields = [f"{field.name}{'' if field.required else ' (optional)'}" for field in route.schema.fields.values()]
        lines.append(f"  Gathers: {', '.join(fields)}")
    lines.append("States:")
    for state in route.states:
        lines += _describe_state(state)
    return "\n".join(lines)


def _describe_state(state: State) -> Iterable[str]:
    title = {"start": "start", "tool": f"run {state.tool.name if state.tool else ''}"}.get(state.kind, state.title)
    yield f"  - {title} ({state.id})"
    for label, names in (("gathers", state.gather), ("needs", state.required_data)):
        if names:
            yield f"      {label}: {', '.join(names)}"
    if state.save_as:
        yield f"      saves: {state.save_as}"
    yield from (f"      {line}" for line in _describe_tool(state))
    if state.skip_if is not None:
        yield "      has skip_if"
    for response in state.canned_responses:
        yield f"      canned: {_format_canned_response(response)}"
    for guideline in state.guidelines:
        yield f"      guideline: {_format_guideline(guideline)}"
    for transition in state.transitions:
        label = _transition_label(transition)
        forgets = f" (forgets {', '.join(transition.forgets)})" if transition.forgets else ""
        yield f"      → {transition.target_title}{f' when {label}' if label else ''}{forgets}"


def _describe_tool(state: State) -> Iterable[str]:
    if isinstance(state.arguments, Mapping):
        yield f"arguments: {', '.join(f'{name}={field}' for name, field in state.arguments.items())}"
    elif state.arguments is not None:
        yield f"arguments: {_function_name(state.arguments)}()"
    if state.tool is not None and state.tool.requires_approval:
        yield "needs approval"
    if not state.repeat:
        yield "runs once"


def _format_canned_response(response: CannedResponse) -> str:
    text = f'"{" ".join(response.text.split())}"'
    return f"when {response.condition}: {text}" if response.condition else text


def _format_guideline(guideline: Any) -> str:
    return f"when {guideline.condition}: {guideline.action}" if guideline.condition else guideline.action


def _transition_label(transition: Transition) -> str:
    condition = transition.condition
    if condition is not None and not isinstance(condition, str):
        condition = f"{_function_name(condition)}() is true"
    if not transition.on_error:
        return condition or ""
    return f"the tool fails, and {condition}" if condition else "the tool fails"


def _function_name(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def route_to_mermaid(route: Route, current_state: str | None = None) -> str:
    """Return a route as a Mermaid flowchart."""
    lines = ["flowchart TD", *_render_nodes(route, "s", "  ")]
    highlighted = [f"s{number}" for number, state in enumerate(route.states) if state.id == current_state]
    return "\n".join([*lines, *_render_highlight(highlighted)])


def agent_to_mermaid(agent: Any, session: SessionState | None = None) -> str:
    """Return a flowchart of all routes of an agent, with one subgraph per route."""
    lines = ["flowchart TD"]
    highlighted = []
    state_id = None if session is None or session.current_state is None else session.current_state.id
    route_id = None if session is None or session.current_route is None else session.current_route.id
    for index, route in enumerate(agent.routes):
        lines.append(f'  subgraph r{index}["{_escape_label(route.title)}"]')
        lines += _render_nodes(route, f"r{index}s", "    ")
        lines.append("  end")
        if route.id == route_id:
            highlighted += [f"r{index}s{n}" for n, state in enumerate(route.states) if state.id == state_id]
    return "\n".join([*lines, *_render_highlight(highlighted)])


def _render_nodes(route: Route, prefix: str, indent: str) -> list[str]:
    node_ids = {state.id: f"{prefix}{number}" for number, state in enumerate(route.states)}
    lines = [f"{indent}{node_ids[state.id]}{_render_shape(state)}" for state in route.states]
    has_end = False
    for state in route.states:
        for transition in state.transitions:
            target = transition.find_target()
            if target is None:
                continue
            has_end = has_end or target.id == "END_ROUTE"
            label = _transition_label(transition)
            arrow = f'-->|"{_escape_label(label)}"|' if label else "-->"
            lines.append(f"{indent}{node_ids[state.id]} {arrow} {node_ids.get(target.id, f'{prefix}End')}")
    if has_end:
        lines.append(f'{indent}{prefix}End((("end")))')
    return lines


def _render_shape(state: State) -> str:
    if state.kind == "start":
        return "((start))"
    text = _escape_label(state.title)
    if state.gather:
        text += f"<br/><i>{_escape_label(', '.join(state.gather))}</i>"
    return f'[["{text}"]]' if state.kind == "tool" else f'["{text}"]'


def _escape_label(text: str) -> str:
    """Escape a label for Mermaid: characters that could end it, or begin markup or a directive, become entities."""
    escaped = " ".join(text.translate(_ENTITIES).split())
    return _MARKDOWN_MARKER.sub(lambda found: f"{found[1]}#{ord(found[2])};", escaped)


def _render_highlight(nodes: list[str]) -> list[str]:
    return [f"  {CURRENT_STATE_STYLE}", f"  class {','.join(nodes)} current"] if nodes else []
