"""Skill bodies: static or generated from the context, and truncated."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.errors import SkillError
from tellback.skills import MAX_BODY, Skill, load_body
from tellback.types.jsontext import is_storable


async def body_of(fn: Callable[..., Any], **ctx: Any) -> str:
    return await load_body(Skill("tone", "Our voice", body="never used", body_fn=fn), ctx)


async def test_a_static_body_is_returned_unchanged() -> None:
    assert await load_body(Skill("tone", "Our voice", body="Dear ${name},\n {{x}} "), {"name": "Maya"}) == (
        "Dear ${name},\n {{x}} "
    )
    assert await load_body(Skill("tone", "Our voice"), {}) == ""


async def test_parameters_of_body_functions_are_filled_by_name() -> None:
    def make(topic: str, /, mood: str = "calm", *, attachments: list[str]) -> str:
        return f"{topic} {mood} {attachments}"

    assert await body_of(make, topic="refund", attachments=["a"], other=1) == "refund calm ['a']"


async def test_ctx_and_keyword_parameters_receive_the_whole_context() -> None:
    def use_ctx(ctx: dict[str, Any]) -> str:
        ctx.clear()
        return "cleared"

    async def use_kwargs(topic: str, *args: Any, **kwargs: Any) -> str:
        return f"{topic} {args} {sorted(kwargs)}"

    context = {"topic": "x", "b": 1, "a": 2}
    assert await load_body(Skill("tone", "Our voice", body_fn=use_ctx), context) == "cleared"
    assert len(context) == 3
    assert await body_of(use_kwargs, **context) == "x () ['a', 'b']"


async def test_arguments_bound_by_a_partial_are_not_replaced() -> None:
    def make(topic: str, tenant: str, **options: Any) -> str:
        return f"{topic} {tenant} {options}"

    fixed = functools.partial(make, tenant="ours", note="ours")
    assert await body_of(fixed, topic="x", tenant="forged", note="forged", b=1) == "x ours {'note': 'ours', 'b': 1}"


async def test_missing_context_values_are_reported_by_name() -> None:
    def make(topic: str, tone: str, mood: str = "") -> str:
        raise AssertionError

    with pytest.raises(SkillError, match="topic, tone"):
        await body_of(make, mood="calm")


class Maker:
    async def __call__(self, topic: str) -> str:
        return f"made {topic}"


async def test_any_kind_of_callable_can_generate_a_body() -> None:
    async def asynchronous(topic: str) -> str:
        await asyncio.sleep(0)
        return f"async {topic}"

    def make(prefix: str, topic: str) -> str:
        return f"{prefix} {topic}"

    assert await body_of(asynchronous, topic="x") == "async x"
    assert await body_of(functools.partial(make, "partial"), topic="x") == "partial x"
    assert await body_of(lambda topic: asynchronous(topic), topic="x") == "async x"
    assert await body_of(Maker(), topic="x") == "made x"


async def test_a_sync_function_runs_off_the_event_loop_with_the_callers_context() -> None:
    name = contextvars.ContextVar("name", default="nobody")
    name.set("maya")
    here = threading.get_ident()
    assert await body_of(lambda: f"{name.get()} {threading.get_ident() != here}") == "maya True"


async def test_exceptions_of_body_functions_propagate() -> None:
    def fails() -> str:
        raise LookupError("no such template")

    def stops() -> str:
        raise StopIteration("done")

    with pytest.raises(LookupError, match="template"):
        await body_of(fails)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await body_of(stops)


@pytest.mark.parametrize("value", [None, 3, b"text", ["text"]])
async def test_a_body_that_is_not_text_is_rejected(value: Any) -> None:
    with pytest.raises(SkillError, match=type(value).__name__):
        await body_of(lambda: value)


async def test_a_huge_body_is_truncated_with_a_note() -> None:
    text = await body_of(lambda: "x" * (MAX_BODY + 1))
    assert text.strip("x").startswith("\n\n[Truncated")
    assert MAX_BODY - 100 < len(text) <= MAX_BODY
    assert await body_of(lambda: "x" * MAX_BODY) == "x" * MAX_BODY


@given(st.text(st.characters(exclude_categories=[])))
async def test_generated_bodies_contain_no_unstorable_characters(text: str) -> None:
    async def make() -> str:
        return text

    assert is_storable(await body_of(make))


async def test_a_function_that_never_returns_does_not_block_other_threads() -> None:
    released = threading.Event()
    try:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await body_of(lambda: str(released.wait()))
        assert await body_of(lambda: "made") == "made"
        assert await asyncio.to_thread(str, "pooled") == "pooled"
    finally:
        released.set()


def test_a_function_that_never_returns_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading
from tellback.skills import Skill, load_body

async def main():
    stuck = Skill("stuck", "", body_fn=lambda: str(threading.Event().wait()))
    try:
        async with asyncio.timeout(0.05):
            await load_body(stuck, {})
    except TimeoutError:
        print("given up")

asyncio.run(main())
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert process.stdout == "given up\n"
    assert process.stderr == ""
