"""A griffe extension for the site: it turns doctests in docstrings into code blocks.

Without it, Markdown would read `>>>` as three nested quotations.
"""

from __future__ import annotations

from typing import Any

import griffe


def fence(text: str) -> str:
    """Return the text with each group of doctest lines (from a prompt to a blank line) as a fenced block."""
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
    """Fences the doctests of every docstring, and hides members that matter only to readers of the code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Fence the doctests of a module, class, function or attribute; called by griffe."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Hide attributes that only repeat a parameter; called by griffe."""
        for name, member in list(cls.members.items()):
            if (member.is_special and name != "__init__") or _is_parameter(cls, member):
                cls.del_member(name)


def _is_parameter(cls: griffe.Class, member: griffe.Object | griffe.Alias) -> bool:
    """Whether the attribute is an undocumented `self.name = name`: the signature shows the parameter."""
    is_set = isinstance(member, griffe.Attribute) and member.docstring is None and member.value is not None
    return is_set and "dataclass" not in cls.labels and any(member.name == each.name for each in cls.parameters)
