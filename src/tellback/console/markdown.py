"""Render the Markdown that models write: headings, lists, code, emphasis, links and citation numbers.

It is parsed into values and drawn as elements that hold text: no HTML of the writer reaches the page, and links
lead to `http` or `https` only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from tellback.console import widgets
from tellback.console.widgets import code_block

MAX_LENGTH, MAX_SPANS = 50_000, 2_000
"""A text that is longer, or has more pieces, is shown as it is."""
MAX_DEPTH = 4

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
class MarkdownSpan:
    """A piece of a line: `kind` is "", "code", "strong", "em", "link" (to `target`) or "cite" (of number `target`)."""

    text: str
    kind: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A piece of a text: `kind` is "text", "heading", "item" (with its `mark`, so many levels `deep`) or "code"."""

    kind: str
    text: str
    marker: str = ""
    depth: int = 0

    @property
    def spans(self) -> list[MarkdownSpan]:
        """Its text, with what is marked in it."""
        return [MarkdownSpan(self.text)] if self.kind == "code" else parse_spans(self.text)


def parse_spans(text: str) -> list[MarkdownSpan]:
    """A line in pieces.

    >>> [span.kind for span in parse_spans("See **this** [1], and `that`.")]
    ['', 'strong', '', 'cite', '', 'code', '']
    """
    found: list[MarkdownSpan] = []
    end = 0
    for match in _SPAN.finditer(text):
        if match.start() > end:
            found.append(MarkdownSpan(text[end : match.start()]))
        found.append(_span_from_match(match))
        end = match.end()
    if end < len(text):
        found.append(MarkdownSpan(text[end:]))
    return found


def _span_from_match(match: re.Match[str]) -> MarkdownSpan:
    for kind in ("code", "strong", "em"):
        if match[kind] is not None:
            return MarkdownSpan(match[kind], kind)
    if match["cite"] is not None:
        return MarkdownSpan(match[0], "cite", match["cite"])
    return MarkdownSpan(match["label"] or match["url"], "link", match["target"] or match["url"])


def parse_blocks(text: str) -> list[MarkdownBlock]:
    """A text in blocks; nothing of it is left out but the marks and empty lines.

    >>> [(block.kind, block.text) for block in parse_blocks("# Plan\\n- pack\\n- go\\n\\nThat is all.")]
    [('heading', 'Plan'), ('item', 'pack'), ('item', 'go'), ('text', 'That is all.')]
    """
    return list(_iter_blocks(text.replace("\r\n", "\n").split("\n")))


def _iter_blocks(lines: Sequence[str]) -> Iterator[MarkdownBlock]:
    index = 0
    while index < len(lines):
        line = lines[index]
        if fence := _FENCE.match(line):
            end = _end_of_fence(lines, index + 1, fence[1])
            yield MarkdownBlock("code", "\n".join(lines[index + 1 : end]))
            index = end + 1
        elif heading := _HEADING.match(line):
            yield MarkdownBlock("heading", heading[2].rstrip("# ") or heading[2])
            index += 1
        elif item := _ITEM.match(line):
            end = _end_of_text(lines, index + 1)
            item_text = "\n".join([item[3], *(each.strip() for each in lines[index + 1 : end])])
            yield MarkdownBlock("item", item_text, item[2], min(len(item[1]) // 2, MAX_DEPTH))
            index = end
        elif line.lstrip().startswith("|"):
            end = next(
                (
                    line_index
                    for line_index in range(index, len(lines))
                    if not lines[line_index].lstrip().startswith("|")
                ),
                len(lines),
            )
            yield MarkdownBlock("code", "\n".join(lines[index:end]))
            index = end
        elif line.strip():
            end = _end_of_text(lines, index + 1)
            yield MarkdownBlock("text", "\n".join(lines[index:end]))
            index = end
        else:
            index += 1


def _end_of_fence(lines: Sequence[str], start: int, fence: str) -> int:
    for index in range(start, len(lines)):
        if lines[index].strip().startswith(fence) and not lines[index].strip().strip(fence[0]):
            return index
    return len(lines)


def _end_of_text(lines: Sequence[str], start: int) -> int:
    """Where another block begins."""
    for index in range(start, len(lines)):
        line = lines[index]
        if not line.strip() or line.lstrip().startswith("|"):
            return index
        if any(pattern.match(line) for pattern in (_FENCE, _HEADING, _ITEM)):
            return index
    return len(lines)


def is_plain_text(text: str) -> bool:
    """Whether there is nothing to draw but the text itself, or too much."""
    if len(text) > MAX_LENGTH:
        return True
    found = [(block.kind, block.spans) for block in parse_blocks(text)]
    if sum(len(spans) for _, spans in found) > MAX_SPANS:
        return True
    return all(kind == "text" and not any(span.kind for span in spans) for kind, spans in found)


def render_markdown(text: str, addresses: Sequence[tuple[str, str]] = ()) -> None:
    """Draw a text here. `addresses` are where its numbers in brackets lead, each with what it stands for in words."""
    for each in parse_blocks(text):
        if each.kind == "code":
            code_block(each.text)
            continue
        element = widgets.box("said", "prose", each.kind).props("dir=auto")
        if each.kind == "heading":
            element.props("role=heading aria-level=3")
        elif each.kind == "item":
            element.style(f"margin-left: {1.4 + 1.2 * each.depth:.1f}rem")
        with element:
            if each.marker:
                TextElement(tag="span", text="•" if each.marker in "-*+" else each.marker).classes("mark")
            for span in each.spans:
                _render_span(span, addresses)


def _render_span(span: MarkdownSpan, addresses: Sequence[tuple[str, str]]) -> None:
    if span.kind == "cite" and 1 <= int(span.target) <= len(addresses):
        address, description = addresses[int(span.target) - 1]
        widgets.set_accessible_name(
            ui.link(span.text, address).classes("cite"), f"{span.text} {widgets.truncate(description, 120)}"
        )
    elif span.kind == "link":
        link = ui.link(span.text, span.target, new_tab=True).props('rel="noopener noreferrer nofollow"')
        link.props["title"] = span.target
    else:
        TextElement(tag=span.kind if span.kind in ("code", "strong", "em") else "span", text=span.text)
