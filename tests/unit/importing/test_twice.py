"""Whatever is imported, doing it again changes nothing, and doing it in parts gives the whole."""

from __future__ import annotations

import asyncio
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tellback import Tellback
from tellback.importing import import_chats
from tests.unit.importing.exports import write_json

HI = {"role": "user", "content": "Hi"}
MESSAGES = st.fixed_dictionaries(
    {
        "conversation": st.sampled_from("abc"),
        "role": st.sampled_from(["user", "assistant", "system", "tool"]),
        "content": st.sampled_from(["Hi", "Hello", "I walked to the sea.", "", " \u0000"]),
    },
    optional={"id": st.sampled_from(["1", "2"]), "created_at": st.sampled_from(["2024-03-01", "soon", 1e300])},
)


@settings(max_examples=15)
@example([{"conversation": "a", **HI}, {"conversation": "a", **HI, "created_at": "2024-03-01"}], 1)
@given(st.lists(MESSAGES, min_size=1, max_size=12), st.integers(0, 12))
def test_importing_twice_or_a_part_first_is_importing_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("twice")
    whole, part = write_json(folder / "whole.jsonl", lines), write_json(folder / "part.jsonl", lines[: max(cut, 1)])
    asyncio.run(compare(whole, part))


async def compare(whole: Path, part: Path) -> None:
    async with Tellback(":memory:", worker=False) as rc:
        for user, files in {"once": [whole], "twice": [whole, whole], "in parts": [part, whole]}.items():
            for file in files:
                await import_chats(rc.user(user), file, extract=False)
        once, twice, in_parts = [await stored_texts(rc, user) for user in ("once", "twice", "in parts")]
    assert twice == once
    assert sorted(chain(*in_parts)) == sorted(chain(*once))


async def stored_texts(rc: Tellback, user: str) -> list[list[str]]:
    conversations = rc.user(user).conversations
    return [
        [f"{talk.session_id} {each.role} {each.text}" for each in await conversations.messages(talk.id, None, True)]
        for talk in reversed(await conversations.list())
    ]
