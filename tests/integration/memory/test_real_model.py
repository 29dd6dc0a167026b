"""Extraction with a real model: a real tokenizer, real constrained decoding, real output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import TypeVar

import pytest
from jsonschema import Draft202012Validator

from tellback import Tellback
from tellback.errors import ExtractionError
from tellback.memory.extraction.extractors import LlmExtractor
from tellback.memory.extraction.values import Verdict
from tellback.types.jobs import JobStatus
from tests.support.local_model import BoundedModel, require_model_file
from tests.unit.memory.extraction.factories import make_atom, make_question

Done = TypeVar("Done")

# A busy machine takes many times as long.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DATES = {"since": "^20[0-2][0-9](-0[1-9])?$", "until": "^203[0-9]$"}
TEXTS = ("I moved to Lisbon last month with my sister Anna.", "How nice!", "Yes. And I am a vegetarian now.")


@pytest.fixture(scope="module")
def model() -> BoundedModel:
    return BoundedModel(require_model_file(), patterns=DATES)


async def attempted(awaitable: Awaitable[Done]) -> Done | ExtractionError:
    """Return the result of a job, even if the output of the model was invalid."""
    try:
        return await awaitable
    except ExtractionError as error:
        return error


def check_answers(model: BoundedModel) -> None:
    """Check that each complete answer fits the requested schema."""
    for request, reply in model.exchanges:
        assert request.output_schema is not None
        if reply.stop_reason == "end_turn":
            Draft202012Validator(request.output_schema).validate(json.loads(reply.text))
        else:
            assert reply.stop_reason == "max_tokens"


async def test_a_real_model_extracts_memories_from_a_conversation(model: BoundedModel) -> None:
    model.exchanges.clear()
    extractor = LlmExtractor(model, retries=1)
    async with Tellback(":memory:", extractor=extractor) as tb:
        user = tb.user("maya")
        space = await user.memory.create_space("chat")
        await user.memory.create_binding({"namespace": "chat"}, [space.id])
        conversation = await user.conversations.create("chat")
        for user_text, answer in zip(TEXTS[::2], (*TEXTS[1::2], "I see."), strict=True):
            await user.conversations.append_turn(conversation.id, user_text, {"content": answer})
        await user.conversations.close(conversation.id)
        await tb.jobs.drain(timeout=280)
        [job] = await user.memory.list_jobs()
        atoms = await user.memory.list_atoms(space.id)
        messages = await user.conversations.messages(conversation.id)
        used = await user.admin.usage(job_id=job.id)
    check_answers(model)
    assert len(used) == len(model.exchanges) <= 2
    assert all(call.input_tokens and call.output_tokens and call.model == Path(model.model).stem for call in used)
    if job.status is JobStatus.FAILED:  # the model is very small, so its output may be invalid
        assert job.raw_output == model.exchanges[-1][1].text
        return
    assert job.status is JobStatus.DONE
    assert len(atoms) + job.result["left_out"] >= 1
    user_message_ids = {message.id for message in messages if message.role == "user"}
    for each in atoms:
        assert set(each.source_message_ids) <= {message.id for message in messages}
        assert user_message_ids & set(each.source_message_ids)


async def test_a_real_model_compares_facts_with_known_atoms(model: BoundedModel) -> None:
    model.exchanges.clear()
    known_atoms = (make_atom("atom_1", "User lives in Paris."), make_atom("atom_2", "User likes tea."))
    outcome = await attempted(
        LlmExtractor(model, retries=1).decide([make_question("User lives in Lisbon.", *known_atoms)])
    )
    check_answers(model)
    if isinstance(outcome, ExtractionError):
        assert outcome.raw == model.exchanges[-1][1].text
        return
    (decision,) = outcome.decisions
    assert (decision.atom_id is None) == (decision.verdict is Verdict.NEW)
    assert decision.atom_id in (None, "atom_1", "atom_2")


async def test_the_model_does_not_block_the_event_loop(model: BoundedModel) -> None:
    working = asyncio.ensure_future(model.complete("Say hello."))
    tick_count = 0
    while not working.done():
        await asyncio.sleep(0.01)
        tick_count += 1
    assert (await working).text
    assert tick_count > 1
