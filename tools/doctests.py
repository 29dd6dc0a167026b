"""For the site: docstrings as pages. Their examples, which are doctests, become blocks of code.

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
    """Fences the doctests of every docstring that griffe reads, and leaves out what only a reader of the code needs."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called by griffe for each class."""
        for name, member in list(cls.members.items()):
            if (member.is_special and name != "__init__") or _is_parameter(cls, member):
                cls.del_member(name)


def _is_parameter(cls: griffe.Class, member: griffe.Object | griffe.Alias) -> bool:
    """Whether that is `self.name = name` without a word on it: the parameter is in the signature."""
    is_set = isinstance(member, griffe.Attribute) and member.docstring is None and member.value is not None
    return is_set and "dataclass" not in cls.labels and any(member.name == each.name for each in cls.parameters)
