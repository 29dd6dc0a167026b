"""Memories as a model reads them: short, dated and cited."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from tellback.types.memory import Atom, RecallHit, RecallResult

MAX_RESULT_TEXT = 1_000
MAX_CITED_MESSAGES = 5
RESULT_CUT = " […]"
NOTHING_FOUND = "Nothing like this is remembered."


def render_atom(atom: Atom) -> dict[str, Any]:
    """One memory: what it says, since when and until when, and where it was said."""
    return {
        "id": atom.id,
        "text": truncate_text(atom.text),
        "date": _format_moment(atom.valid_from),
        "until": None if atom.valid_to is None else _format_moment(atom.valid_to),
        "category": atom.category.name,
        "source": _render_source(atom),
    }


def render_recall(result: RecallResult, extra: Callable[[Atom], dict[str, Any]] | None = None) -> dict[str, Any]:
    """What was recalled; `also` adds to each memory. A note says so if there is nothing."""
    memories = [_render_hit(hit) | (extra(hit.atom) if extra else {}) for hit in result]
    return {"memories": memories} if memories else {"memories": [], "note": NOTHING_FOUND}


def add_remaining_count(result: RecallResult, rendered: dict[str, Any]) -> dict[str, Any]:
    """With how many more there are than were given, where that is known."""
    remaining = result.total_candidates - len(result)
    return {**rendered, "more": remaining} if remaining > 0 else rendered


def timeline_status(atom: Atom, now: datetime) -> dict[str, Any]:
    """Where a memory stands on a timeline, and what took its place."""
    if atom.superseded_by is not None:
        return {"status": "superseded", "superseded_by": atom.superseded_by}
    if atom.valid_to is not None and atom.valid_to <= now:
        return {"status": "over"}
    return {"status": "upcoming" if atom.valid_from > now else "current"}


def truncate_text(text: str, length: int = MAX_RESULT_TEXT) -> str:
    """A text, cut if it is long."""
    return text if len(text) <= length else text[: length - len(RESULT_CUT)] + RESULT_CUT


def _render_hit(hit: RecallHit) -> dict[str, Any]:
    return {**render_atom(hit.atom), "score": round(hit.score, 3)}


def _render_source(atom: Atom) -> dict[str, Any] | None:
    if not atom.citations:
        return None
    first = atom.citations[0]
    return {"conversation_id": first.conversation_id, "message_ids": list(first.message_ids[:MAX_CITED_MESSAGES])}


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
