"""`tellback agents`: whether agents are written well, before anyone talks to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellback.cli.options import AsJson, command, examples
from tellback.cli.printing import console, plain, safe, say, show_json, show_pairs
from tellback.cli.running import told

if TYPE_CHECKING:
    from tellback.agent import Agent, State
    from tellback.agent_sources import Found
    from tellback.specs import AgentSpec

app = typer.Typer(
    no_args_is_help=True,
    help="Check agents: descriptions in JSON or YAML, and agents with routes.",
    epilog=examples("tellback agents check support.yaml"),
)


@app.callback()
def about() -> None:
    """Check agents: descriptions in JSON or YAML, and agents with routes."""


@command(
    app,
    "tellback agents check support.yaml",
    "tellback agents check agents/",
    "tellback agents check my_app.booking:agent --mermaid",
)
def check(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="FILE|FOLDER|MODULE:ATTRIBUTE", help="Where the agents are.", show_default=False),
    ],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print the routes as a Mermaid diagram.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say what is wrong with agents and where, or what they consist of; exits with 1 if something is wrong."""
    from tellback.agent_sources import agents_at
    from tellback.app import Tellback

    with told():
        # Never opened: it only is what functions in modules are called with.
        found = [each for source in sources for each in agents_at(source, Tellback(":memory:", worker=False))]
    if as_json:
        show_json([summary(each, mermaid=mermaid) for each in found])
    else:
        for each in found:
            _show(each, mermaid=mermaid)
    raise typer.Exit(1 if any(each.problem for each in found) else 0)


def _show(found: Found, *, mermaid: bool) -> None:
    if found.problem is not None:
        say(f"{found.where}: {found.problem}", style="red", stderr=True)
    elif mermaid:
        if found.agent is not None:
            console().out(safe(found.agent.to_mermaid()), highlight=False)
        else:
            say(f"{found.where}: {found.name} has no routes to draw.", stderr=True)
    elif found.spec is not None:
        show_pairs([("ok", f"{found.where}: {found.name}"), *_spec_pairs(found.spec)])
    elif found.agent is not None:
        show_pairs([("ok", f"{found.where}: {found.name}"), *_agent_pairs(found.agent)])


def _spec_pairs(spec: AgentSpec) -> list[tuple[str, str]]:
    return [
        ("", str(spec.description or "")),
        ("model", str(spec.model or "")),
        ("arguments", ", ".join(_parameters(spec))),
        *(("tool", f"{tool.name} ({tool.type})") for tool in spec.tools),
        ("needs", _needed(spec)),
    ]


def _needed(spec: AgentSpec) -> str:
    names = [tool.name for tool in spec.tools if tool.type == "FUNCTION"]
    return f"the functions {', '.join(names)}: rc.register_agent(spec, tools=…)" if names else ""


def _parameters(spec: AgentSpec) -> list[str]:
    from tellback.specs.parameters import parameters_in
    from tellback.specs.walking import tree_of

    return list(dict.fromkeys(parameter.name for _, parameter in parameters_in(tree_of(spec))))


def _agent_pairs(agent: Agent) -> list[tuple[str, str]]:
    pairs = [
        ("goal", agent.goal or ""),
        ("model", _model(agent)),
        ("tools", ", ".join(tool.name for tool in agent.tools)),
    ]
    for route in agent.routes:
        conditions = f" when {'; '.join(route.conditions)}" if route.conditions else ""
        pairs.append(("route", f"{route.title}{conditions}"))
        pairs += [("", f"  {_state(state)}") for state in route.states if state.kind != "start"]
    return pairs


def _state(state: State) -> str:
    gathers = f" (gathers {', '.join(state.gather)})" if state.gather else ""
    return f"{'run ' if state.kind == 'tool' else ''}{state.title}{gathers}"


def _model(agent: Agent) -> str:
    return str(getattr(agent.model, "model", agent.model) or "")


def summary(found: Found, *, mermaid: bool = False) -> dict[str, Any]:
    """What was found, as JSON has it."""
    told = {"where": found.where, "ok": found.problem is None, "problem": found.problem, "name": found.name or None}
    if found.spec is not None:
        tools = [{"name": tool.name, "type": tool.type} for tool in found.spec.tools]
        return {**told, "arguments": _parameters(found.spec), "tools": tools, "routes": []}
    if found.agent is None:
        return told
    routes = [
        {
            "id": route.id,
            "title": route.title,
            "conditions": plain(route.conditions),
            "states": [
                {
                    "id": state.id,
                    "kind": state.kind,
                    "title": state.title,
                    "gather": plain(state.gather),
                    "tool": None if state.tool is None else state.tool.name,
                }
                for state in route.states
            ],
        }
        for route in found.agent.routes
    ]
    drawn = {"mermaid": found.agent.to_mermaid()} if mermaid else {}
    return {**told, "tools": [{"name": tool.name} for tool in found.agent.tools], "routes": routes, **drawn}
