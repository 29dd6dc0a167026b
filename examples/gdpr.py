"""Give a user all that is kept of them, erase it, and prove that it is gone.

    python examples/gdpr.py [FILE]

Maya and Omar use the same service. Maya asks for her data, and then to be forgotten. Nothing of her is left in any
table, nor in the bytes of FILE (default: gdpr.db here); Omar's data are untouched. No model is needed.
"""

import hashlib
import json
import sys
import tempfile
import zipfile
from pathlib import Path

from example_helpers import run
from tellback import Tellback
from tellback.user import User

SECRET = "My passport is in the blue drawer."


async def store_conversation(user: User, text: str) -> None:
    """A conversation that becomes a memory."""
    space = await user.memory.create_space("default", once=True)
    conversation = await user.conversations.create("chat")
    await user.conversations.append_turn(conversation.id, text, {"content": "I will remember that."})
    await user.conversations.close(conversation.id)
    await user.memory.remember_conversation(space.id, conversation.id)


def count_occurrences(path: str, text: str) -> int:
    """How often a text is found in the bytes of the database and of its log."""
    files = [Path(path + end) for end in ("", "-wal", "-shm")]
    return sum(file.read_bytes().count(text.encode()) for file in files if file.exists())


async def main(path: str) -> None:
    """Article 15, and Article 17."""
    async with Tellback(path) as tb:
        maya, omar = tb.user("maya"), tb.user("omar")
        await store_conversation(maya, SECRET)
        await store_conversation(omar, "I live in Oslo.")
        print(f"[in the file's bytes, {SECRET!r} is found: {count_occurrences(path, SECRET) > 0}]")

        with tempfile.TemporaryFile() as file:  # or to="maya.zip"
            report = await maya.admin.export_user_data(to=file, format="zip")
            with zipfile.ZipFile(file) as zipped:
                [message, *_] = [json.loads(line) for line in zipped.read("messages.jsonl").splitlines()]
        print(f"exported: {', '.join(f'{count} {name}' for name, count in report.counts.items() if count)}")
        print(f"for example: {message['role']} said {message['content'][0]['text']!r}")

        erased = await maya.admin.delete_user_data(confirm=True)
        print(f"erased: {', '.join(f'{count} {name}' for name, count in erased.items() if count)}")

        data = await maya.admin.export_user_data()
        print(f"[of Maya, {sum(len(records) for records in data.values() if isinstance(records, list))} records left]")
        print(f"[in the file's bytes, {SECRET!r} is found: {count_occurrences(path, SECRET) > 0}]")
        # What is kept is that somebody was erased, by a hash that only those can check who know the id.
        subject = hashlib.sha256(json.dumps(["default", "default", "maya"], separators=(",", ":")).encode()).hexdigest()
        [event, *_] = reversed(await tb.events.read(types=["user.erased"]))
        print(f"[the log says that she was erased: {event.subject_id == subject}, by the hash {subject[:8]}…]")
        print(f"[Omar's conversations: {len(await omar.conversations.list())}]")


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "gdpr.db"))
