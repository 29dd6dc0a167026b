"""Support with refunds: small ones are paid immediately, larger ones need approval.

    python examples/support_refunds.py

With a provider's key in the environment that provider answers; without one, a rule-based stand-in does.
"""

import logging

from pydantic import BaseModel

from example_helpers import converse, run, show, with_available_model
from tellback import END_ROUTE, Agent, CompositionMode, tool
from tellback.errors import ToolError
from tellback.testing import FlowModel

ORDERS = {"A-100": 12, "A-200": 480}


class Refund(BaseModel):
    """The data of a refund."""

    order: str
    reason: str
    amount: int = 0


def look_up(order: str) -> int:
    """Return the price of an order, in euros."""
    if order not in ORDERS:
        raise ToolError(f"there is no order {order}")
    return ORDERS[order]


def pay_back(order: str, amount: int) -> str:
    """Refund a small amount."""
    return f"{amount} euros paid back for {order}"


@tool(requires_approval=True)
def pay_back_much(order: str, amount: int, reason: str) -> str:
    """Refund any amount, with approval."""
    return f"{amount} euros paid back for {order}"


def build() -> Agent:
    """Build the agent."""
    agent = Agent(
        name="Rita",
        goal="Help with orders",
        prohibitions=["promise a refund before it is approved"],
        composition_mode=CompositionMode.CANNED_FLUID,
    )
    refund = agent.create_route(
        title="Refund an order",
        conditions=["the user wants money back"],
        gather_schema=Refund,
        canned_responses=["Your refund of {{amount}} euros is on its way."],
    )
    amount = refund.initial_state.transition_to(
        chat_state="Ask for the order and what was wrong",
        gather=["order", "reason"],
        canned_responses=["Which order is it, and what was wrong?"],
    ).transition_to(
        tool_state=look_up, save_as="amount", canned_responses=["I cannot find {{order}}. What is the order's number?"]
    )
    small = amount.transition_to(tool_state=pay_back, condition=lambda data: data["amount"] <= 20, repeat=False)
    small.transition_to(state=END_ROUTE)
    large = amount.transition_to(
        tool_state=pay_back_much,
        repeat=False,
        canned_responses=["A colleague has to agree to {{amount}} euros. I'll be back."],
    )
    large.transition_to(state=END_ROUTE)
    denied = large.transition_to(
        chat_state="Say kindly that the refund was denied, and why",
        on_error=True,
        canned_responses=["I am sorry: the refund for {{order}} was denied."],
    )
    denied.transition_to(state=END_ROUTE)
    return agent


def fallback_model() -> FlowModel:
    """A stand-in that reads the messages of this example."""
    return FlowModel(reads={"order": r"\b(A-\d+)", "reason": r"\b(broken|too late)\b"})


async def main() -> None:
    """Play the conversations of three customers."""
    logging.getLogger("tellback.tools").setLevel(logging.ERROR)  # this example expects a missing order
    agent = with_available_model(build(), fallback_model())
    await converse(agent, ["I want my money back", "Order A-100 came broken"])

    print("\nAnother customer:")
    response = await converse(agent, ["A refund for A-999, it was broken", "Sorry, it is A-200", "Any news?"])
    for call in response.pending:
        print(f"  [a person approves {call.name}{dict(call.input)}]")
    # This can happen hours later, in another process: the session contains the pending call.
    show(await agent.respond(session=response.session, approvals={call.id: True for call in response.pending}))

    print("\nA third customer:")
    response = await converse(agent, ["A refund for A-200, it came too late"])
    denial = {"approved": False, "reason": "it came in time"}
    show(await agent.respond(session=response.session, approvals={call.id: denial for call in response.pending}))


if __name__ == "__main__":
    run(main())
