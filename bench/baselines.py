"""The baselines that recall is compared with: ranking by words alone, and by vectors alone."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import Stemmer

K1 = 0.9
B = 0.4

_WORD = re.compile(r"[^\W_]+")
STOPWORDS = frozenset(
    _WORD.findall(
        """
    a about above after again all also am an and any are as at be because been before being below between both but by
    can could did do does doing down during each few for from further had has have having he her here hers herself him
    himself his how i if in into is it its itself just let me more most my myself no nor not now of off on once only or
    other our ours ourselves out over own same she should so some such than that the their theirs them themselves then
    there these they this those through to too under until up very was we were what when where which while who whom why
    will with would you your yours yourself yourselves d ll m re s t ve
    """,
    )
)
_STEMMER = Stemmer.Stemmer("english")


def terms(text: str) -> list[str]:
    """Return the stems of a text without its stop words."""
    words = [word for word in _WORD.findall(text.lower()) if word not in STOPWORDS]
    stems: list[str] = _STEMMER.stemWords(words)
    return stems


class Bm25:
    """Okapi's BM25 over stems."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(terms(text)) for text in texts]
        lengths = np.array([count.total() for count in counts], dtype=np.float64)
        norms = K1 * (1 - B + B * lengths / max(lengths.mean(), 1e-9))
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, count in enumerate(counts):
            for term, frequency in count.items():
                postings[term].append((row, frequency))
        self._size = len(texts)
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for term, entries in postings.items():
            rows = np.array([row for row, _ in entries])
            frequencies = np.array([frequency for _, frequency in entries], dtype=np.float64)
            idf = math.log(1 + (len(texts) - len(entries) + 0.5) / (len(entries) + 0.5))
            self._weights[term] = rows, idf * frequencies * (K1 + 1) / (frequencies + norms[rows])

    def scores(self, query: str) -> np.ndarray:
        """Return one score for each text."""
        scores = np.zeros(self._size)
        for term in terms(query):
            if term in self._weights:
                rows, weights = self._weights[term]
                scores[rows] += weights
        return scores


def rank_ids(scores: np.ndarray, ids: Sequence[str]) -> list[str]:
    """Return the ids, best first; ties keep their order."""
    return [ids[row] for row in np.argsort(-scores, kind="stable")]
