"""Names that every provider takes, for tools whose servers name them as they like."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence

MAX_TOOL_NAME = 64
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


def assign_legal_names(names: Sequence[str], prefix: str | None = None) -> dict[str, str]:
    """A name for each of the servers' names: legal, different from all others, and the same every time.

    What no provider takes becomes `_`. Where two would be called the same, or one is too long, those that were
    changed end in a digest of their own name.

    >>> assign_legal_names(["read", "files.read"], prefix="disk")
    {'read': 'disk_read', 'files.read': 'disk_files_read'}
    """
    wanted = {name: f"{prefix}_{name}" if prefix else name for name in names}
    cleaned = {name: _ILLEGAL.sub("_", wish) for name, wish in wanted.items()}
    counts = Counter(cleaned.values())
    return {
        name: clean
        if len(clean) <= MAX_TOOL_NAME and (clean == wanted[name] or counts[clean] == 1)
        else _append_digest(clean, name)
        for name, clean in cleaned.items()
    }


def _append_digest(clean: str, name: str) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{clean[: MAX_TOOL_NAME - 11]}_{digest}"
