"""What a model wrote, with the marks that models write: headings, lists, code, emphasis, links, numbers of memories.

It is read into values and drawn as elements that hold text. No markup of the writer's reaches the page, and a link
leads to `http` or `https` only: whatever else looks like one stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from tellback.console import widgets
from tellback.console.parts import block

LONGEST, MOST_PIECES = 50_000, 2_000
"""A text that is longer, or has more pieces, is shown as it is."""
DEEPEST = 4

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"^(#{1,6}) +(\S.*)$")
_ITEM = re.compile(r"^( {0,12})([-*+]|\d{1,3}[.)]) +(\S.*)$")
_SPAN = re.compile(
    r"`(?P<code>[^`\n]{1,500})`"
    r"|\*\*(?P<strong>(?=\S)[^*\n]{1,500}(?<=\S))\*\*"
    r"|(?<![\w*])\*(?P<em>(?=\S)[^*\n]{1,500}(?<=\S))\*(?![\w*])"
    r"|\[(?P<label>[^\[\]\n]{1,300})\]\((?P<target>https?://[^\s()]{1,1000})\)"
    r"|\[(?P<cite>\d{1,3})\](?!\()"
    r"|(?P<url>https?://[^\s<>()\"'`]{1,1000}[^\s<>()\"'`.,;:!?])"
)


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line: `kind` is "", "code", "strong", "em", "link" (to `target`) or "cite" (of number `target`)."""

    text: str
    kind: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a text: `kind` is "text", "heading", "item" (with its `mark`, so many levels `deep`) or "code"."""

    kind: str
    text: str
    mark: str = ""
    deep: int = 0

    @property
    def spans(self) -> list[Span]:
        """Its text, with what is marked in it."""
        return [Span(self.text)] if self.kind == "code" else spans_of(self.text)


def spans_of(text: str) -> list[Span]:
    """A line in pieces.

    >>> [span.kind for span in spans_of("See **this** [1], and `that`.")]
    ['', 'strong', '', 'cite', '', 'code', '']
    """
    found: list[Span] = []
    end = 0
    for match in _SPAN.finditer(text):
        if match.start() > end:
            found.append(Span(text[end : match.start()]))
        found.append(_span(match))
        end = match.end()
    if end < len(text):
        found.append(Span(text[end:]))
    return found


def _span(match: re.Match[str]) -> Span:
    for kind in ("code", "strong", "em"):
        if match[kind] is not None:
            return Span(match[kind], kind)
    if match["cite"] is not None:
        return Span(match[0], "cite", match["cite"])
    return Span(match["label"] or match["url"], "link", match["target"] or match["url"])


def blocks_of(text: str) -> list[Block]:
    """A text in blocks; nothing of it is left out but the marks and empty lines.

    >>> [(block.kind, block.text) for block in blocks_of("# Plan\\n- pack\\n- go\\n\\nThat is all.")]
    [('heading', 'Plan'), ('item', 'pack'), ('item', 'go'), ('text', 'That is all.')]
    """
    return list(_blocks(text.replace("\r\n", "\n").split("\n")))


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    place = 0
    while place < len(lines):
        line = lines[place]
        if fence := _FENCE.match(line):
            end = _end_of_fence(lines, place + 1, fence[1])
            yield Block("code", "\n".join(lines[place + 1 : end]))
            place = end + 1
        elif heading := _HEADING.match(line):
            yield Block("heading", heading[2].rstrip("# ") or heading[2])
            place += 1
        elif item := _ITEM.match(line):
            end = _end_of_text(lines, place + 1)
            said = "\n".join([item[3], *(each.strip() for each in lines[place + 1 : end])])
            yield Block("item", said, item[2], min(len(item[1]) // 2, DEEPEST))
            place = end
        elif line.lstrip().startswith("|"):
            end = next((at for at in range(place, len(lines)) if not lines[at].lstrip().startswith("|")), len(lines))
            yield Block("code", "\n".join(lines[place:end]))
            place = end
        elif line.strip():
            end = _end_of_text(lines, place + 1)
            yield Block("text", "\n".join(lines[place:end]))
            place = end
        else:
            place += 1


def _end_of_fence(lines: Sequence[str], place: int, fence: str) -> int:
    for at in range(place, len(lines)):
        if lines[at].strip().startswith(fence) and not lines[at].strip().strip(fence[0]):
            return at
    return len(lines)


def _end_of_text(lines: Sequence[str], place: int) -> int:
    """Where another block begins."""
    for at in range(place, len(lines)):
        line = lines[at]
        if not line.strip() or line.lstrip().startswith("|"):
            return at
        if any(mark.match(line) for mark in (_FENCE, _HEADING, _ITEM)):
            return at
    return len(lines)


def is_plain(text: str) -> bool:
    """Whether there is nothing to draw but the text itself, or too much."""
    if len(text) > LONGEST:
        return True
    found = [(block.kind, block.spans) for block in blocks_of(text)]
    if sum(len(spans) for _, spans in found) > MOST_PIECES:
        return True
    return all(kind == "text" and not any(span.kind for span in spans) for kind, spans in found)


def draw(text: str, addresses: Sequence[tuple[str, str]] = ()) -> None:
    """Draw a text here. `addresses` are where its numbers in brackets lead, each with what it stands for in words."""
    for each in blocks_of(text):
        if each.kind == "code":
            block(each.text)
            continue
        shown = widgets.box("said", "prose", each.kind).props("dir=auto")
        if each.kind == "heading":
            shown.props("role=heading aria-level=3")
        elif each.kind == "item":
            shown.style(f"margin-left: {1.4 + 1.2 * each.deep:.1f}rem")
        with shown:
            if each.mark:
                TextElement(tag="span", text="•" if each.mark in "-*+" else each.mark).classes("mark")
            for span in each.spans:
                _draw_span(span, addresses)


def _draw_span(span: Span, addresses: Sequence[tuple[str, str]]) -> None:
    if span.kind == "cite" and 1 <= int(span.target) <= len(addresses):
        address, what = addresses[int(span.target) - 1]
        widgets.named(ui.link(span.text, address).classes("cite"), f"{span.text} {widgets.cut(what, 120)}")
    elif span.kind == "link":
        link = ui.link(span.text, span.target, new_tab=True).props('rel="noopener noreferrer nofollow"')
        link.props["title"] = span.target
    else:
        TextElement(tag=span.kind if span.kind in ("code", "strong", "em") else "span", text=span.text)
