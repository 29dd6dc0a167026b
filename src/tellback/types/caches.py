"""What a process keeps of the words it has met, so that all of it can be forgotten at once."""

from __future__ import annotations

from collections.abc import Callable

_cache_clearers: list[Callable[[], object]] = []


def register_cache(clear: Callable[[], object]) -> None:
    """Have `clear` called when words are to be forgotten: every cache that holds texts of users says so here."""
    _cache_clearers.append(clear)


def clear_text_caches() -> None:
    """Empty all of them. They fill again by themselves."""
    for clear in _cache_clearers:
        clear()
