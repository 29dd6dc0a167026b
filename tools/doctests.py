"""For the site: the examples in docstrings, which are doctests, become blocks of code.

Without this, Markdown takes a `>>>` for three quotations.
"""

from __future__ import annotations

from typing import Any

import griffe


def fence(text: str) -> str:
    """The text with each run of doctest lines, from a prompt to a blank line, as a fenced block."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if inside and not line.strip():
            lines.append("```")
            inside = False
        elif not inside and line.startswith(">>> "):
            lines.append("```pycon")
            inside = True
        lines.append(line)
    if inside:
        lines.append("```")
    return "\n".join(lines)


class Doctests(griffe.Extension):
    """Fences the doctests of every docstring that griffe reads, and leaves methods such as `__repr__` out."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.is_special:
            obj.public = False
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)
