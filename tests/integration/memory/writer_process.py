"""A program that writes into a space until it is killed: `python -m tests.integration.memory.writer_process URL SPACE`.

It prints a line of JSON for each acknowledged change, and before some changes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

from tellback import Tellback


def print_json(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def main(url: str, space_id: str) -> None:
    async with Tellback(url) as tb:
        memory = tb.user("maya").memory
        ann = await memory.create_entity(space_id, "PERSON", "Ann")
        [home_atom] = await memory.list_atoms(space_id, "home")
        for n in itertools.count():
            atoms = await memory.add_atoms(
                space_id, [{"text": f"Saw heron {n} and {m}.", "entity_ids": [ann.id]} for m in range(5)]
            )
            for atom in atoms:
                print_json(added=atom.id)
            print_json(deleting=atoms[0].id)
            await memory.delete_atom(atoms[0].id)
            print_json(deleted=atoms[0].id)
            home_atom = await memory.supersede_atom(home_atom.id, f"Lives at number {n}.")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
