"""A payment that needs approval. A person decides in another process, perhaps a day later.

    python examples/approval.py [FILE]

The assistant may pay only with approval: its turn ends, and the pending call is stored in FILE (default: approval.db).
Then the program starts a second process, which finds the call, approves it with a lower amount and continues the turn.
A second decision is rejected. With a provider's key in the environment that provider answers; without one, a
scripted stand-in does.
"""

import asyncio
import subprocess
import sys

from example_helpers import run
from first_turn import choose_model
from tellback import ChatRequest, Tellback, message_text, tool
from tellback.errors import AlreadyDecidedError
from tellback.testing import Step, calls, says

PROMPT = "Please pay 500 euros to the plumber."


@tool(requires_approval=True)
def pay(to: str, amount: int) -> str:
    """Pay somebody an amount in euros."""
    return f"{amount} euros were paid to {to}."


def fallback_reply(request: ChatRequest) -> Step:
    """Call the tool, then report its result."""
    last = request.messages[-1]
    return says(message_text(last)) if last.role == "tool" else calls("pay", to="the plumber", amount=500)


async def ask(path: str) -> None:
    """Run the assistant's process, which ends while the call is pending."""
    async with Tellback(path, model=choose_model(fallback_reply)) as tb:
        reply = await tb.user("maya").chat(PROMPT, tools=[pay])
        print(f"> {PROMPT}")
        for call in reply.pending:
            print(f"[{call.name}{dict(call.input)} needs approval; turn status: {reply.status}]")


async def decide(path: str) -> None:
    """Run the process that decides. It needs the same tools, because an approved call runs here."""
    async with Tellback(path, model=choose_model(fallback_reply)) as tb:
        maya = tb.user("maya")
        for conversation in await maya.conversations.list(status="open"):
            for call in await maya.conversations.pending(conversation.id):
                print(f"[found: {call.name}{dict(call.input)}; approved with 450]")
                approved = {call.id: {"approved": True, "input": {**call.input, "amount": 450}}}
                print(await maya.chat(tools=[pay], approvals=approved, conversation_id=conversation.id))
                try:
                    await maya.chat(tools=[pay], approvals={call.id: True}, conversation_id=conversation.id)
                except AlreadyDecidedError:
                    print("[a second decision is rejected: the payment ran once]")
            await maya.conversations.close(conversation.id)


async def main(path: str) -> None:
    """Send the message here, and decide in another process."""
    await ask(path)
    other = await asyncio.to_thread(
        subprocess.run, [sys.executable, __file__, path, "decide"], capture_output=True, text=True, check=True
    )
    print(f"\nIn another process:\n{other.stdout}", end="")


if __name__ == "__main__":
    file = sys.argv[1] if len(sys.argv) > 1 else "approval.db"
    run(decide(file) if sys.argv[2:] == ["decide"] else main(file))
