"""Memories as a model reads them: short, dated and cited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tellback.types.memory import Atom, RecallHit, RecallResult

TEXT_LENGTH = 1_000
MESSAGES_CITED = 5
CUT = " […]"
NOTHING = "Nothing like this is remembered."


def described(atom: Atom) -> dict[str, Any]:
    """One memory: what it says, since when and until when, and where it was said."""
    return {
        "id": atom.id,
        "text": shortened(atom.text),
        "date": _written(atom.valid_from),
        "until": None if atom.valid_to is None else _written(atom.valid_to),
        "category": atom.category.name,
        "source": _source(atom),
    }


def recalled(result: RecallResult, also: Callable[[Atom], dict[str, Any]] | None = None) -> dict[str, Any]:
    """What was recalled; `also` adds to each memory. A note says so if there is nothing."""
    memories = [_hit(hit) | (also(hit.atom) if also else {}) for hit in result]
    return {"memories": memories} if memories else {"memories": [], "note": NOTHING}


def counted(result: RecallResult, given: dict[str, Any]) -> dict[str, Any]:
    """With how many more there are than were given, where that is known."""
    more = result.total_candidates - len(result)
    return {**given, "more": more} if more > 0 else given


def standing(atom: Atom, now: datetime) -> dict[str, Any]:
    """Where a memory stands on a timeline, and what took its place."""
    if atom.superseded_by is not None:
        return {"status": "superseded", "superseded_by": atom.superseded_by}
    if atom.valid_to is not None and atom.valid_to <= now:
        return {"status": "over"}
    return {"status": "upcoming" if atom.valid_from > now else "current"}


def shortened(text: str, length: int = TEXT_LENGTH) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= length else text[: length - len(CUT)] + CUT


def _hit(hit: RecallHit) -> dict[str, Any]:
    return {**described(hit.atom), "score": round(hit.score, 3)}


def _source(atom: Atom) -> dict[str, Any] | None:
    if not atom.citations:
        return None
    first = atom.citations[0]
    return {"conversation_id": first.conversation_id, "message_ids": list(first.message_ids[:MESSAGES_CITED])}


def _written(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
