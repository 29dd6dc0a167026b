"""Ranking, as pure functions over arrays: no I/O, so that every store ranks alike."""
