"""Extract memories from three conversations over half a year, and query them at different times.

    python examples/extraction.py [FILE]

The data is stored in FILE (default: tellback.db). With a provider's key in the environment that provider's model reads
the conversations; without one, a script plays the model.
"""

import asyncio
import sys
from typing import Any

from first_turn import choose_model
from tellback import Atom, Tellback, TellbackError
from tellback.testing import ScriptedModel, answers

CONVERSATIONS = {
    "2026-01-10T18:00:00Z": "I live in Porto. My sister Anna comes to visit next week.",
    "2026-03-20T18:00:00Z": "I moved to Lisbon on the 1st of March, and I'm a vegetarian now.",
    "2026-06-05T18:00:00Z": "My sister is called Hanna, not Anna! And yes, I'm still a vegetarian.",
}


def build_fact(text: str, attribute: str, value: str, **extra: Any) -> dict[str, Any]:
    """Return a fact about the user's first message, as a model returns it."""
    fields = {"subject": "user", "attribute": attribute, "value": value, "single": True}
    return {"text": text, "messages": ["m1"], "kind": "FACT", "category": attribute, **fields, **extra}


PORTO = build_fact("User lives in Porto.", "home city", "Porto")
LISBON = build_fact("User lives in Lisbon.", "home city", "Lisbon", since="2026-03-01", change="changed")
ANNA = build_fact("User's sister is called Anna.", "sister", "Anna")
HANNA = build_fact("User's sister is called Hanna.", "sister", "Hanna", change="corrected")
VEGETARIAN = build_fact("User is a vegetarian.", "diet", "vegetarian")
SCRIPT = [answers({"facts": facts}) for facts in ([PORTO, ANNA], [LISBON, VEGETARIAN], [HANNA, VEGETARIAN])]


def show(title: str, atoms: list[Atom]) -> None:
    """Print memories, oldest first."""
    print(title)
    for atom in sorted(atoms, key=lambda atom: atom.valid_from):
        print(f"  since {atom.valid_from:%Y-%m-%d}: {atom.text} (from {len(atom.citations)} conversation(s))")


async def main(path: str) -> None:
    """Store three conversations, and print the extracted memories."""
    model = choose_model()
    async with Tellback(path, model=model if isinstance(model, str) else ScriptedModel(SCRIPT)) as tb:
        maya = tb.user("maya")
        space = await maya.memory.create_space("diary", once=True)
        if not any(binding.matches("diary", "maya") for binding in await maya.memory.list_bindings()):
            await maya.memory.create_binding({"namespace": "diary", "user_id": "*"}, [space.id])
        for when, text in CONVERSATIONS.items():
            conversation = await maya.conversations.create("diary")
            await maya.conversations.append_turn(conversation.id, text, {"content": "I see."}, created_at=when)
            await maya.conversations.close(conversation.id)
            await tb.jobs.drain(timeout=120)
            for job in await maya.memory.list_jobs(conversation_id=conversation.id):
                counts = ", ".join(f"{count} {name}" for name, count in job.result.items() if count)
                print(f"> {text}\n[{job.status.value}: {job.error or counts}]")
        show("\nToday:", await maya.memory.list_atoms(space.id))
        show("In February:", await maya.memory.list_atoms(space.id, valid_at="2026-02-01T00:00:00Z"))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "tellback.db"))
    except TellbackError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    except KeyboardInterrupt:
        sys.exit("\nstopped")
