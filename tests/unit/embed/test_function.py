"""`FunctionEmbedder`."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.embed import Embedder, FunctionEmbedder
from tellback.embed.vectors import validate_vectors
from tellback.errors import ConfigurationError, EmbeddingError, InvalidArgumentError, NotFoundError


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), 1.0] for text in texts]


def normalise(row: Any) -> Any:
    return np.asarray(row) / np.linalg.norm(row)


async def test_sync_and_async_functions_return_the_same_vectors() -> None:
    async def later(texts: list[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return lengths(texts)

    class Called:
        async def __call__(self, texts: list[str]) -> Any:
            return np.array(lengths(texts))

    texts = ["abc", "", "de", " "]
    expected = [normalise([3, 1]), [0, 0], normalise([2, 1]), [0, 0]]
    for fn in (lengths, later, Called(), lambda texts: later(texts)):
        embedder = FunctionEmbedder("lengths-2", fn)
        assert isinstance(embedder, Embedder)
        rows = await embedder.embed(texts)
        np.testing.assert_allclose(rows, expected, atol=1e-6)
        assert rows.dtype == np.float32
        await embedder.close()
        await embedder.close()


async def test_a_sync_function_runs_in_a_thread_one_call_at_a_time() -> None:
    running = peak = 0
    threads = set()

    def slow(texts: list[str]) -> list[list[float]]:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        threads.add(threading.get_ident())
        threading.Event().wait(0.01)
        running -= 1
        return lengths(texts)

    embedder = FunctionEmbedder("slow", slow)
    await asyncio.gather(*(embedder.embed([f"text {n}"]) for n in range(10)))
    assert peak == 1
    assert threading.get_ident() not in threads


async def test_batch_size_limits_the_texts_per_call() -> None:
    batches: list[list[str]] = []

    def record_batch(texts: list[str]) -> list[list[float]]:
        batches.append(texts)
        return lengths(texts)

    texts = ["a", "", "bb", "ccc", "dddd"]
    rows = await FunctionEmbedder("noted", record_batch, batch_size=3).embed(texts)
    assert batches == [["a", "bb", "ccc"], ["dddd"]]
    np.testing.assert_allclose(rows, await FunctionEmbedder("noted", record_batch).embed(texts))
    assert batches[2:] == [["a", "bb", "ccc", "dddd"]]


async def test_a_function_with_a_query_parameter_receives_it() -> None:
    def asymmetric(texts: list[str], *, query: bool = False) -> list[list[float]]:
        return [[1.0, float(query)]] * len(texts)

    embedder = FunctionEmbedder("asymmetric", asymmetric)
    np.testing.assert_allclose(await embedder.embed(["a"]), [[1, 0]])
    np.testing.assert_allclose(await embedder.embed(["a"], query=True), [normalise([1, 1])], atol=1e-6)
    assert (await FunctionEmbedder("plain", lengths).embed(["a"], query=True)).shape == (1, 2)


async def test_blank_texts_are_zero_vectors_even_in_the_first_call() -> None:
    embedder = FunctionEmbedder("lengths", lengths)
    assert (await embedder.embed(["", " "])).tolist() == [[0, 0], [0, 0]]
    assert (await embedder.embed([])).shape == (0, 2)


async def test_the_functions_vectors_are_not_changed_in_place() -> None:
    vectors = np.array([[3.0, 4.0]])
    await FunctionEmbedder("own", lambda texts: vectors).embed(["a"])
    assert vectors.tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize(
    "rows",
    [
        None,
        7,
        "text",
        [],
        [[1.0]],
        [[1.0, 2.0], [3.0]],
        [[1.0, float("nan")], [1.0, 2.0]],
        [[1.0, float("inf")], [1.0, 2.0]],
        [["a", "b"], ["c", "d"]],
        [[[1.0]], [[2.0]]],
        [[], []],
        [1.0, 2.0],
        [None, None],
        {"a": 1, "b": 2},
        np.zeros((2, 2, 2)),
        np.array(3.0),
    ],
)
async def test_a_result_without_one_vector_per_text_raises_embedding_error(rows: Any) -> None:
    with pytest.raises(EmbeddingError, match="odd"):
        await FunctionEmbedder("odd", lambda texts: rows).embed(["a", "b"])


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), max_size=6))
def test_finite_vectors_are_normalised_to_length_one_or_zero(rows: list[list[float]]) -> None:
    vectors = asyncio.run(FunctionEmbedder("any", lambda texts: rows or [[1.0, 1.0, 1.0]]).embed(["a"] * len(rows)))
    assert np.isfinite(vectors).all()
    for row, vector in zip(rows, vectors, strict=True):
        assert np.linalg.norm(vector) == pytest.approx(1 if any(row) else 0, abs=1e-5)


def test_valid_unit_vectors_are_not_copied() -> None:
    good = np.eye(3, 4, dtype=np.float32)
    assert validate_vectors(good, 3, "x") is good
    assert not validate_vectors(np.zeros((1, 4), np.float32), 1, "x").any()
    assert np.allclose(validate_vectors(5 * good, 3, "x"), good)
    for wrong in (
        np.zeros((2, 0), np.float32),
        np.full((2, 4), np.nan, np.float32),
        np.full((2, 4), np.inf, np.float32),
        good,
    ):
        with pytest.raises(EmbeddingError):
            validate_vectors(wrong, 2, "x")


async def test_a_change_of_the_dimensions_raises_embedding_error() -> None:
    sizes = iter([2, 3])
    embedder = FunctionEmbedder("fickle", lambda texts: [[1.0] * next(sizes)])
    await embedder.embed(["a"])
    with pytest.raises(EmbeddingError, match="another name"):
        await embedder.embed(["b"])


async def test_exceptions_of_the_function_become_embedding_errors_with_a_cause() -> None:
    def broken(texts: list[str]) -> Any:
        raise OSError("disk on fire")

    async def late(texts: list[str]) -> Any:
        raise OSError("disk on fire")

    for fn in (broken, late):
        with pytest.raises(EmbeddingError, match="disk on fire") as caught:
            await FunctionEmbedder("broken", fn).embed(["a"])
        assert isinstance(caught.value.__cause__, OSError)


async def test_tellback_errors_are_not_wrapped() -> None:
    def missing(texts: list[str]) -> Any:
        raise NotFoundError("model", "m")

    with pytest.raises(NotFoundError):
        await FunctionEmbedder("missing", missing).embed(["a"])


async def test_a_builtin_without_a_signature_can_be_used() -> None:
    with pytest.raises(EmbeddingError):
        await FunctionEmbedder("max", max).embed(["a"])


@pytest.mark.parametrize("options", [{"name": ""}, {"name": 3}, {"fn": 3}, {"batch_size": 0}, {"batch_size": -2}])
def test_invalid_options_raise_configuration_error(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        FunctionEmbedder(**{"name": "lengths", "fn": lengths, **options})


async def test_anything_but_a_list_of_texts_is_rejected() -> None:
    for wrong in ("one text", [1]):
        with pytest.raises(InvalidArgumentError):
            await FunctionEmbedder("lengths", lengths).embed(wrong)  # type: ignore[arg-type]
