"""A conversation that is kept: run it twice, and the second run goes on where the first one stopped.

    python examples/stored_conversation.py [FILE]

Everything said is in FILE (default: tellback.db here). With a provider's key in the environment that provider answers;
without one, a small stand-in does, which can at least say what it finds in the log.
"""

import asyncio
import sys

from first_turn import choose_model, weather
from tellback import ChatRequest, Conversation, Tellback, TellbackError, TextDelta, message_text
from tellback.testing import FunctionModel, Step, calls, says
from tellback.user import User

QUESTIONS = ("I'm Maya, and I fly to Lisbon tomorrow.", "Do I need a coat there?")


def fallback_reply(request: ChatRequest) -> Step:
    """Look up the weather when asked for it, and quote the log otherwise."""
    last = request.messages[-1]
    if last.role == "tool":
        return says(f"No, it is {last.content}.")
    if "coat" in message_text(last) and request.tools:
        return calls("weather", city="Lisbon")
    user_texts = [message_text(message) for message in request.messages if message.role == "user"]
    return says(f"So far you have told me {len(user_texts)} thing(s), first of all: {user_texts[0]!r}")


async def open_conversation(user: User) -> Conversation:
    """The conversation that is still open, or a new one."""
    conversations = await user.conversations.list("travel", status="open", limit=1)
    return conversations[0] if conversations else await user.conversations.create("travel", title="Trip to Lisbon")


async def main(path: str) -> None:
    """Say two things, streamed and stored as they come."""
    model = choose_model()
    if isinstance(model, FunctionModel):
        model = FunctionModel(fallback_reply, model="stand-in")
    # The stand-in cannot summarise; without a model, Tellback picks the sentences that say most.
    async with Tellback(path, model=model if isinstance(model, str) else None) as tb:
        maya = tb.user("maya")
        conversation = await open_conversation(maya)
        print(f"[{conversation.id} in {path}: {conversation.last_seq} messages so far]")
        for question in QUESTIONS:
            print(f"> {question}")
            async for item in maya.conversations.stream_turn(conversation.id, model, question, tools=[weather]):
                if isinstance(item, TextDelta):
                    print(item.text, end="", flush=True)
            print()
        summary = await maya.conversations.refresh_rolling_summary(conversation.id)
        print(f"[in short:]\n{summary.rolling_summary}")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tellback.db"))
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
