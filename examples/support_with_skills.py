"""A support agent with skills: instructions in folders, which the model reads when it needs them.

    python examples/support_with_skills.py

The skills are in examples/skills, in the open Agent Skills format. Edit a SKILL.md to change what the agent does. Only
their names and descriptions are in every prompt. With a provider's key in the environment that provider answers;
without one, a scripted stand-in does, which follows the skills.
"""

from pathlib import Path

from example_helpers import run
from first_turn import choose_model
from tellback import ChatOptions, ChatRequest, load_skills, message_text, run_loop, tool
from tellback.testing import Step, calls, says

SKILLS = Path(__file__).parent / "skills"
ORDERS = {"A-100": 30, "A-200": 480}
QUESTIONS = ("I want my money back for A-100.", "And for A-200, please.")


@tool
def look_up(order: str) -> str:
    """Return the price of an order."""
    return f"{order} cost {ORDERS[order]} euros" if order in ORDERS else f"there is no order {order}"


@tool
def pay_back(order: str) -> str:
    """Refund an order."""
    return f"{ORDERS[order]} euros for {order} are on their way"


def fallback_reply(request: ChatRequest) -> Step:
    """Read the instructions, look up the order, and follow them."""
    last = request.messages[-1]
    question = next(message_text(message) for message in reversed(request.messages) if message.role == "user")
    order = "A-100" if "A-100" in question else "A-200"
    if last.role == "user":
        return calls("read_skill", name="refunds")
    if last.name == "read_skill":
        return calls("look_up", order=order)
    if last.name == "look_up" and ORDERS[order] <= 50 and "Up to 50 euros" in str(request.messages):
        return calls("pay_back", order=order)
    if last.name == "pay_back":
        return says(f"{message_text(last)}, and arrive within three days.")
    return says(f"For {order} a colleague decides until tomorrow, and writes to you.")


async def main() -> None:
    """Answer two customers."""
    skills = load_skills(SKILLS)
    print(f"[skills: {', '.join(skill.name for skill in skills)}]")
    opts = ChatOptions(
        model=choose_model(fallback_reply), system="You are the support desk.", tools=[look_up, pay_back], skills=skills
    )
    for question in QUESTIONS:
        result = await run_loop(opts, question)
        tool_names = [call.name for step in result.steps for call in step.reply.tool_calls]
        print(f"> {question}\n{result}\n  [{', '.join(tool_names)}]")


if __name__ == "__main__":
    run(main())
