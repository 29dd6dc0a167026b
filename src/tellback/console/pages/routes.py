"""Routes: what an agent's conversations look like, and where the user's stands."""

from __future__ import annotations

from nicegui import ui

from tellback.agent import Agent
from tellback.agent.session import SessionState
from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.parts import block, words
from tellback.console.seat import Seat
from tellback.console.standing import gathered
from tellback.console.talks import AgentTalk

_CONFIG = {
    "securityLevel": "strict",
    "theme": "neutral",
    "flowchart": {"useMaxWidth": False},
    "fontFamily": "system-ui, sans-serif",
    "startOnLoad": False,
}

EXAMPLE = """\
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
async def routes(seat: Seat) -> None:
    """The routes of the agents that are served."""
    if not seat.agents:
        _nothing()
        return
    asked = seat.query.get("agent")
    names = list(seat.agents)
    name = asked if asked is not None and asked in seat.agents else names[0]
    if len(names) > 1:
        with widgets.box("line"):
            ui.select(
                names,
                label="Agent",
                value=name,
                on_change=lambda event: ui.navigate.to(seat.link("/routes", agent=event.value)),
            ).props("outlined dense options-dense").classes("some")
    served = seat.served(name)
    session = (await AgentTalk(served).earlier()).session
    _agent(seat, served.agent, session)


def _agent(seat: Seat, agent: Agent, session: SessionState | None) -> None:
    with widgets.box("line"):
        widgets.title(agent.name).classes("wide")
        with widgets.box("actions"):
            widgets.link_button("Talk to it", "chat", seat.link("/", agent=agent.name))
    for text in filter(None, (agent.description, agent.goal and f"Goal: {agent.goal}")):
        words(text)
    _stands(session)
    if not agent.routes:
        widgets.quiet("It has no routes: it only talks.")
        return
    for route in agent.routes:
        is_here = session is not None and session.current_route is not None and session.current_route.id == route.id
        state = session.current_state.id if is_here and session is not None and session.current_state else None
        with widgets.box("card", tag="section") as card:
            card.props["aria-label"] = f"Route {route.title}"
            with widgets.box("line"):
                words(route.title).classes("strong")
                if is_here:
                    widgets.chip("here now", "good")
                elif session is not None and session.has_completed(route.id):
                    widgets.chip("completed")
                elif session is not None and route.id in session.left:
                    widgets.chip("left, to be taken up again", "wait")
            if route.conditions:
                widgets.quiet("When " + "; ".join(map(str, route.conditions)))
            with widgets.box("scroll", "graph").props("tabindex=0 role=img") as drawn:
                drawn.props["aria-label"] = f"Diagram of the route {route.title}: its words are below"
                ui.mermaid(route.to_mermaid(state), config=_CONFIG)
            with ui.expansion("In words").classes("full").props("dense dense-toggle header-class='quiet q-px-none'"):
                block(route.describe())


def _stands(session: SessionState | None) -> None:
    if session is None:
        widgets.quiet("You have no session with it: say something to it, and its state is lit here.")
        return
    with widgets.box("card", "stack", "tight", tag="section").props('aria-label="Where your session stands"'):
        route, state = session.current_route, session.current_state
        with widgets.box("line"):
            widgets.quiet("Your session")
            widgets.chip(route.title if route is not None else "in no route", "good" if route is not None else "")
            if state is not None:
                widgets.quiet(state.description or state.id)
        if session.extracted:
            gathered(session)
        else:
            widgets.quiet("Nothing is gathered yet.")


def _nothing() -> None:
    how = (
        "Agents with routes follow a conversation step by step and gather what they need. Write one, and serve it: its"
        " routes are drawn here, with the state of your session lit."
    )
    with widgets.empty("account_tree", "No agent with routes is served.", how):
        block(EXAMPLE).style("text-align: left")
        block("tellback serve --agents desk:agent").style("text-align: left")
