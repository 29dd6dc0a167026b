"""A personal assistant that still knows tomorrow what you told it today, and where it has that from.

    python examples/personal_assistant.py [FILE]

Everything is kept in FILE (default: assistant.db here). With nothing set up, what you said is quoted back to you; with
a provider's key in the environment, an Ollama on this machine or TELLBACK_GGUF, that model answers in its own words.
"""

import sys
from datetime import UTC, datetime

from example_helpers import run
from tellback import Tellback

MONDAY = ("My flight to Porto leaves on Friday at 9:40.", "My sister Ana is allergic to peanuts.")
THURSDAY = ("When does my flight to Porto leave?", "What is Ana allergic to?")


async def main(path: str) -> None:
    """Two days, two conversations, two processes for all it knows."""
    async with Tellback(path, model="auto", clock=lambda: datetime(2026, 5, 4, 20, tzinfo=UTC)) as tb:
        maya = tb.user("maya")
        for text in MONDAY:
            reply = await maya.chat(text)
            print(f"[Monday] > {text}\n{reply}")
        # A conversation becomes memories when it is closed: by you, or when nothing is said in it for an hour.
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
