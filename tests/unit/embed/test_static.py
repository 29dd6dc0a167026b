"""The bundled embedder returns the same vectors as wordllama for any text, but faster."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.embed import Embedder, StaticEmbedder
from tellback.embed import static as weights
from tellback.errors import ConfigurationError, InvalidArgumentError

pytestmark = pytest.mark.slow

TURNS = [
    "I moved to Lisbon in March, and I'm vegetarian now.",
    "Ok!",
    "What did you call the boat — the 'Marlin' or the “Merlin”?",
    "naïve café, über-straße, смотри, 日本語のテスト, مرحبا",
    "It cost $1,234.56 (twice!!) on 2024-02-29; see https://example.org/a?b=c#d",
    "two  spaces   three    four",
    "ends in spaces  ",
    " starts with one",
    "   starts with three",
    "tabs\tand\nnew\r\nlines\n\n",
    "a ▁ b▁▁c ▁",
    "<s> is a sign </s> and so is <unk> and <S> is not",
    "emoji 🐶🐕 and \U0001f9d1\u200d\U0001f33e",
    "x" * 300,
    "word " * 3000,
]


@pytest.fixture
def static() -> StaticEmbedder:
    return StaticEmbedder()


@pytest.fixture(scope="module")
def wordllama() -> Any:
    """wordllama itself. Importing it configures the root logger; this restores the logger."""
    import logging

    handlers, level = list(logging.root.handlers), logging.root.level
    wordllama = importlib.import_module("wordllama")

    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    return wordllama.WordLlama.load(cache_dir=Path(str(wordllama.__file__)).parent, disable_download=True)


def tokenizer() -> Any:
    return weights.load_weights()._tokenizer


def expected_ids(text: str) -> list[int]:
    ids: list[int] = tokenizer().encode(text, add_special_tokens=False).ids
    return ids


def test_the_vectors_are_equal_to_wordllamas(static: StaticEmbedder, wordllama: Any) -> None:
    expected = wordllama.embed(TURNS, norm=True)
    np.testing.assert_allclose(static.vectors(TURNS), expected, atol=1e-4)
    for text, row in zip(TURNS, expected, strict=True):
        np.testing.assert_allclose(static.vectors([text])[0], row, atol=1e-4)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_has_the_tokens_of_the_tokenizer(text: str) -> None:
    assert weights.load_weights().token_ids(text) == ([] if not text.strip() else expected_ids(text))


@settings(deadline=None)
@given(st.text(" \t\n▁.aé<s>/unk'", max_size=40))
def test_spaces_and_control_tokens_are_tokenised_as_by_the_tokenizer(text: str) -> None:
    assert weights.load_weights().token_ids(text) == ([] if not text.strip() else expected_ids(text))


def test_every_word_of_the_vocabulary_is_one_token() -> None:
    words = {word: id for word, id in tokenizer().get_vocab().items() if word[0] == "▁" and word.strip("▁")}
    assert len(words) > 15_000
    # Not `encode_batch`: it starts threads, and a later fork of the test run would warn about them.
    assert [word for word, id in words.items() if expected_ids(word[1:]) != [id]] == []


def test_no_token_has_a_space_after_a_letter() -> None:
    assert [token for token in tokenizer().get_vocab() if "▁" in token.lstrip("▁")] == []


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), max_size=12))
def test_rows_have_length_one_or_zero_and_do_not_depend_on_other_texts(texts: list[str]) -> None:
    static = StaticEmbedder()
    rows = static.vectors(texts)
    assert rows.shape == (len(texts), 256)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    lengths = np.linalg.norm(rows, axis=1)
    for text, row, length in zip(texts, rows, lengths, strict=True):
        assert length == pytest.approx(1 if text.strip() else 0, abs=1e-5)
        np.testing.assert_allclose(static.vectors([text])[0], row, atol=1e-5)


@pytest.mark.parametrize("blank", ["", " ", "\n\t ", "\u3000\u00a0"])
def test_a_blank_text_is_a_row_of_zeros(static: StaticEmbedder, blank: str) -> None:
    assert not static.vectors(["before", blank, "after"])[1].any()
    assert not static.words([blank]).any()


def test_an_empty_list_returns_no_rows(static: StaticEmbedder) -> None:
    assert static.vectors([]).shape == (0, 256)
    assert static.words([]).shape == (0, 256)


def test_unpaired_surrogates_are_unknown_characters(static: StaticEmbedder) -> None:
    texts = ["a\ud800b and \udfff", "<s>\ud800", "\ud83d", "\udc36 dog"]
    np.testing.assert_array_equal(
        static.vectors(texts),
        static.vectors(["a\ufffdb and \ufffd", "<s>\ufffd", "\ufffd", "\ufffd dog"]),
    )
    static.words(["\ud800", "a\ud800"])


def test_a_megabyte_without_a_space_is_embedded(static: StaticEmbedder) -> None:
    long = "abcdefghij" * 100_000
    rows = static.vectors([long, "abcdefghij" * 100])
    assert rows[0] @ rows[1] > 0.999
    assert not static.words([long]).any()


def test_a_long_text_is_the_mean_of_its_tokens(static: StaticEmbedder, wordllama: Any) -> None:
    long = "The ferry leaves at nine, unless the wind is from the north. " * 4000
    vector = static.vectors([long])[0]
    among = static.vectors(["short", long, "and another"])[1]
    np.testing.assert_allclose(vector, wordllama.embed([long], norm=True)[0], atol=1e-3)
    np.testing.assert_allclose(vector, among, atol=1e-5)


def test_many_texts_are_processed_in_batches_without_mixing_them(
    static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"Message {n} about {'cats' if n % 2 else 'tax returns'}" for n in range(300)] + ["", "end"]
    expected = static.vectors(texts)
    monkeypatch.setattr(weights, "_BATCH_TOKENS", 20)
    np.testing.assert_allclose(static.vectors(texts), expected, atol=1e-6)


def test_word_vectors_are_token_means_without_the_common_part(static: StaticEmbedder) -> None:
    words = ["dog", "puppies", "Lisbon", "lisbon", "vegetarianism", "über", "café", "x", "2024", "don't", "旅行", "dog"]
    loaded = weights.load_weights()
    rows = loaded._token_vectors.astype(np.float32)
    common = rows[weights._FREQUENT_TOKENS].mean(axis=0)
    for word, vector in zip(words, static.words(words), strict=True):
        expected = rows[expected_ids(word)].mean(axis=0) - common
        np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


@settings(deadline=None)
@given(st.lists(st.text(max_size=12), max_size=8), st.randoms())
def test_a_words_vector_does_not_depend_on_the_cache(words: list[str], random: Any) -> None:
    static = StaticEmbedder()
    first = static.words(words)
    order = random.sample(range(len(words)), len(words))
    np.testing.assert_array_equal(static.words([words[n] for n in order]), first[order])
    np.testing.assert_allclose(weights.load_weights()._word_vectors(words), first, atol=1e-6)


@pytest.mark.parametrize("word", ["🐶", "\x00", "𒀀"])
def test_a_word_of_byte_tokens_only_is_unknown(static: StaticEmbedder, word: str) -> None:
    assert not static.words([word]).any()


def test_the_caches_have_a_maximum_size(static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = weights.StaticWeights(weights.load_weights()._token_vectors, tokenizer())
    monkeypatch.setattr(weights, "_weights", loaded)
    monkeypatch.setattr(weights, "_MAX_CACHED_WORDS", 50)
    monkeypatch.setattr(weights, "_MAX_CACHED_PIECES", 40)
    loaded._word_cache = weights._WordVectorCache()
    expected = weights.StaticWeights(loaded._token_vectors, tokenizer())._word_vectors([f"w{n}" for n in range(200)])
    for start in range(0, 200, 7):
        requested = [f"w{n}" for n in range(start, min(start + 20, 200))]
        np.testing.assert_allclose(static.words(requested), expected[start : start + 20], atol=1e-6)
        assert len(loaded._word_cache.positions) <= 50
        assert len(loaded._piece_cache) <= 40
    np.testing.assert_allclose(static.words([f"w{n}" for n in range(200)]), expected, atol=1e-6)
    static.vectors(["y" * 1000])
    assert max(map(len, loaded._piece_cache)) <= weights._MAX_CACHED_PIECE_LENGTH


def test_changing_a_returned_vector_does_not_change_the_cache(static: StaticEmbedder) -> None:
    static.words(["dog"])[:] = 7
    static.vectors(["dog"])[:] = 7
    assert np.linalg.norm(static.words(["dog"])) == pytest.approx(1)
    assert np.linalg.norm(static.vectors(["dog"])) == pytest.approx(1)


def test_a_hundred_concurrent_first_uses_load_the_weights_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    load_files = weights._load_files

    def count_load() -> weights.StaticWeights:
        reads.append(1)
        return load_files()

    monkeypatch.setattr(weights, "_weights", None)
    monkeypatch.setattr(weights, "_load_files", count_load)
    barrier = threading.Barrier(100)

    def work(n: int) -> tuple[Any, Any]:
        barrier.wait()
        static = StaticEmbedder()
        words = [f"thread{n}", "shared", f"word{n % 7}"]
        return static.words(words), static.vectors([" ".join(words)] * 3)

    with ThreadPoolExecutor(100) as pool:
        results = list(pool.map(work, range(100)))
    assert len(reads) == 1
    for n, (words, vectors) in enumerate(results):
        thread_words = [f"thread{n}", "shared", f"word{n % 7}"]
        np.testing.assert_allclose(words, weights.load_weights()._word_vectors(thread_words), atol=1e-6)
        np.testing.assert_allclose(vectors, StaticEmbedder().vectors([" ".join(thread_words)] * 3), atol=1e-6)


def test_threads_that_refill_the_word_cache_never_read_a_wrong_row(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = weights.StaticWeights(weights.load_weights()._token_vectors, tokenizer())
    monkeypatch.setattr(weights, "_weights", loaded)
    monkeypatch.setattr(weights, "_MAX_CACHED_WORDS", 64)
    loaded._word_cache = weights._WordVectorCache()
    names = [f"name{n}" for n in range(300)]
    expected = dict(zip(names, loaded._word_vectors(names), strict=True))

    def work(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(60):
            requested = [names[n] for n in generator.integers(0, 300, 15)]
            np.testing.assert_allclose(
                StaticEmbedder().words(requested), np.stack([expected[word] for word in requested]), atol=1e-6
            )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


FORKS = """
import os, threading
from tellback.embed import StaticEmbedder, static
embedder = StaticEmbedder()
embedder.vectors(["warm up"] * 2000)
for held in (False, True):
    ready, done = threading.Event(), threading.Event()
    def hold():
        with static._weights_lock:
            ready.set(); done.wait()
    if held:
        static._weights = None
        threading.Thread(target=hold, daemon=True).start()
        ready.wait()
    pid = os.fork()
    if pid == 0:
        embedder.words(["child"]); embedder.vectors(["I am a child."] * 2000)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    done.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_embeds_even_if_the_lock_was_held() -> None:
    process = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:This process:DeprecationWarning", "-c", FORKS],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_importing_the_package_loads_neither_numpy_nor_wordllama() -> None:
    script = "import tellback.embed, sys; print({'numpy', 'tokenizers', 'wordllama'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


def test_using_it_loads_no_network_library() -> None:
    script = (
        "from tellback.embed import StaticEmbedder; StaticEmbedder().vectors(['x']); import sys;"
        "print({'wordllama', 'requests', 'huggingface_hub', 'safetensors', 'httpx', 'openai'} & set(sys.modules))"
    )
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "set()"


async def test_embed_returns_the_same_as_vectors(static: StaticEmbedder) -> None:
    for count in (0, 1, 300):
        texts = [f"text {n}" for n in range(count)]
        np.testing.assert_array_equal(await static.embed(texts), static.vectors(texts))
        np.testing.assert_array_equal(await static.embed(texts, query=True), static.vectors(texts))
    await static.close()
    await static.close()


async def test_long_work_and_the_first_use_do_not_block_the_event_loop(
    static: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    compute = weights.StaticWeights.vectors

    def record_texts(self: weights.StaticWeights, texts: list[str]) -> Any:
        threads.append(threading.get_ident())
        return compute(self, texts)

    monkeypatch.setattr(weights.StaticWeights, "vectors", record_texts)
    weights.load_weights()
    await static.embed(["short"])
    assert threads.pop() == threading.get_ident()
    await static.embed(["short"] * 1000)
    assert threads.pop() != threading.get_ident()
    await static.embed(["long " * 20_000])
    assert threads.pop() != threading.get_ident()
    monkeypatch.setattr(weights, "_weights", None)
    await static.embed(["first"])
    assert threads.pop() != threading.get_ident()


@pytest.mark.parametrize("wrong", ["one text", [1], [None], [b"bytes"]])
async def test_anything_but_a_list_of_texts_is_rejected(static: StaticEmbedder, wrong: Any) -> None:
    for call in (static.vectors, static.words):
        with pytest.raises(InvalidArgumentError):
            call(wrong)
    with pytest.raises(InvalidArgumentError):
        await static.embed(wrong)


@pytest.mark.parametrize("damage", ["missing", "no weights", "cut weights", "other weights", "cut tokenizer"])
def test_a_missing_or_damaged_package_raises_configuration_error(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.machinery
    import importlib.util

    spec = None
    if damage != "missing":
        (tmp_path / "weights").mkdir()
        (tmp_path / "tokenizers").mkdir()
        header = b'{"embedding.weight": {"dtype": "F32", "shape": [1, 256], "data_offsets": [0, 1024]}}'
        if damage in ("cut weights", "cut tokenizer"):
            header = header.replace(b"F32", b"F16")
        if damage != "no weights":
            rows = b"\0" * (10 if damage == "cut weights" else 1024)
            (tmp_path / weights._WEIGHTS_FILE).write_bytes(len(header).to_bytes(8, "little") + header + rows)
        (tmp_path / weights._TOKENIZER_FILE).write_text('{"version": ')
        spec = importlib.machinery.ModuleSpec("wordllama", None, is_package=True)
        spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ConfigurationError, match="wordllama"):
        weights._load_files()


def test_it_implements_the_embedder_protocol(static: StaticEmbedder) -> None:
    assert isinstance(static, Embedder)
    assert static.name == "static/wordllama-l2-supercat-256"


@settings(deadline=None)
@given(st.lists(st.sampled_from(["dog", "puppy", "loan", "mortgage"]), min_size=1, max_size=6))
def test_repeated_words_in_one_call_have_equal_vectors(words: list[str]) -> None:
    rows = StaticEmbedder().words(words)
    for word, row in zip(words, rows, strict=True):
        np.testing.assert_array_equal(row, rows[words.index(word)])
