"""A personal assistant that remembers what you told it, and cites the message.

    python examples/personal_assistant.py [FILE]

The data is stored in FILE (default: assistant.db). With a provider's key in the environment, TELLBACK_GGUF or an Ollama
on this machine, that model answers; without one, the offline model quotes your messages.
"""

import sys
from datetime import UTC, datetime

from example_helpers import run
from tellback import Tellback

MONDAY = ("My flight to Porto leaves on Friday at 9:40.", "My sister Ana is allergic to peanuts.")
THURSDAY = ("When does my flight to Porto leave?", "What is Ana allergic to?")


async def main(path: str) -> None:
    """Chat on two days, in two conversations."""
    async with Tellback(path, model="auto", clock=lambda: datetime(2026, 5, 4, 20, tzinfo=UTC)) as tb:
        maya = tb.user("maya")
        for text in MONDAY:
            reply = await maya.chat(text)
            print(f"[Monday] > {text}\n{reply}")
        # Memories are extracted when a conversation closes: by this call, or an hour after the last message.
        await maya.conversations.close(str(reply.conversation_id))
        await tb.jobs.drain(timeout=120)

    async with Tellback(path, model="auto", clock=lambda: datetime(2026, 5, 7, 8, tzinfo=UTC)) as tb:
        maya = tb.user("maya")
        for text in THURSDAY:
            reply = await maya.chat(text)
            print(f"\n[Thursday] > {text}\n{reply}")
            for atom in reply.atoms_used[:1]:
                source = await maya.conversations.message(atom.source_message_ids[0])
                assert source is not None
                print(f"  because on {source.created_at:%A} you said: {source.text}")
        await maya.conversations.close(str(reply.conversation_id))


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "assistant.db"))
