"""Book a flight: data in any order, a correction, and a question about the weather in between.

    python examples/flight_booking.py

With a provider's key in the environment that provider answers; without one, a rule-based stand-in does.
"""

from datetime import date

from pydantic import BaseModel, Field

from example_helpers import converse, run, with_available_model
from tellback import END_ROUTE, Agent, CompositionMode
from tellback.testing import FlowModel

ACCEPTS_OFFER = "the user takes a flight that was offered"


class Flight(BaseModel):
    """The data of a booking. The agent asks only for fields without a default."""

    destination: str
    departure: date
    passengers: int = Field(ge=1, le=9)
    flights: list[str] = []
    booking: str = ""


class Weather(BaseModel):
    """The city."""

    city: str


def search_flights(destination: str, departure: date, passengers: int) -> list[str]:
    """Find flights."""
    price = 120 + len(destination)
    return [f"TP1 to {destination} on {departure} at {price} euros", f"LH7 at {price + 40} euros"]


def book_flight(destination: str, passengers: int) -> str:
    """Book the first flight."""
    return f"{passengers} seats to {destination}, code R2D2"


def build() -> Agent:
    """Build the agent."""
    agent = Agent(
        name="Wanda",
        goal="Book flights",
        rules=["name the price before anything is booked"],
        composition_mode=CompositionMode.CANNED_FLUID,
        canned_responses=["I book flights and tell the weather. What can I do for you?"],
    )
    book = agent.create_route(
        title="Book a flight",
        conditions=["the user wants to fly"],
        gather_schema=Flight,
        canned_responses=["Booked: {{booking}}. Have a good flight!"],
    )
    offer = (
        book.initial_state.transition_to(
            chat_state="Ask where to", gather=["destination"], canned_responses=["Where would you like to go?"]
        )
        .transition_to(
            chat_state="Ask when and how many",
            gather=["departure", "passengers"],
            canned_responses=["When do you fly to {{destination}}, and how many are you?"],
        )
        .transition_to(tool_state=search_flights, save_as="flights")
        .transition_to(chat_state="Offer the flights found", canned_responses=["I found: {{flights}}. Shall I book?"])
    )
    # With repeat=False a correction after the booking books nothing until the user accepts the new offer.
    booked = offer.transition_to(tool_state=book_flight, condition=ACCEPTS_OFFER, save_as="booking", repeat=False)
    booked.transition_to(state=END_ROUTE)

    weather = agent.create_route(
        title="Tell the weather", conditions=["the user asks about the weather"], gather_schema=Weather
    )
    (
        weather.initial_state.transition_to(
            chat_state="Ask which city", gather=["city"], canned_responses=["In which city?"]
        ).transition_to(chat_state="Tell the weather", canned_responses=["In {{city}} it is 18 degrees and clear."])
    )
    return agent


def fallback_model() -> FlowModel:
    """A stand-in that reads the messages of this example."""
    return FlowModel(
        reads={"destination": r"\bto ([A-Z]\w+)", "city": r"\bin ([A-Z]\w+)"},
        holds={ACCEPTS_OFFER: ["take", "book it"]},
    )


async def main() -> None:
    """Play the conversation."""
    agent = with_available_model(build(), fallback_model())
    response = await converse(
        agent,
        [
            "I want to fly to Rome",
            "On 2026-12-01, we are 2",
            "No, to Oslo",
            "How is the weather in Oslo then?",
            "Fine. Back to the flight.",
            "I take the first one, book it",
        ],
    )
    print(f"\n{dict(response.session.extracted)}\n\n{agent.to_mermaid()}")


if __name__ == "__main__":
    run(main())
