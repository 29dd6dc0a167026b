"""`StaticEmbedder`: the bundled embedder, which needs neither a download nor a network.

A text's vector is the mean of wordllama's vectors of its tokens. This module reads the two data files of the
`wordllama` package directly, in 90 ms and 24 MB. The package's own loader makes the same vectors (a test checks this),
but needs 340 ms and 96 MB besides numpy, imports requests and configures the root logger."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import threading
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tellback.embed.vectors import SURROGATES, Vectors, normalize_rows, validate_texts
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSIONS = 256
_WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
_TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"

_SPACE = "▁"
"""The character that stands for a space in the vocabulary. The token of a word begins with it."""
_SPACE_ID = 29871
_FIRST_WORD_ID = 259
"""Smaller token ids are control tokens and single bytes, which represent unknown text."""
_FREQUENT_TOKENS = slice(_FIRST_WORD_ID, _FIRST_WORD_ID + 4096)
"""The vocabulary is sorted by frequency; the mean of its first tokens is the common part of all words."""

_SPECIAL_TOKEN = re.compile(r"<s>|</s>|<unk>")
_SPACED_PIECE = re.compile(r" +[^ ]*")

_MAX_CACHED_PIECES = 20_000
_MAX_CACHED_PIECE_LENGTH = 32
_MAX_PIECE_LENGTH = 4096
_MAX_CACHED_WORDS = 20_000
_MAX_WORD_LENGTH = 64
_BATCH_TOKENS = 32_768

MAX_INLINE_TEXTS = 256
MAX_INLINE_CHARACTERS = 50_000


class StaticWeights:
    """The loaded files and the caches. Any number of threads may use it at the same time."""

    def __init__(self, token_vectors: NDArray[np.float16], tokenizer: Tokenizer) -> None:
        self._token_vectors = token_vectors
        self._tokenizer = tokenizer
        self._bpe = tokenizer.model
        self._piece_cache: dict[str, Sequence[int]] = {}
        self._word_cache = _WordVectorCache()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors of texts; a blank text gets zeros."""
        sums = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        batch: list[tuple[int, list[int]]] = []
        size = 0
        for index, text in enumerate(texts):
            ids = self.token_ids(text)
            if ids:
                batch.append((index, ids))
                size += len(ids)
            if size > _BATCH_TOKENS:
                self._sum_token_vectors(batch, sums)
                batch, size = [], 0
        if batch:
            self._sum_token_vectors(batch, sums)
        # The rows are normalised, so sums give the same result as means.
        return normalize_rows(sums)

    def words(self, words: Sequence[str]) -> Vectors:
        """Return unit vectors of single words, without the common part of all words.

        Unknown words and texts too long for a word get zeros.
        """
        cache = self._word_cache
        positions = list(map(cache.positions.get, words))
        if None in positions:
            distinct = dict.fromkeys(words)
            if len(distinct) > _MAX_CACHED_WORDS:
                return self._word_vectors(words)
            with _weights_lock:
                cache = self._word_cache
                new_words = [word for word in distinct if word not in cache.positions]
                if len(cache.positions) + len(new_words) > _MAX_CACHED_WORDS:
                    # A new cache, because other threads may still read rows of the old one.
                    cache = self._word_cache = _WordVectorCache()
                    new_words = list(distinct)
                cache.add(new_words, self._word_vectors(new_words))
            positions = list(map(cache.positions.get, words))
        return cache.rows.take(positions, axis=0)  # type: ignore[arg-type]

    def token_ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, the same as the tokenizer's; a blank text has no tokens.

        The tokenizer reads a whole text as one word. But no token of the vocabulary has a space after a letter, so a
        text can be read word by word, and the words can be cached.
        """
        if not text or text.isspace():
            return []
        text = text.replace(_SPACE, " ")
        if "<" in text and _SPECIAL_TOKEN.search(text):
            return self._tokenizer.encode(SURROGATES.sub("\ufffd", text), add_special_tokens=False).ids
        if "  " in text or text[0] == " ":
            pieces = [piece[1:].replace(" ", _SPACE) for piece in _SPACED_PIECE.findall(" " + text)]
        else:
            pieces = text.split(" ")
        cache = self._piece_cache
        token_ids: list[int] = []
        for piece in pieces:
            ids = cache.get(piece)
            token_ids += self._tokenize_piece(piece) if ids is None else ids
        return token_ids

    def _tokenize_piece(self, piece: str) -> Sequence[int]:
        """Return the token ids of a piece that follows a space."""
        if not piece:
            return (_SPACE_ID,)
        clean = _SPACE + (piece if piece.isascii() else SURROGATES.sub("\ufffd", piece))
        # A word of the vocabulary is one token; this lookup is ten times faster.
        whole_id = self._tokenizer.token_to_id(clean) if len(piece) <= _MAX_CACHED_PIECE_LENGTH else None
        if whole_id is not None:
            ids: Sequence[int] = (whole_id,)
        else:
            # Split, because the tokenizer blocks the whole process while it runs.
            parts = [clean[start : start + _MAX_PIECE_LENGTH] for start in range(0, len(clean), _MAX_PIECE_LENGTH)]
            ids = tuple([token.id for part in parts for token in self._bpe.tokenize(part)])
        if len(piece) <= _MAX_CACHED_PIECE_LENGTH:
            if len(self._piece_cache) >= _MAX_CACHED_PIECES:
                self._piece_cache = {}
            self._piece_cache[piece] = ids
        return ids

    def _sum_token_vectors(self, batch: Sequence[tuple[int, list[int]]], sums: Vectors) -> None:
        """Write the sum of the vectors of each text's tokens into its row of `sums`."""
        if len(batch) == 1 and len(batch[0][1]) < _BATCH_TOKENS:
            index, ids = batch[0]
            sums[index] = self._token_vectors.take(ids, axis=0).astype(np.float32).sum(axis=0)
            return
        # Converting half floats is slow, so each distinct token is converted once.
        flat = np.fromiter(chain.from_iterable(ids for _, ids in batch), dtype=np.intp)
        distinct, positions = np.unique(flat, return_inverse=True)
        table = self._token_vectors.take(distinct, axis=0).astype(np.float32)
        start = 0
        for index, ids in batch:
            used = positions[start : start + len(ids)]
            start += len(ids)
            if len(ids) > len(distinct):
                sums[index] = np.bincount(used, minlength=len(distinct)).astype(np.float32) @ table
            else:
                sums[index] = table.take(used, axis=0).sum(axis=0)

    def _word_vectors(self, words: Sequence[str]) -> Vectors:
        ids: list[int] = []
        starts: list[int] = []
        known: list[int] = []
        token_to_id = self._tokenizer.token_to_id
        for index, word in enumerate(words):
            if len(word) > _MAX_WORD_LENGTH:
                continue
            # As in `token_ids`, but without checks for spaces and control tokens, which few words need.
            id = token_to_id(_SPACE + word) if word.isascii() else None
            if id is not None and id != _SPACE_ID:
                tokens: Sequence[int] = (id,)
            else:
                tokens = self.token_ids(word)
                if not any(token >= _FIRST_WORD_ID and token != _SPACE_ID for token in tokens):
                    continue
            known.append(index)
            starts.append(len(ids))
            ids += tokens
        vectors = np.zeros((len(words), DIMENSIONS), dtype=np.float32)
        if known:
            rows = self._token_vectors.take(ids, axis=0).astype(np.float32)
            first = np.array(starts)
            counts = np.diff(first, append=len(ids))
            means = rows.take(first, axis=0)
            for position in range(1, int(counts.max())):  # all second tokens, then all third: faster than reduceat
                longer = np.flatnonzero(counts > position)
                means[longer] += rows.take(first[longer] + position, axis=0)
            means /= counts.astype(np.float32)[:, None]
            means -= self._mean_word_vector
            vectors[known] = normalize_rows(means)
        return vectors

    @cached_property
    def _mean_word_vector(self) -> Vectors:
        mean: Vectors = self._token_vectors[_FREQUENT_TOKENS].mean(axis=0, dtype=np.float32)
        return mean


class _WordVectorCache:
    """Cached vectors of words. A word's position is set only after its row is written; no row is written twice."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        # The system provides memory only for written rows.
        self.rows: Vectors = np.empty((_MAX_CACHED_WORDS, DIMENSIONS), dtype=np.float32)

    def add(self, words: Sequence[str], vectors: Vectors) -> None:
        start = len(self.positions)
        self.rows[start : start + len(words)] = vectors
        self.positions.update(zip(words, range(start, start + len(words)), strict=True))


_weights: StaticWeights | None = None
_weights_lock = threading.RLock()


def weights_loaded() -> bool:
    """Whether the weights are loaded already."""
    return _weights is not None


def load_weights() -> StaticWeights:
    """Return the process's weights; the first call loads them."""
    global _weights
    if _weights is None:
        with _weights_lock:
            if _weights is None:
                _weights = _load_files()
    return _weights


def _reset_weights_lock() -> None:
    """Replace the lock after a fork, since the thread that may hold it does not exist here."""
    global _weights_lock
    _weights_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_weights_lock)


def _load_files() -> StaticWeights:
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec("wordllama")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ConfigurationError("The static embedder needs the package 'wordllama': pip install wordllama.")
    folder = Path(folders[0])
    try:
        rows = _map_matrix(folder / _WEIGHTS_FILE)
        tokenizer = Tokenizer.from_buffer((folder / _TOKENIZER_FILE).read_bytes())
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"The files of the package 'wordllama' cannot be read: {error}."
            " Install it again: pip install --force-reinstall --no-deps wordllama==0.4.0.post1."
        ) from error
    return StaticWeights(rows, tokenizer)


def _map_matrix(path: Path) -> NDArray[np.float16]:
    """Map the matrix of a safetensors file into memory. Pages are read when needed, and processes share them."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(min(size, 100_000)))["embedding.weight"]
    if entry["dtype"] != "F16" or entry["shape"][1] != DIMENSIONS:
        raise ValueError(f"{path.name} has {entry['dtype']} of shape {entry['shape']}")
    mapped = np.memmap(
        path, dtype="<f2", mode="r", offset=8 + size + entry["data_offsets"][0], shape=tuple(entry["shape"])
    )
    return mapped.view(np.ndarray)


class StaticEmbedder:
    """The default embedder: 256 dimensions, no download, no network, a few microseconds per text.

    The weights are loaded when first used, once per process. Any thread may use it.

    >>> vectors = StaticEmbedder().vectors(["I adopted a puppy.", "We got a dog.", "The bank is closed."])
    >>> bool(vectors[0] @ vectors[1] > vectors[0] @ vectors[2])
    True
    """

    @property
    def name(self) -> str:
        """The name that is stored with the vectors."""
        return f"static/wordllama-l2-supercat-{DIMENSIONS}"

    def __repr__(self) -> str:
        return "StaticEmbedder()"

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """Return the vectors of the texts; long work runs in a thread, and `query` makes no difference."""
        texts = validate_texts(texts)
        is_small = len(texts) <= MAX_INLINE_TEXTS and sum(map(len, texts)) <= MAX_INLINE_CHARACTERS
        if is_small and weights_loaded():
            return load_weights().vectors(texts)
        return await asyncio.to_thread(self.vectors, texts)

    async def close(self) -> None:
        """Do nothing: the process keeps the weights."""

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, computed in the calling thread."""
        return load_weights().vectors(validate_texts(texts))

    def words(self, words: Sequence[str]) -> Vectors:
        """Return unit vectors for comparing single words, without the common part of all words; zeros if unknown.

        >>> movie, film, cheese = StaticEmbedder().words(["movie", "film", "cheese"])
        >>> bool(movie @ film > 0.5 > movie @ cheese)
        True
        """
        return load_weights().words(validate_texts(words))
