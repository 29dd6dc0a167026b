"""The page Routes: diagrams of the served agents' routes and the state of the user's session."""

from __future__ import annotations

from nicegui import ui

from tellback.agent import Agent
from tellback.agent.sessions.session import SessionState
from tellback.chat_backends import RouteBackend
from tellback.console import widgets
from tellback.console.context import PageContext
from tellback.console.explanation import show_gathered, show_state
from tellback.console.layout import console_page
from tellback.console.widgets import code_block, text_label

_MERMAID_CONFIG = {
    "securityLevel": "strict",
    "theme": "neutral",
    "flowchart": {"useMaxWidth": False, "rankSpacing": 28, "padding": 10, "wrappingWidth": 280},
    "fontFamily": "system-ui, sans-serif",
    "startOnLoad": False,
}

AGENT_EXAMPLE = """\
# desk.py
from pydantic import BaseModel
from tellback import Agent

class Trip(BaseModel):
    destination: str

agent = Agent(name="Wanda", goal="Book trips", model="gpt-5")
book = agent.create_route(title="Book a trip", conditions=["the user wants to travel"], gather_schema=Trip)
book.initial_state.transition_to(chat_state="Ask where to", gather=["destination"])
"""


@console_page("/routes", "Routes")
async def routes_page(ctx: PageContext) -> None:
    """Show the routes of one served agent."""
    if not ctx.agents:
        _show_empty()
        return
    requested = ctx.query.get("agent")
    names = list(ctx.agents)
    name = requested if requested is not None and requested in ctx.agents else names[0]
    if len(names) > 1:
        with widgets.box("line"):
            widgets.select_field(
                names, "Agent", name, on_change=lambda event: ui.navigate.to(ctx.link("/routes", agent=event.value))
            ).classes("some")
    served_agent = ctx.served_agent(name)
    backend = RouteBackend(served_agent)
    await backend.find_conversation()
    _show_agent(ctx, served_agent.agent, await backend.load_session())


def _show_agent(ctx: PageContext, agent: Agent, session: SessionState | None) -> None:
    with widgets.box("line"):
        widgets.heading(agent.name).classes("wide")
        with widgets.box("actions"):
            widgets.link_button("Try it", "chat", ctx.link("/", agent=agent.name))
    for text in filter(None, (agent.description, agent.goal and f"Goal: {agent.goal}")):
        text_label(text)
    _show_session(session, agent)
    if not agent.routes:
        widgets.muted("This agent has no routes.")
        return
    for route in agent.routes:
        is_current = session is not None and session.current_route is not None and session.current_route.id == route.id
        state = session.current_state.id if is_current and session is not None and session.current_state else None
        with widgets.box("card", tag="section") as card:
            card.props["aria-label"] = f"Route {route.title}"
            with widgets.box("line"):
                text_label(route.title).classes("strong")
                if is_current:
                    widgets.chip("current", "good")
                elif session is not None and session.has_completed(route.id):
                    widgets.chip("completed")
                elif session is not None and route.id in session.paused_routes:
                    widgets.chip("paused", "wait")
            if route.conditions:
                widgets.muted("When " + "; ".join(map(str, route.conditions)))
            with widgets.box("scroll", "graph").props("tabindex=0 role=img") as diagram:
                diagram.props["aria-label"] = f"Diagram of the route {route.title}; the text version is below"
                ui.mermaid(route.to_mermaid(state), config=_MERMAID_CONFIG)
            with ui.expansion("As text").classes("full").props("dense dense-toggle header-class='quiet q-px-none'"):
                code_block(route.describe())


def _show_session(session: SessionState | None, agent: Agent) -> None:
    if session is None:
        widgets.muted("No session yet. Send a message to this agent. This page then highlights the current state.")
        return
    with widgets.box("card", "stack", "tight", tag="section").props('aria-label="Your session"'):
        with widgets.box("line"):
            widgets.muted("Your session")
            show_state(session, agent)
        if session.extracted:
            show_gathered(session)
        else:
            widgets.muted("No data gathered yet.")


def _show_empty() -> None:
    hint = (
        "Agents with routes follow a conversation step by step and gather the data they need. Write an"
        " agent and start the server with it. This page then shows its routes and the current state of your session."
    )
    with widgets.empty_state("account_tree", "This server has no agents with routes.", hint):
        code_block(AGENT_EXAMPLE).style("text-align: left")
        code_block("tellback serve --agents desk:agent").style("text-align: left")
