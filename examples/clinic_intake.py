"""Intake at a clinic, with an agent that sends only prepared sentences.

    python examples/clinic_intake.py

With a provider's key in the environment that provider reads the messages; without one, a rule-based stand-in does.
The replies are the same.
"""

from datetime import date

from pydantic import BaseModel, Field

from example_helpers import converse, run, with_available_model
from tellback import END_ROUTE, Agent, CannedResponse, CompositionMode
from tellback.testing import FlowModel

AFRAID = "the patient is afraid"


class Intake(BaseModel):
    """The data that the doctor needs."""

    name: str
    birthday: date
    complaint: str
    pain: int = Field(ge=0, le=10, description="How strong the pain is, from 0 to 10")


def build() -> Agent:
    """Build the agent."""
    agent = Agent(
        name="Clara",
        goal="Prepare the visit",
        composition_mode=CompositionMode.CANNED_STRICT,
        canned_responses=["I can only note what your doctor needs. Shall we continue?"],
    )
    intake = agent.create_route(
        title="Intake",
        conditions=["the patient comes for an appointment"],
        gather_schema=Intake,
        canned_responses=["Thank you, {{name}}. The doctor will call you."],
    )
    (
        intake.initial_state.transition_to(
            chat_state="Ask for name and birthday",
            gather=["name", "birthday"],
            canned_responses=["Good morning. Please tell me your name and your date of birth, as 1990-12-31."],
        )
        .transition_to(
            chat_state="Ask what is wrong",
            gather=["complaint"],
            canned_responses=[
                "What brings you here, {{name}}?",
                CannedResponse("You are in good hands, {{name}}. What brings you here?", condition=AFRAID),
            ],
        )
        .transition_to(
            chat_state="Ask how strong the pain is",
            gather=["pain"],
            canned_responses=["How strong is the pain, from 0 (none) to 10?"],
        )
        .transition_to(
            chat_state="Read back what was noted",
            canned_responses=["I noted: {{complaint}}, pain {{pain}} of 10. Is that right?"],
        )
        .transition_to(state=END_ROUTE)
    )
    emergency = agent.create_route(title="Emergency", conditions=["the patient describes an emergency"])
    emergency.initial_state.transition_to(
        chat_state="Send them to the emergency room",
        canned_responses=["Please go to the emergency room at once, or call 112. This chat is not watched."],
    )
    return agent


def fallback_model() -> FlowModel:
    """A stand-in that reads the messages of this example."""
    return FlowModel(
        reads={"name": r"I'm (\w+ \w+)", "complaint": r"(?:It's|It is) (my \w+)"},
        routes={"Intake": ["appointment"], "Emergency": ["chest", "breathe"]},
        holds={AFRAID: ["nervous", "afraid"]},
    )


async def main() -> None:
    """Play the conversations of two patients."""
    agent = with_available_model(build(), fallback_model())
    await converse(
        agent,
        [
            "I have an appointment",
            "I'm Maya Lima, 1990-02-30",
            "Sorry, 1990-02-28. All this makes me nervous",
            "It's my knee",
            "12",
            "7",
            "Yes",
        ],
    )
    print("\nAnother patient:")
    await converse(agent, ["I have an appointment", "I'm Omar Said, 1961-07-01. I can hardly breathe"])


if __name__ == "__main__":
    run(main())
