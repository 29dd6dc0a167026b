"""What the servers of this process said of themselves: the fixtures write it, the table reads it."""

from __future__ import annotations

SERVER_VERSIONS: dict[str, str] = {}
