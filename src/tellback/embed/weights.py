"""wordllama's token vectors: a text's vector is the mean of its tokens' vectors.

The two data files of the `wordllama` package are read directly. Its own loader gives the same vectors (a test holds
that), but takes some 340 ms and 96 MB beyond numpy, imports requests, and configures the root logger; this takes 90 ms
and 24 MB.
"""

from __future__ import annotations

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

from tellback.embed.vectors import Vectors, unit_rows
from tellback.errors import ConfigurationError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DIMENSIONS = 256
_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

_SPACE = "▁"
"""How the vocabulary writes a space. A word's token begins with it."""
_SPACE_ID = 29871
_FIRST_PIECE = 259
"""Tokens before it stand for signs of the model's own and for single bytes: what no token is known for."""
_FREQUENT = slice(_FIRST_PIECE, _FIRST_PIECE + 4096)
"""The vocabulary is ordered by frequency; the mean of its head is what all words have in common."""

_SPECIAL = re.compile(r"<s>|</s>|<unk>")
_SPACED = re.compile(r" +[^ ]*")
_SURROGATES = re.compile(r"[\ud800-\udfff]")

_PIECES_KEPT = 20_000
_LONGEST_KEPT = 32
_LONGEST_PIECE = 4096
_WORDS_KEPT = 20_000
_LONGEST_WORD = 64
_TOKENS_AT_ONCE = 32_768


class StaticWeights:
    """The loaded files, and what was worked out from them. Any number of threads may use it at once."""

    def __init__(self, rows: NDArray[np.float16], tokenizer: Tokenizer) -> None:
        self._rows = rows
        self._tokenizer = tokenizer
        self._bpe = tokenizer.model
        self._pieces: dict[str, Sequence[int]] = {}
        self._words = _WordTable()

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of texts; zero for a blank one."""
        sums = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        batch: list[tuple[int, list[int]]] = []
        size = 0
        for index, text in enumerate(texts):
            ids = self.token_ids(text)
            if ids:
                batch.append((index, ids))
                size += len(ids)
            if size > _TOKENS_AT_ONCE:
                self._add_up(batch, sums)
                batch, size = [], 0
        if batch:
            self._add_up(batch, sums)
        # The lengths become 1, so sums will do for means.
        return unit_rows(sums)

    def words(self, words: Sequence[str]) -> Vectors:
        """Unit vectors of single words, less what all words have in common.

        Zero for what no token is known for, and for what is too long to be a word.
        """
        table = self._words
        places = list(map(table.places.get, words))
        if None in places:
            distinct = dict.fromkeys(words)
            if len(distinct) > _WORDS_KEPT:
                return self._word_vectors(words)
            with _lock:
                table = self._words
                fresh = [word for word in distinct if word not in table.places]
                if len(table.places) + len(fresh) > _WORDS_KEPT:
                    # A new one, because others may still be reading rows of the old one.
                    table = self._words = _WordTable()
                    fresh = list(distinct)
                table.add(fresh, self._word_vectors(fresh))
            places = list(map(table.places.get, words))
        return table.rows.take(places, axis=0)  # type: ignore[arg-type]

    def token_ids(self, text: str) -> list[int]:
        """The tokens of a text, as its tokenizer gives them; none for blank text.

        The tokenizer takes a whole text as one word. But no token of the vocabulary has a space after a letter, so a
        text can be read word by word, and the words can be kept.
        """
        if not text or text.isspace():
            return []
        text = text.replace(_SPACE, " ")
        if "<" in text and _SPECIAL.search(text):
            return self._tokenizer.encode(_SURROGATES.sub("\ufffd", text), add_special_tokens=False).ids
        if "  " in text or text[0] == " ":
            pieces = [piece[1:].replace(" ", _SPACE) for piece in _SPACED.findall(" " + text)]
        else:
            pieces = text.split(" ")
        kept = self._pieces
        found: list[int] = []
        for piece in pieces:
            ids = kept.get(piece)
            found += self._read(piece) if ids is None else ids
        return found

    def _read(self, piece: str) -> Sequence[int]:
        """The tokens of a piece that comes after a space."""
        if not piece:
            return (_SPACE_ID,)
        clean = _SPACE + (piece if piece.isascii() else _SURROGATES.sub("\ufffd", piece))
        # A word of the vocabulary is its own token, and found ten times faster so.
        whole = self._tokenizer.token_to_id(clean) if len(piece) <= _LONGEST_KEPT else None
        if whole is not None:
            ids: Sequence[int] = (whole,)
        else:
            # Cut, because nothing else can run in the process while the tokenizer does.
            parts = [clean[start : start + _LONGEST_PIECE] for start in range(0, len(clean), _LONGEST_PIECE)]
            ids = tuple([token.id for part in parts for token in self._bpe.tokenize(part)])
        if len(piece) <= _LONGEST_KEPT:
            if len(self._pieces) >= _PIECES_KEPT:
                self._pieces = {}
            self._pieces[piece] = ids
        return ids

    def _add_up(self, batch: Sequence[tuple[int, list[int]]], sums: Vectors) -> None:
        """Write the sum of the vectors of each text's tokens into its row of `sums`."""
        if len(batch) == 1 and len(batch[0][1]) < _TOKENS_AT_ONCE:
            index, ids = batch[0]
            sums[index] = self._rows.take(ids, axis=0).astype(np.float32).sum(axis=0)
            return
        # Half floats are slow to widen, so each token that occurs is widened once.
        flat = np.fromiter(chain.from_iterable(ids for _, ids in batch), dtype=np.intp)
        distinct, positions = np.unique(flat, return_inverse=True)
        table = self._rows.take(distinct, axis=0).astype(np.float32)
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
        whole = self._tokenizer.token_to_id
        for index, word in enumerate(words):
            if len(word) > _LONGEST_WORD:
                continue
            # As in `_read`, but most words need not be looked at for spaces and signs first.
            id = whole(_SPACE + word) if word.isascii() else None
            if id is not None and id != _SPACE_ID:
                tokens: Sequence[int] = (id,)
            else:
                tokens = self.token_ids(word)
                if not any(token >= _FIRST_PIECE and token != _SPACE_ID for token in tokens):
                    continue
            known.append(index)
            starts.append(len(ids))
            ids += tokens
        vectors = np.zeros((len(words), DIMENSIONS), dtype=np.float32)
        if known:
            rows = self._rows.take(ids, axis=0).astype(np.float32)
            first = np.array(starts)
            counts = np.diff(first, append=len(ids))
            means = rows.take(first, axis=0)
            for position in range(1, int(counts.max())):  # all second tokens, all third ones: reduceat is far slower
                longer = np.flatnonzero(counts > position)
                means[longer] += rows.take(first[longer] + position, axis=0)
            means /= counts.astype(np.float32)[:, None]
            means -= self._common
            vectors[known] = unit_rows(means)
        return vectors

    @cached_property
    def _common(self) -> Vectors:
        common: Vectors = self._rows[_FREQUENT].mean(axis=0, dtype=np.float32)
        return common


class _WordTable:
    """Vectors of words seen before. A word's place is told only after its row is written; no row is written twice."""

    def __init__(self) -> None:
        self.places: dict[str, int] = {}
        self.rows: Vectors = np.empty((_WORDS_KEPT, DIMENSIONS), dtype=np.float32)  # takes memory as it fills

    def add(self, words: Sequence[str], vectors: Vectors) -> None:
        start = len(self.places)
        self.rows[start : start + len(words)] = vectors
        self.places.update(zip(words, range(start, start + len(words)), strict=True))


_loaded: StaticWeights | None = None
_lock = threading.RLock()


def loaded() -> bool:
    """Whether `load` will answer at once."""
    return _loaded is not None


def load() -> StaticWeights:
    """The process's weights, read when first asked for."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                _loaded = _read_files()
    return _loaded


def _forget_lock() -> None:
    """In a fork: the thread that held the lock is not here to let go of it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_lock)


def _read_files() -> StaticWeights:
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec("wordllama")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ConfigurationError("The static embedder needs the package 'wordllama': pip install wordllama.")
    folder = Path(folders[0])
    try:
        rows = _map_rows(folder / _WEIGHTS)
        tokenizer = Tokenizer.from_buffer((folder / _TOKENIZER).read_bytes())
    except (OSError, ValueError, KeyError) as error:
        raise ConfigurationError(
            f"The files of the package 'wordllama' cannot be read: {error}."
            " Install it again: pip install --force-reinstall --no-deps wordllama==0.4.0.post1."
        ) from error
    return StaticWeights(rows, tokenizer)


def _map_rows(path: Path) -> NDArray[np.float16]:
    """The one matrix of a safetensors file, mapped: pages are read as their tokens occur, and shared by processes."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(min(size, 100_000)))["embedding.weight"]
    if entry["dtype"] != "F16" or entry["shape"][1] != DIMENSIONS:
        raise ValueError(f"{path.name} holds {entry['dtype']} of shape {entry['shape']}")
    mapped = np.memmap(
        path, dtype="<f2", mode="r", offset=8 + size + entry["data_offsets"][0], shape=tuple(entry["shape"])
    )
    return mapped.view(np.ndarray)
