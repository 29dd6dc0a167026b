"""Rank routes by their relevance to a message, by words and embeddings, without a model call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from tellback.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from tellback.memory.recall.index import Floats, Ints
    from tellback.memory.recall.tokenizer import Word

MAX_QUERY_LENGTH = 2_000
"""The number of characters of a query that are used."""

MAX_QUERY_WORDS = 24
"""The number of query words that are compared one by one; the query's vector covers all words."""

WORD_DIMENSIONS = 64
"""The number of dimensions of word vectors that are compared; the first ones carry most of the information."""

MIN_SIMILARITY = 0.3
"""The minimum cosine similarity at which two words count as related."""

MEANING_WEIGHT = 3.0
"""The weight of the cosine of two texts, relative to the share of matching words."""

log = logging.getLogger("tellback.agent")


class TextVectors(Protocol):
    """A synchronous source of vectors for whole texts and single words, such as `StaticEmbedder`."""

    def vectors(self, texts: Sequence[str]) -> Floats: ...

    def words(self, words: Sequence[str]) -> Floats: ...


class TextRanker:
    """Ranks texts by their relevance to a query, by words and vectors, without a model call.

    It uses the bundled embedder or the given `embedder`; if the bundled one cannot be loaded, it compares only word
    stems. It is thread-safe.

    >>> TextRanker(["Book a flight", "Cancel a subscription", "Reserve a table"]).rank("we'd like to dine at eight")
    [2, 0, 1]
    """

    def __init__(self, texts: Sequence[str], *, embedder: TextVectors | None = None) -> None:
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise InvalidArgumentError(f"texts must be a list of strings, got {texts!r:.80}.")
        self._texts = tuple(texts)
        self._embedder = embedder

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def is_ready(self) -> bool:
        """Whether the index is built."""
        return len(self) < 2 or "_index" in self.__dict__

    def prepare(self) -> None:
        """Build the index and load the vectors now, not at the first `rank`: up to half a second, once per process."""
        if len(self) > 1:
            _ = self._index

    def rank(self, query: str) -> list[int]:
        """Return the indices of all texts, the most relevant first.

        Equally relevant texts keep their order, and so do all texts if the query has no content words, as in "yes, do
        it".
        """
        from tellback.memory.recall.tokenizer import extract_words

        query = query[:MAX_QUERY_LENGTH]
        query_words = list({word.term: word for word in extract_words(query)}.values())
        if not query_words or len(self) < 2:
            return list(range(len(self)))
        return self._index.rank(query, query_words)

    @cached_property
    def _index(self) -> _RankingIndex:
        # Two threads may both build it; the results are equal.
        return _RankingIndex(self._texts, _load_bundled_embedder() if self._embedder is None else self._embedder)


class _RankingIndex:
    """The words and vectors of the texts, as arrays."""

    def __init__(self, texts: Sequence[str], embedder: TextVectors | None) -> None:
        import numpy as np

        from tellback.memory.recall.index import GrowableArray, Postings
        from tellback.memory.recall.tokenizer import tokenize

        self._size = len(texts)
        self._embedder = embedder
        self._postings = postings = Postings()
        found = [[postings.tokens[token] for token in tokenize(text)] for text in texts]
        postings.add(0, [number for numbers in found for number in numbers], [len(numbers) for numbers in found])
        postings.merge_pending()
        if embedder is not None:
            self._words = np.ascontiguousarray(_truncate_vectors(embedder.words(postings.forms)).T)
            rows = embedder.vectors(texts)
            self._vectors = GrowableArray(np.float32, rows.shape[1])
            self._vectors.extend(rows)

    def rank(self, query: str, query_words: Sequence[Word]) -> list[int]:
        import numpy as np

        scores = self._score_overlap(self._select_rarest(query_words))
        if self._embedder is not None:
            scores += np.float32(MEANING_WEIGHT) * self._vectors.dot(self._embedder.vectors([query])[0])
        order: list[int] = np.argsort(-scores, kind="stable").tolist()
        return order

    def _select_rarest(self, query_words: Sequence[Word]) -> Sequence[Word]:
        """Select the words that occur in the fewest texts; words that occur in none come last."""
        if len(query_words) <= MAX_QUERY_WORDS:
            return query_words
        terms, spread = self._postings.terms, self._postings.document_frequencies
        text_counts = [int(spread[terms[word.term]]) if word.term in terms else self._size + 1 for word in query_words]
        return [
            query_words[at]
            for at in sorted(sorted(range(len(query_words)), key=text_counts.__getitem__)[:MAX_QUERY_WORDS])
        ]

    def _score_overlap(self, query_words: Sequence[Word]) -> Floats:
        """Return the share of the query that each text matches, from 0 to 1, with rare words weighted higher."""
        import numpy as np

        postings = self._postings
        numbers = np.array([postings.terms.get(word.term, -1) for word in query_words], np.int64)
        known = np.flatnonzero(numbers >= 0)
        word_indices, terms, strength = self._find_similar_terms(query_words)
        at, lengths = postings.lookup(np.concatenate((terms, numbers[known])))
        word_indices = np.concatenate((word_indices, known)).repeat(lengths)
        best = np.zeros((len(query_words), self._size), np.float32)
        # If an index repeats, the last value is assigned, and it is the greatest.
        best[word_indices, postings.rows[at]] = np.concatenate((strength, np.ones(len(known), np.float32))).repeat(
            lengths
        )
        spread = np.zeros(len(query_words))
        spread[known] = postings.document_frequencies[numbers[known]]
        rarity = np.log1p((self._size - spread + 0.5) / (spread + 0.5))
        rarity /= rarity.sum()
        # Not a matrix product, which may give equal texts slightly different numbers.
        shares: Floats = (rarity.astype(np.float32)[:, None] * best).sum(axis=0)
        return shares

    def _find_similar_terms(self, query_words: Sequence[Word]) -> tuple[Ints, Ints, Floats]:
        """Find terms of similar meaning: indices of query words, terms and similarities, in ascending similarity."""
        import numpy as np

        if self._embedder is None:
            nothing = np.zeros(0, np.int64)
            return nothing, nothing, np.zeros(0, np.float32)
        similarities = _truncate_vectors(self._embedder.words([word.form for word in query_words])) @ self._words
        word_indices, terms = np.nonzero(similarities >= MIN_SIMILARITY)
        strength = similarities[word_indices, terms]
        order = np.argsort(strength, kind="stable")
        return word_indices[order], terms[order], strength[order]


def _truncate_vectors(vectors: Floats) -> Floats:
    from tellback.embed.vectors import normalize_rows

    return normalize_rows(vectors[:, :WORD_DIMENSIONS].copy())


def _load_bundled_embedder() -> TextVectors | None:
    try:
        from tellback.embed import static
        from tellback.embed.static import StaticEmbedder

        static.load_weights()
    except (ConfigurationError, ImportError) as error:
        log.warning("Ranking routes by words only, because the bundled embedder cannot be loaded: %s", error)
        return None
    return StaticEmbedder()
