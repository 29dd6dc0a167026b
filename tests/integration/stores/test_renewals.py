"""A turn that takes its time keeps its claim."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import Tellback
from tellback.conversations import claims
from tellback.stores import TurnBusy
from tellback.testing import FunctionModel
from tellback.testing.stores.making import make_claim


async def test_a_long_turn_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 3.0)
    asked = asyncio.Event()

    async def slowly(given: Any) -> str:
        asked.set()
        await asyncio.sleep(7.0)  # more than twice as long as a claim holds by itself
        return "Done."

    async with Tellback(":memory:", worker=False) as rc:
        maya = rc.user("maya")
        talk = await maya.conversations.create("chat")
        turn = asyncio.create_task(maya.conversations.run_turn(talk.id, FunctionModel(slowly), "Hello?"))
        await asked.wait()
        for _ in range(5):
            await asyncio.sleep(1.2)
            answer = await rc.store.conversations.begin_turn(
                maya.scope, talk.id, make_claim("other"), None, tail_limit=5, now=rc.clock()
            )
            assert isinstance(answer, TurnBusy)
        assert (await turn).text == "Done."
