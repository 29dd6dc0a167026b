"""Texts on a page, as somebody wrote them: never as markup."""

from __future__ import annotations

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement


def text_label(text: str) -> ui.label:
    """A text that somebody wrote: line breaks kept, long words broken, its direction found by its letters."""
    return ui.label(text).classes("said").props("dir=auto")


def text_span(text: str) -> TextElement:
    """A piece of running text."""
    return TextElement(tag="span", text=text)


def code_block(text: str) -> TextElement:
    """A text of fixed width, such as JSON or a prompt, that scrolls if it is long."""
    return TextElement(tag="pre", text=text).classes("block").props("tabindex=0 dir=auto")


def note(text: str, *, is_error: bool = False) -> ui.label:
    """A remark beside what was said; what is wrong is told at once to those who do not see it."""
    label = text_label(text).classes("note wrong" if is_error else "note")
    return label.props("role=alert") if is_error else label
