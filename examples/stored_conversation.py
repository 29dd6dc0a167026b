"""Store a conversation: the second run of the program continues where the first one stopped.

    python examples/stored_conversation.py [FILE]

The messages are stored in FILE (default: tellback.db). With a provider's key in the environment that provider answers;
without one, a scripted stand-in does, which quotes the conversation.
"""

import asyncio
import sys

from first_turn import choose_model, weather
from tellback import ChatRequest, Conversation, Tellback, TellbackError, TextDelta, message_text
from tellback.testing import FunctionModel, Step, calls, says
from tellback.user import User

QUESTIONS = ("I'm Maya, and I fly to Lisbon tomorrow.", "Do I need a coat there?")


def fallback_reply(request: ChatRequest) -> Step:
    """Look up the weather if the user asks for it, otherwise quote the conversation."""
    last = request.messages[-1]
    if last.role == "tool":
        return says(f"No, it is {last.content}.")
    if "coat" in message_text(last) and request.tools:
        return calls("weather", city="Lisbon")
    user_texts = [message_text(message) for message in request.messages if message.role == "user"]
    return says(f"So far you have told me {len(user_texts)} thing(s), first of all: {user_texts[0]!r}")


async def open_conversation(user: User) -> Conversation:
    """Return the open conversation, or a new one."""
    conversations = await user.conversations.list("travel", status="open", limit=1)
    return conversations[0] if conversations else await user.conversations.create("travel", title="Trip to Lisbon")


async def main(path: str) -> None:
    """Send two messages; replies are streamed and stored."""
    model = choose_model()
    if isinstance(model, FunctionModel):
        model = FunctionModel(fallback_reply, model="stand-in")
    # The stand-in cannot summarise. Without a model, Tellback selects the most informative sentences.
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
