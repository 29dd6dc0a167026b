"""One process stores messages, and worker processes extract memories. One worker is killed.

    python examples/many_workers.py [FILE]

The main process only stores messages and runs no jobs. It starts two workers with `tellback worker`, as you would start
them on other machines. One is killed; the other does its jobs. The data is stored in FILE (default: workers.db); with
PostgreSQL, pass a URL instead. With a provider's key in the environment the workers use its model; without one,
messages are remembered verbatim.
"""

import asyncio
import sys
from collections import Counter

from example_helpers import run
from tellback import Tellback, chat

USERS = ("maya", "omar", "ana", "li", "zoe", "tom")


async def store_conversation(tb: Tellback, name: str) -> None:
    """Store and close a user's conversation; closing it creates a job."""
    user = tb.user(name)
    conversation = await user.conversations.create("chat")
    await user.conversations.append_turn(conversation.id, f"I'm {name}, and I live in Lisbon.", {"content": "Noted."})
    await user.conversations.close(conversation.id)


async def start_worker(path: str) -> asyncio.subprocess.Process:
    """Start `tellback worker --once`, which ends when no job is left."""
    chosen = chat.choose_model()
    options = ("--extractor", "verbatim") if chosen.is_offline else ("--model", chosen.name)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tellback.cli", "worker", "--url", path, "--once", *options),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def main(path: str) -> None:
    """Store conversations and let workers run the jobs."""
    async with Tellback(path, worker=False) as tb:
        memory = tb.user("admin").memory
        space = await memory.create_space("default", once=True)
        await memory.create_binding({"namespace": "chat", "user_id": "*"}, [space.id], once=True)  # for every user
        await asyncio.gather(*(store_conversation(tb, name) for name in USERS))
        print(f"[stored: {len(USERS)} conversations; no memories yet, because no worker runs]")

        killed, survivor = await asyncio.gather(start_worker(path), start_worker(path))
        killed.kill()
        await asyncio.gather(killed.wait(), survivor.wait())
        print(f"[one worker was killed, the other ended with exit code {survivor.returncode}]")

        counts = Counter(job.status.value for job in await tb.jobs.list())
        print(f"[jobs: {dict(counts)}]")
        for name in USERS[:2]:
            memory = tb.user(name).memory
            [space] = await memory.list_spaces()
            print(f"{name}: {[atom.text for atom in await memory.list_atoms(space.id)]}")


if __name__ == "__main__":
    run(main(sys.argv[1] if len(sys.argv) > 1 else "workers.db"))
