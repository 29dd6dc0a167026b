"""Export a user's data, erase it, and prove that it was deleted.

    python examples/gdpr.py [FILE]

Maya and Omar use the same service. Maya asks for her data, and then for its deletion. Nothing of her remains in any
table or in the bytes of FILE (default: gdpr.db). Omar's data does not change. No model is needed.
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
    """Store a conversation and remember it."""
    space = await user.memory.create_space("default", once=True)
    conversation = await user.conversations.create("chat")
    await user.conversations.append_turn(conversation.id, text, {"content": "I will remember that."})
    await user.conversations.close(conversation.id)
    await user.memory.remember_conversation(space.id, conversation.id)


def count_occurrences(path: str, text: str) -> int:
    """Count a text in the bytes of the database and of its log."""
    files = [Path(path + end) for end in ("", "-wal", "-shm")]
    return sum(file.read_bytes().count(text.encode()) for file in files if file.exists())


async def main(path: str) -> None:
    """Answer requests of Article 15 (access) and Article 17 (erasure)."""
    async with Tellback(path) as tb:
        maya, omar = tb.user("maya"), tb.user("omar")
        await store_conversation(maya, SECRET)
        await store_conversation(omar, "I live in Oslo.")
        print(f"[{SECRET!r} found in the file's bytes: {count_occurrences(path, SECRET) > 0}]")

        with tempfile.TemporaryFile() as file:  # or to="maya.zip"
            report = await maya.admin.export_user_data(to=file, format="zip")
            with zipfile.ZipFile(file) as zipped:
                [message, *_] = [json.loads(line) for line in zipped.read("messages.jsonl").splitlines()]
        print(f"exported: {', '.join(f'{count} {name}' for name, count in report.counts.items() if count)}")
        print(f"for example: {message['role']} said {message['content'][0]['text']!r}")

        erased = await maya.admin.delete_user_data(confirm=True)
        print(f"erased: {', '.join(f'{count} {name}' for name, count in erased.items() if count)}")

        data = await maya.admin.export_user_data()
        print(f"[records of Maya: {sum(len(records) for records in data.values() if isinstance(records, list))}]")
        print(f"[{SECRET!r} found in the file's bytes: {count_occurrences(path, SECRET) > 0}]")
        # One event remains. It has a hash of the user's id, so anyone who knows the id can check the erasure.
        identity = json.dumps(["default", "default", "maya"], ensure_ascii=False, separators=(",", ":"))
        subject = hashlib.sha256(identity.encode()).hexdigest()
        [event, *_] = reversed(await tb.events.read(types=["user.erased"]))
        print(f"[the event user.erased has Maya's hash {subject[:8]}…: {event.subject_id == subject}]")
        print(f"[Omar's conversations: {len(await omar.conversations.list())}]")


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "gdpr.db"))
