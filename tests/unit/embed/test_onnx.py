"""ONNX models: pooling, masks, batches and invalid folders, with the real runtime and a tiny model."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tellback.embed import Embedder, OnnxEmbedder, onnx
from tellback.errors import ConfigurationError, EmbeddingError, InvalidArgumentError, MissingExtraError
from tests.unit.embed.tiny_onnx import INT32, SIZE, WORDS, table, write_model, write_tokenizer

needs_runtime = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "tiny-model")


@pytest.fixture
def embedder(folder: Path) -> OnnxEmbedder:
    return OnnxEmbedder(path=folder, threads=1)


def expected_vector(text: str) -> Any:
    """Return the mean over a text's tokens, including [CLS] and [SEP]; pieces of a long text are weighted by tokens."""
    words = [WORDS.index(word) if word in WORDS else 1 for word in text.split()]
    room = onnx._MAX_TOKENS - 2
    total = np.zeros(SIZE)
    for start in range(0, min(len(words), room * onnx._MAX_PIECES), room):
        ids = [2, *words[start : start + room], 3]
        mean = table()[ids].mean(axis=0)
        total += len(ids) * mean / np.linalg.norm(mean)
    return total / np.linalg.norm(total)


@needs_runtime
async def test_the_vector_is_the_mean_over_the_tokens_without_padding(embedder: OnnxEmbedder) -> None:
    texts = ["bees", "roof ferry north bees roof", "", "ferry unheard-of", " \n", "north " * 100]
    rows = await embedder.embed(texts)
    assert rows.shape == (len(texts), SIZE)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    for text, row in zip(texts, rows, strict=True):
        if "-" in text:
            continue  # the tokenizer splits it at the dash into three
        np.testing.assert_allclose(row, expected_vector(text) if text.strip() else np.zeros(SIZE), atol=1e-5)


@needs_runtime
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(st.sampled_from(["bees", "roof", "ferry", "north"]), max_size=20), max_size=150))
def test_a_vector_does_not_depend_on_the_other_texts(embedder: OnnxEmbedder, texts: list[list[str]]) -> None:
    joined = [" ".join(words) for words in texts]
    rows = embedder.vectors(joined)
    assert rows.shape == (len(joined), SIZE)
    for text, row in zip(joined, rows, strict=True):
        np.testing.assert_allclose(row, expected_vector(text) if text else np.zeros(SIZE), atol=1e-5)


@needs_runtime
@pytest.mark.parametrize("count", [253, 254, 255, 600, 5000])
def test_a_long_text_is_embedded_in_a_limited_number_of_pieces(embedder: OnnxEmbedder, count: int) -> None:
    text = " ".join(["bees", "roof", "ferry"][n % 3] for n in range(count))
    np.testing.assert_allclose(embedder.vectors([text, "bees"])[0], expected_vector(text), atol=1e-4)


@needs_runtime
def test_batches_have_texts_of_similar_length_and_a_limited_size(
    embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[list[int]] = []
    run = onnx._OnnxModel._run

    def record_run(self: Any, pieces: Any) -> Any:
        shapes.append([len(piece.ids) for piece in pieces])
        return run(self, pieces)

    embedder.vectors(["bees"])
    monkeypatch.setattr(onnx._OnnxModel, "_run", record_run)
    texts = [" ".join(["bees"] * (n * 7 % 250 + 1)) for n in range(400)]
    rows = embedder.vectors(texts)
    lengths = [length for shape in shapes for length in shape]
    assert lengths == sorted(lengths)
    assert len(lengths) == 400
    for shape in shapes:
        assert len(shape) <= onnx._BATCH_TEXTS
        assert len(shape) * max(shape) <= onnx._BATCH_TOKENS
    for index in (0, 17, 399):
        np.testing.assert_allclose(rows[index], expected_vector(texts[index]), atol=1e-5)


@needs_runtime
def test_the_vectors_of_a_pooling_model_are_used_unchanged(tmp_path: Path) -> None:
    rows = OnnxEmbedder(path=write_model(tmp_path, pooled=True)).vectors(["bees", "roof ferry"])
    first = table()[2] / np.linalg.norm(table()[2])
    np.testing.assert_allclose(rows, [first, first], atol=1e-6)


@needs_runtime
def test_models_with_other_inputs_and_folders_can_be_loaded(tmp_path: Path) -> None:
    for number, options in enumerate([{"inputs": ["input_ids"]}, {"kind": INT32}, {"shown_size": False}]):
        folder = write_model(tmp_path / str(number), **options)  # type: ignore[arg-type]
        np.testing.assert_allclose(OnnxEmbedder(path=folder).vectors(["bees"])[0], expected_vector("bees"), atol=1e-5)
    (folder / "onnx").mkdir()
    (folder / "model.onnx").rename(folder / "onnx" / "model.onnx")
    np.testing.assert_allclose(OnnxEmbedder(path=str(folder)).vectors(["bees"])[0], expected_vector("bees"), atol=1e-5)


@needs_runtime
def test_the_name_contains_the_model_and_the_dimensions(folder: Path) -> None:
    assert OnnxEmbedder(path=folder).name == f"onnx/tiny-model-{SIZE}"
    assert OnnxEmbedder("mine", path=folder).name == f"onnx/mine-{SIZE}"
    assert OnnxEmbedder("all-mpnet-base-v2").name == "onnx/all-mpnet-base-v2-768"
    assert isinstance(OnnxEmbedder(path=folder), Embedder)


@needs_runtime
def test_values_that_are_not_finite_raise_embedding_error(embedder: OnnxEmbedder) -> None:
    with pytest.raises(EmbeddingError, match="not finite"):
        embedder.vectors(["bees", "nan"])


@needs_runtime
def test_unpaired_surrogates_are_unknown_characters(embedder: OnnxEmbedder) -> None:
    np.testing.assert_array_equal(embedder.vectors(["\ud800"]), embedder.vectors(["\ufffd"]))


@needs_runtime
async def test_many_tasks_can_embed_concurrently_in_threads(embedder: OnnxEmbedder) -> None:
    threads: set[int] = set()
    vectors = embedder.vectors

    def record_texts(texts: Any) -> Any:
        threads.add(threading.get_ident())
        return vectors(texts)

    embedder.vectors = record_texts  # type: ignore[method-assign]
    texts = ["bees roof", "north"]
    for rows in await asyncio.gather(*(embedder.embed(texts, query=n % 2 == 0) for n in range(30))):
        np.testing.assert_allclose(rows, [expected_vector(text) for text in texts], atol=1e-5)
    assert threading.get_ident() not in threads


@needs_runtime
def test_concurrent_first_uses_load_the_model_once(embedder: OnnxEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = onnx._OnnxModel.__init__

    def count_loads(self: Any, *args: Any) -> None:
        loads.append(1)
        load(self, *args)

    monkeypatch.setattr(onnx._OnnxModel, "__init__", count_loads)
    barrier = threading.Barrier(20)

    def work(_: int) -> Any:
        barrier.wait()
        return embedder.vectors(["bees"])[0]

    with ThreadPoolExecutor(20) as pool:
        for row in pool.map(work, range(20)):
            np.testing.assert_allclose(row, expected_vector("bees"), atol=1e-5)
    assert len(loads) == 1


@needs_runtime
async def test_a_closed_embedder_can_be_used_again(embedder: OnnxEmbedder) -> None:
    await embedder.embed(["bees"])
    await embedder.close()
    await embedder.close()
    np.testing.assert_allclose((await embedder.embed(["bees"]))[0], expected_vector("bees"), atol=1e-5)


FORKS = """
import os, sys
from tellback.embed import OnnxEmbedder
embedder = OnnxEmbedder(path=sys.argv[1], threads=2)
embedder.vectors(["bees roof"] * 50)
pid = os.fork()
if pid == 0:
    for _ in range(2):
        embedder.vectors(["bees roof"] * 50)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


@needs_runtime
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_loads_its_own_model(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKS, str(folder)], check=True, timeout=50)


@needs_runtime
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("no folder", "must contain model.onnx"),
        ("no model", "must contain model.onnx"),
        ("no tokenizer", "must contain model.onnx"),
        ("cut model", "cannot be loaded"),
        ("cut tokenizer", "cannot be loaded"),
        ("other inputs", "pixel_values"),
    ],
)
def test_the_error_for_an_invalid_folder_contains_its_path(tmp_path: Path, damage: str, problem: str) -> None:
    folder = tmp_path / "broken"
    if damage != "no folder":
        write_model(folder, inputs=["input_ids", "pixel_values"] if damage == "other inputs" else ["input_ids"])
    if damage in ("no model", "no tokenizer"):
        (folder / ("model.onnx" if damage == "no model" else "tokenizer.json")).unlink()
    if damage in ("cut model", "cut tokenizer"):
        file = folder / ("model.onnx" if damage == "cut model" else "tokenizer.json")
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match=problem) as caught:
        OnnxEmbedder(path=folder).vectors(["bees"])
    assert "broken" in str(caught.value)


@needs_runtime
def test_a_runtime_failure_raises_embedding_error(
    embedder: OnnxEmbedder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.embed.tiny_onnx.WORDS", [*WORDS, "beyond-the-table", "rope"])
    write_tokenizer(folder)
    with pytest.raises(EmbeddingError, match="failed"):
        embedder.vectors(["rope"])


@needs_runtime
def test_a_model_known_by_name_is_downloaded_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    downloads: list[Any] = []

    def fetch(repository: str, **options: Any) -> str:
        downloads.append((repository, options))
        return str(write_model(tmp_path / "snapshot"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setitem(onnx.MODEL_DIMENSIONS, "all-MiniLM-L6-v2", SIZE)
    np.testing.assert_allclose(OnnxEmbedder().vectors(["bees"])[0], expected_vector("bees"), atol=1e-5)
    expected_options = {"allow_patterns": ["onnx/model.onnx", "tokenizer.json"]}
    assert downloads == [("sentence-transformers/all-MiniLM-L6-v2", expected_options)]
    monkeypatch.setitem(onnx.MODEL_DIMENSIONS, "all-MiniLM-L6-v2", 384)
    with pytest.raises(ConfigurationError, match="is not all-MiniLM-L6-v2"):
        OnnxEmbedder().vectors(["bees"])


def test_the_error_without_a_network_says_what_to_do() -> None:
    script = (
        "from tellback.embed import onnx\n"
        "from tellback.errors import EmbeddingError\n"
        "try: onnx._download_model('all-MiniLM-L6-v2')\n"
        "except EmbeddingError as error: print(error.retryable, error)\n"
    )
    environment = {"PATH": os.environ["PATH"], "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": os.devnull}
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=50
    )
    assert process.stdout.startswith("True all-MiniLM-L6-v2 could not be downloaded")
    assert "OnnxEmbedder(path=...)" in process.stdout


def test_the_error_without_the_runtime_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"tellback\[onnx\]"):
        OnnxEmbedder(path=folder).vectors(["bees"])


def test_invalid_arguments_raise_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="path="):
        OnnxEmbedder("bert-base")
    with pytest.raises(ConfigurationError, match="threads"):
        OnnxEmbedder(threads=0)


async def test_anything_but_a_list_of_texts_is_rejected(embedder: OnnxEmbedder) -> None:
    for wrong in ("one text", [1]):
        with pytest.raises(InvalidArgumentError):
            await embedder.embed(wrong)  # type: ignore[arg-type]
