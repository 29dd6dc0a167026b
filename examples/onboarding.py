"""Onboarding with branches: a personal or a business account, and a user who changes the choice.

    python examples/onboarding.py

With a provider's key in the environment that provider answers; without one, a rule-based stand-in does.
"""

from collections.abc import Mapping
from datetime import date
from typing import Any, Literal

from pydantic import BaseModel

from example_helpers import converse, run, with_available_model
from tellback import END_ROUTE, Agent, CompositionMode
from tellback.testing import FlowModel


class Account(BaseModel):
    """The data of an account. The phone number is optional and asked for once."""

    name: str
    kind: Literal["personal", "business"]
    company: str
    birthday: date
    phone: str | None = None


def create_account(name: str, kind: str, holder: str) -> str:
    """Open the account."""
    return f"{kind} account of {holder} opened for {name}"


def is_business(data: Mapping[str, Any]) -> bool:
    """Return whether the account is for a business, which decides the branch."""
    return bool(data["kind"] == "business")


def account_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool's arguments: only the fields of the current branch."""
    return {"name": data["name"], "kind": data["kind"], "holder": data["company" if is_business(data) else "name"]}


def build() -> Agent:
    """Build the agent."""
    agent = Agent(name="Otto", goal="Open accounts", composition_mode=CompositionMode.CANNED_FLUID)
    route = agent.create_route(
        title="Open an account", gather_schema=Account, canned_responses=["Welcome, {{name}}! All is set up."]
    )
    ask = route.initial_state.transition_to(
        chat_state="Ask for the name and the kind of account",
        gather=["name", "kind"],
        canned_responses=["Welcome! What is your name, and is it a personal or a business account?"],
    )
    company = ask.transition_to(
        chat_state="Ask for the company",
        condition=is_business,
        gather=["company"],
        canned_responses=["What is the company called?"],
    )
    birthday = ask.transition_to(
        chat_state="Ask for the birthday", gather=["birthday"], canned_responses=["When were you born, {{name}}?"]
    )
    phone = company.transition_to(
        chat_state="Ask for a phone number, which is optional",
        gather=["phone"],
        canned_responses=["A phone number, if you like?"],
    )
    birthday.transition_to(state=phone)
    created = phone.transition_to(tool_state=create_account, arguments=account_arguments)
    created.transition_to(
        chat_state="Show what was set up, and ask whether it is right",
        canned_responses=["Your {{kind}} account is ready. Is everything right?"],
    ).transition_to(state=END_ROUTE)
    return agent


def fallback_model() -> FlowModel:
    """A stand-in that reads the messages of this example."""
    return FlowModel(reads={"name": r"I'm (\w+)", "company": r"called (\w+)"})


async def main() -> None:
    """Play the conversation."""
    agent = with_available_model(build(), fallback_model())
    response = await converse(
        agent,
        [
            "Hello",
            "I'm Maya, for my business",
            "It is called Tascas",
            "No phone, thanks",
            "Wait, it should be personal",
            "2001-05-17",
            "Yes, thank you",
        ],
    )
    print(f"\n{dict(response.session.extracted)}")
    for tool_run in response.session.progress.runs.values():
        print(tool_run.content)


if __name__ == "__main__":
    run(main())
