"""Store an agent's session in a file, and continue it in the next run of the program.

    python examples/sessions.py [FILE]

The data is stored in FILE (default: sessions.db). Each run sends one message; the third run begins a new order. With a
provider's key in the environment that provider answers; without one, a rule-based stand-in does.
"""

import sys
from datetime import date

from pydantic import BaseModel, Field

from example_helpers import run, show, with_available_model
from tellback import END_ROUTE, Agent, CompositionMode, Identity, Persistence, SessionState
from tellback.agent import session_data_to_state
from tellback.sessions import SqliteAdapter
from tellback.testing import FlowModel
from tellback.types.conversations import SessionData

MESSAGES = ("I want to send a parcel to Lisbon", "3 kilos, and it can be fetched on 2026-12-01")


class Parcel(BaseModel):
    """The data of a parcel; the tool sets the label."""

    city: str
    kilos: int = Field(ge=1, le=30)
    day: date
    label: str = ""


def print_label(city: str, kilos: int, day: date) -> str:
    """Create the label of a parcel."""
    return f"{city[:3].upper()}-{kilos:02}-{day:%m%d}"


def build(persistence: Persistence) -> Agent:
    """Build the agent."""
    agent = Agent(
        name="Paula", goal="Send parcels", persistence=persistence, composition_mode=CompositionMode.CANNED_FLUID
    )
    send = agent.create_route(title="Send a parcel", gather_schema=Parcel)
    (
        send.initial_state.transition_to(
            chat_state="Ask where to", gather=["city"], canned_responses=["Where shall it go?"]
        )
        .transition_to(
            chat_state="Ask how heavy it is, and when it can be fetched",
            gather=["kilos", "day"],
            canned_responses=["To {{city}}: how heavy is it, and when can it be fetched?"],
        )
        .transition_to(tool_state=print_label, save_as="label", repeat=False)
        .transition_to(
            chat_state="Tell the label", canned_responses=["Please write {{label}} on it. It is fetched on {{day}}."]
        )
        .transition_to(state=END_ROUTE)
    )
    return agent


async def open_session(persistence: Persistence) -> tuple[SessionState, int]:
    """Return the active session with its number of turns, or a new one."""
    active = await persistence.find_active_session(agent_name="Paula")
    if active is None:
        _, state = await persistence.create_session_with_state(agent_name="Paula", initial_data={"channel": "shell"})
        return state, 0
    return session_data_to_state(active.id, active), active.version


async def print_stored(persistence: Persistence, row: SessionData | None) -> None:
    """Print the stored session as another process reads it."""
    assert row is not None
    gathered = row.collected_data["extracted"]
    print(f"[stored: version {row.version}, {row.status}, {row.message_count} messages, gathered {gathered}]")
    for message in await persistence.get_session_messages(row.id):
        tool_text = "".join(f" [ran {call['tool_name']}]" for call in message.tool_calls)
        print(f"  {message.position} {message.role}: {message.content}{tool_text}")


async def main(path: str) -> None:
    """Send the next message."""
    async with Persistence(SqliteAdapter(path), user_id="maya") as persistence:
        agent = with_available_model(
            build(persistence), FlowModel(reads={"city": r"to ([A-Z]\w+)", "kilos": r"(\d+) kilos"})
        )
        session, turn_count = await open_session(persistence)
        print(f"[{session.id} in {path}: {turn_count} turns so far]")
        text = MESSAGES[min(turn_count, len(MESSAGES) - 1)]
        print(f"> {text}")
        response = await agent.respond(text, session, sender=Identity("maya"))
        show(response)
        if response.session.extracted.get("label"):
            await persistence.complete_session(session.id)
        await print_stored(persistence, await persistence.get_session(session.id))


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "sessions.db"))
