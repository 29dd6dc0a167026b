"""Import chats from ChatGPT, Claude or JSON Lines, and extract memories from them.

    python examples/import_history.py [EXPORT [FILE]]

EXPORT is the zip from ChatGPT or Claude, or one of its files; by default two chats in examples/data. The data is stored
in FILE (default: imported.db), with the original times. A second run adds nothing. With a provider's key in the
environment its model extracts facts; without one, messages are remembered verbatim.
"""

import sys
from pathlib import Path

from example_helpers import run
from tellback import Tellback
from tellback.importers import ImportProgress, import_chats

SAMPLE = Path(__file__).parent / "data" / "chats.jsonl"
QUESTIONS = ("What is my new address?", "Who is allergic to something?")


def show(progress: ImportProgress) -> None:
    """Print one line for each step."""
    print(f"  [{progress.stage}: {progress.done} of {progress.total}]")


async def main(export: str, path: str) -> None:
    """Import the chats and search the memories."""
    async with Tellback(path, model="auto") as tb:
        maya = tb.user("maya")
        print(await import_chats(maya, export, on_progress=show))
        space = await maya.memory.create_space("default", once=True)
        for question in QUESTIONS:
            print(f"> {question}")
            for hit in (await maya.memory.recall_by_topic(space.id, question, limit=1)).hits:
                source = await maya.conversations.message(hit.atom.source_message_ids[0])
                assert source is not None
                conversation = await maya.conversations.get(source.conversation_id)
                assert conversation is not None
                print(f"{hit.atom.text}\n  [from {conversation.title!r}, {source.created_at:%Y-%m-%d}]")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    run(main(arguments[0] if arguments else str(SAMPLE), arguments[1] if len(arguments) > 1 else "imported.db"))
