"""A payment that waits for a person, who decides in another process, perhaps tomorrow.

    python examples/approval.py [FILE]

The assistant may pay, but not by itself: its turn ends, and the call waits in FILE (default: approval.db here). Then
this program starts itself again as the desk of the one who decides, which finds the call, lowers the amount and lets
the turn go on. A second decision comes too late. With a provider's key in the environment that provider answers;
without one, a small stand-in does.
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
    """Pay what is asked for, and tell what came of it."""
    last = request.messages[-1]
    return says(message_text(last)) if last.role == "tool" else calls("pay", to="the plumber", amount=500)


async def ask(path: str) -> None:
    """The assistant's process: it ends while the call waits."""
    async with Tellback(path, model=choose_model(fallback_reply)) as tb:
        reply = await tb.user("maya").chat(PROMPT, tools=[pay])
        print(f"> {PROMPT}")
        for call in reply.pending:
            print(f"[{call.name}{dict(call.input)} waits for a person; the turn is over: {reply.status}]")


async def decide(path: str) -> None:
    """The process of the one who decides. It needs the same tools: what is approved is run here."""
    async with Tellback(path, model=choose_model(fallback_reply)) as tb:
        maya = tb.user("maya")
        for conversation in await maya.conversations.list(status="open"):
            for call in await maya.conversations.pending(conversation.id):
                print(f"[found: {call.name}{dict(call.input)}; approved, but for 450]")
                approved = {call.id: {"approved": True, "input": {**call.input, "amount": 450}}}
                print(await maya.chat(tools=[pay], approvals=approved, conversation_id=conversation.id))
                try:
                    await maya.chat(tools=[pay], approvals={call.id: True}, conversation_id=conversation.id)
                except AlreadyDecidedError:
                    print("[a second decision comes too late: it has not been paid twice]")
            await maya.conversations.close(conversation.id)


async def main(path: str) -> None:
    """Ask here, and decide in another process."""
    await ask(path)
    other = await asyncio.to_thread(
        subprocess.run, [sys.executable, __file__, path, "decide"], capture_output=True, text=True, check=True
    )
    print(f"\nIn another process:\n{other.stdout}", end="")


if __name__ == "__main__":
    file = sys.argv[1] if len(sys.argv) > 1 else "approval.db"
    run(decide(file) if sys.argv[2:] == ["decide"] else main(file))
