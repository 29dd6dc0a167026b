"""Chat with an assistant that remembers, uses tools for the current user, and asks for approval.

    python examples/chat_loop.py [FILE]

In March Maya tells the assistant about herself. In April she asks another process where to eat: memories were extracted
from the first conversation, and the answer uses them. Then she books a table, which needs her approval. With a
provider's key in the environment that provider answers; without one, a scripted stand-in does.
"""

import asyncio
import sys
from datetime import UTC, datetime
from functools import partial

from first_turn import choose_model
from tellback import ChatRequest, Tellback, TellbackError, message_text, request, tool
from tellback.skills import skill
from tellback.testing import FunctionModel, Step, calls, says

MARCH, APRIL = datetime(2026, 3, 5, 18, tzinfo=UTC), datetime(2026, 4, 9, 19, tzinfo=UTC)


@tool
def my_bookings() -> str:
    """List the current user's bookings."""
    sender = request.sender()  # set by the application, not by the model
    return f"{sender.user_id} has no booking yet" if sender else "unknown user"


@tool(requires_approval=True)
def book_table(place: str) -> str:
    """Book a table for two tonight."""
    return f"A table at {place} is booked."


@skill(description="How we recommend restaurants", when=["restaurant", "eat"])
def recommending() -> str:
    """Instructions that the model reads when it needs them."""
    return "Name one place, say why it suits the guest, and offer to book a table."


def fallback_reply(chat_request: ChatRequest) -> Step:
    """Answer like a model, with the memories in the prompt."""
    last, prompt = chat_request.messages[-1], chat_request.system or ""
    if last.role == "tool":
        if last.name == "read_skill":
            return calls("my_bookings")
        if last.name == "my_bookings":
            diet = "vegetarian, as you are" if "vegetarian" in prompt else "open late"
            return says(f"Try Ao 26 in Lisbon: it is {diet}. Shall I book?")
        return says(message_text(last))
    if "eat" in message_text(last):
        return calls("read_skill", name="recommending")
    return calls("book_table", place="Ao 26") if "book" in message_text(last) else says("Noted.")


async def main(path: str) -> None:
    """Chat in March and in April."""
    model = choose_model()
    # The stand-in cannot extract facts, so messages are remembered verbatim.
    extractor = "verbatim" if isinstance(model, FunctionModel) else None
    if isinstance(model, FunctionModel):
        model = FunctionModel(fallback_reply, model="stand-in")

    async with Tellback(path, model=model, extractor=extractor, clock=lambda: MARCH) as tb:
        text = "I'm Maya. I moved to Lisbon, and I'm vegetarian now."
        print(f"[March] > {text}\n{await tb.user('maya').chat(text)}")

    async with Tellback(path, model=model, extractor=extractor, clock=lambda: APRIL) as tb:
        maya = tb.user("maya")
        ask = partial(maya.chat, namespace="dinner", tools=[my_bookings, book_table], skills=[recommending])
        reply = await ask("Where should I eat tonight?")
        print(f"[April] > Where should I eat tonight?\n{reply}")
        for atom in reply.atoms_used:
            print(f"  remembered since {atom.valid_from:%Y-%m-%d}, from {atom.source_message_ids[0]}: {atom.text}")

        reply = await ask("Yes, book it.")
        for call in reply.pending:
            print(f"[needs your approval: {call.name}{dict(call.input)}]")
            reply = await ask(approvals={call.id: True})
        print(reply)
        await maya.conversations.close(str(reply.conversation_id))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "chat_loop.db"))
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
