"""The `tellback agents` command: check agent specs and agents with routes, and draw their routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import JsonOption
from tellback.cli.output import create_console, escape_controls, print_json, print_line, print_pairs, to_json_value
from tellback.cli.runner import command_group, register_command, report_errors

if TYPE_CHECKING:
    from tellback.agent import Agent, State
    from tellback.agent_sources import AgentCandidate
    from tellback.specs import AgentSpec

agents_app = command_group(
    "Check agents: JSON or YAML files, and agents with routes in Python.", "tellback agents check support.yaml"
)


@agents_app.callback()
def agents_group() -> None:
    """Check agents: JSON or YAML files, and agents with routes in Python."""


@register_command(
    agents_app,
    "tellback agents check support.yaml",
    "tellback agents check agents/",
    "tellback agents check my_app.booking:agent --mermaid",
)
def check(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE|FOLDER|MODULE:ATTRIBUTE", help="Agents to check.", show_default=False),
    ],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the routes as a Mermaid flowchart.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate agents and print a summary of each. Exits with 1 if an agent is invalid.

    Each argument is a JSON or YAML file, a folder with such files, or an agent in a Python module (module:attribute).
    """
    from tellback.agent_sources import find_agents
    from tellback.app import Tellback

    with report_errors():
        # This Tellback is never opened: it is only the argument of factory functions in modules.
        found = [each for source in sources for each in find_agents(source, Tellback(":memory:", worker=False))]
    if as_json:
        print_json([_agent_to_json(each, mermaid=mermaid) for each in found])
    else:
        for each in found:
            _print_agent(each, mermaid=mermaid)
    raise typer.Exit(1 if any(each.problem for each in found) else 0)


def _print_agent(found: AgentCandidate, *, mermaid: bool) -> None:
    if found.problem is not None:
        print_line(f"{found.source}: {found.problem}", style="red", stderr=True)
    elif mermaid:
        if found.agent is not None:
            create_console().out(escape_controls(found.agent.to_mermaid()), highlight=False)
        else:
            print_line(f"{found.source}: {found.name} has no routes to draw.", stderr=True)
    elif found.spec is not None:
        print_pairs([("ok", f"{found.source}: {found.name}"), *_spec_pairs(found.spec)])
    elif found.agent is not None:
        print_pairs([("ok", f"{found.source}: {found.name}"), *_agent_pairs(found.agent)])


def _spec_pairs(spec: AgentSpec) -> list[tuple[str, str]]:
    functions = ", ".join(tool.name for tool in spec.tools if tool.type == "FUNCTION")
    return [
        ("", str(spec.description or "")),
        ("model", str(spec.model or "")),
        ("arguments", ", ".join(_parameter_names(spec))),
        *(("tool", f"{tool.name} ({tool.type})") for tool in spec.tools),
        ("requires", f"the functions {functions}: tb.register_agent(spec, tools=…)" if functions else ""),
    ]


def _parameter_names(spec: AgentSpec) -> list[str]:
    from tellback.specs.model import find_parameters, spec_to_tree

    return list(dict.fromkeys(parameter.name for _, parameter in find_parameters(spec_to_tree(spec))))


def _agent_pairs(agent: Agent) -> list[tuple[str, str]]:
    pairs = [
        ("goal", agent.goal or ""),
        ("model", str(getattr(agent.model, "model", agent.model) or "")),
        ("tools", ", ".join(tool.name for tool in agent.tools)),
    ]
    for route in agent.routes:
        conditions = f" when {'; '.join(route.conditions)}" if route.conditions else ""
        pairs.append(("route", f"{route.title}{conditions}"))
        pairs += [("", f"  {_format_state(state)}") for state in route.states if state.kind != "start"]
    return pairs


def _format_state(state: State) -> str:
    gathers = f" (gathers {', '.join(state.gather)})" if state.gather else ""
    return f"{'run ' if state.kind == 'tool' else ''}{state.title}{gathers}"


def _agent_to_json(found: AgentCandidate, *, mermaid: bool = False) -> dict[str, Any]:
    base = {"where": found.source, "ok": found.problem is None, "problem": found.problem, "name": found.name or None}
    if found.spec is not None:
        tools = [{"name": tool.name, "type": tool.type} for tool in found.spec.tools]
        return {**base, "arguments": _parameter_names(found.spec), "tools": tools, "routes": []}
    if found.agent is None:
        return base
    routes = [
        {
            "id": route.id,
            "title": route.title,
            "conditions": to_json_value(route.conditions),
            "states": [
                {
                    "id": state.id,
                    "kind": state.kind,
                    "title": state.title,
                    "gather": to_json_value(state.gather),
                    "tool": None if state.tool is None else state.tool.name,
                }
                for state in route.states
            ],
        }
        for route in found.agent.routes
    ]
    diagram = {"mermaid": found.agent.to_mermaid()} if mermaid else {}
    return {**base, "tools": [{"name": tool.name} for tool in found.agent.tools], "routes": routes, **diagram}
