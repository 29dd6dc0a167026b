"""Messages on a page: stored ones and replies while they stream, with their Markdown and tool calls.

Markdown is parsed into values and drawn as text elements. HTML in a message is shown as text, and links are `http` or
`https` only. `ui.markdown` would send HTML for the browser to sanitise. markdown-it-py needs 0.7 s for 50,000
brackets (this parser: 9 ms) and drops text that is nested 20 levels deep.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from tellback.console import widgets
from tellback.console.widgets import code_block, note, text_label
from tellback.types import ReplyDelta, TextDelta, ThinkingDelta, ToolCall, ToolUseEnd, ToolUseInputDelta, ToolUseStart
from tellback.types.blocks import ContentBlock, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from tellback.types.conversations import StoredMessage, ToolInvocation

MAX_LENGTH, MAX_SPANS = 50_000, 2_000
"""Longer text, or text with more spans, is shown as plain text."""
MAX_DEPTH = 4
SPAN_LENGTH = 600
"""The approximate length of one element of streamed text. Each update sends a whole element again, so keep it small."""

OnDecision = Callable[[bool], Any]

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
    """A part of a line: `kind` is "", "code", "strong", "em", "link" (to `target`) or "cite" (of number `target`)."""

    text: str
    kind: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A block of a text: `kind` is "text", "heading", "item" (with its `marker` and `depth`) or "code"."""

    kind: str
    text: str
    marker: str = ""
    depth: int = 0

    @property
    def spans(self) -> list[MarkdownSpan]:
        return [MarkdownSpan(self.text)] if self.kind == "code" else parse_spans(self.text)


def parse_spans(text: str) -> list[MarkdownSpan]:
    """Split a line into spans.

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
    """Split a text into blocks. Only Markdown syntax and empty lines are dropped.

    >>> [(block.kind, block.text) for block in parse_blocks("# Plan\\n- pack\\n- go\\n\\nThat is all.")]
    [('heading', 'Plan'), ('item', 'pack'), ('item', 'go'), ('text', 'That is all.')]
    """
    return list(_iter_blocks(text.replace("\r\n", "\n").split("\n")))


def _iter_blocks(lines: Sequence[str]) -> Iterator[MarkdownBlock]:
    index = 0
    while index < len(lines):
        line = lines[index]
        start, index = index, index + 1
        if fence := _FENCE.match(line):
            index = _find_line(lines, index, partial(_closes_fence, fence[1]))
            yield MarkdownBlock("code", "\n".join(lines[start + 1 : index]))
            index += 1
        elif heading := _HEADING.match(line):
            yield MarkdownBlock("heading", heading[2].rstrip("# ") or heading[2])
        elif item := _ITEM.match(line):
            index = _find_line(lines, index, _ends_text)
            item_text = "\n".join([item[3], *(each.strip() for each in lines[start + 1 : index])])
            yield MarkdownBlock("item", item_text, item[2], min(len(item[1]) // 2, MAX_DEPTH))
        elif _is_table_row(line):
            index = _find_line(lines, index, lambda row: not _is_table_row(row))
            yield MarkdownBlock("code", "\n".join(lines[start:index]))
        elif line.strip():
            index = _find_line(lines, index, _ends_text)
            yield MarkdownBlock("text", "\n".join(lines[start:index]))


def _find_line(lines: Sequence[str], start: int, is_wanted: Callable[[str], bool]) -> int:
    return next((index for index in range(start, len(lines)) if is_wanted(lines[index])), len(lines))


def _is_table_row(line: str) -> bool:
    return line.lstrip().startswith("|")


def _closes_fence(fence: str, line: str) -> bool:
    return line.strip().startswith(fence) and not line.strip().strip(fence[0])


def _ends_text(line: str) -> bool:
    """Whether the current text block ends before this line."""
    if not line.strip() or _is_table_row(line):
        return True
    return any(pattern.match(line) for pattern in (_FENCE, _HEADING, _ITEM))


def is_plain_text(text: str) -> bool:
    """Whether the text has no Markdown, or exceeds the limits for drawing it."""
    if len(text) > MAX_LENGTH:
        return True
    found = [(block.kind, block.spans) for block in parse_blocks(text)]
    if sum(len(spans) for _, spans in found) > MAX_SPANS:
        return True
    return all(kind == "text" and not any(span.kind for span in spans) for kind, spans in found)


def render_markdown(text: str, citation_links: Sequence[tuple[str, str]] = ()) -> None:
    """Draw Markdown. `citation_links` has the address and the cited text for each number in brackets."""
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
                _render_span(span, citation_links)


def _render_span(span: MarkdownSpan, citation_links: Sequence[tuple[str, str]]) -> None:
    if span.kind == "cite" and 1 <= int(span.target) <= len(citation_links):
        address, description = citation_links[int(span.target) - 1]
        widgets.set_accessible_name(
            ui.link(span.text, address).classes("cite"), f"{span.text} {widgets.truncate(description, 120)}"
        )
    elif span.kind == "link":
        link = ui.link(span.text, span.target, new_tab=True).props('rel="noopener noreferrer nofollow"')
        link.props["title"] = span.target
    else:
        TextElement(tag=span.kind if span.kind in ("code", "strong", "em") else "span", text=span.text)


class StreamingText:
    """A text that grows while it streams. `flush` shows buffered pieces, so many small pieces cost one update."""

    def __init__(self, *, is_thinking: bool) -> None:
        self.is_thinking = is_thinking
        self._root = widgets.box("said").props("dir=auto")
        self._last_span: TextElement | None = None
        self._buffer: list[str] = []
        self.text = ""

    def add(self, text: str) -> None:
        self.text += text
        self._buffer.append(text)

    def flush(self) -> None:
        new = "".join(self._buffer)
        self._buffer.clear()
        if not new:
            return
        if self._last_span is None or len(self._last_span.text) > SPAN_LENGTH:
            with self._root:
                self._last_span = TextElement(tag="span", text="")
        self._last_span.text += new

    def finish(self, citation_links: Sequence[tuple[str, str]]) -> None:
        """Redraw the complete answer as Markdown, with links for its citations."""
        self.flush()
        if not self.is_thinking and not is_plain_text(self.text):
            self._root.clear()
            with self._root:
                render_markdown(self.text, citation_links)


class ToolCard:
    """A tool call with its input and result. The card is open while the call waits for approval."""

    def __init__(self, name: str) -> None:
        self._input = ""
        self._root = ui.expansion(name, icon="build").classes("tool").props("dense dense-toggle")
        self._root.props["aria-label"] = f"Tool {name}"
        with self._root, widgets.box("stack", "tight"):
            widgets.muted("Arguments")
            self._input_block = code_block("")
            self._result_box = widgets.box("stack", "tight")
        self._set_caption("…")

    def add_input(self, part: str) -> None:
        self._input += part

    def set_input(self, value: Any) -> None:
        self._input = widgets.format_value(value, indent=2)

    def flush(self) -> None:
        if self._input_block.text != self._input:
            self._input_block.text = self._input

    def finish_input(self) -> None:
        """Show the complete input as indented JSON."""
        with suppress(ValueError):  # invalid JSON is shown unchanged; the model receives the error
            self._input = widgets.format_value(json.loads(self._input or "{}"), indent=2)
        self.flush()
        self._set_caption("running…")

    def show_result(self, content: str, *, is_error: bool) -> None:
        self._set_caption("failed" if is_error else "done")
        self._result_box.clear()
        with self._result_box:
            widgets.muted("Error" if is_error else "Result")
            code_block(content)

    def show_unfinished(self) -> None:
        self._set_caption("interrupted or still running")

    def ask_approval(self, on_decision: OnDecision) -> None:
        self._set_caption("waiting for approval")
        self._root.open()
        self._result_box.clear()
        with self._result_box, widgets.box("line"):

            async def submit(approved: bool) -> None:
                self._result_box.clear()
                self._set_caption("running…" if approved else "declined")
                await on_decision(approved)

            approve = widgets.button("Approve", "check", lambda: submit(True), "small")
            approve.props("unelevated").props(remove="outline")
            widgets.button("Decline", "close", lambda: submit(False), "small")

    def _set_caption(self, text: str) -> None:
        self._root.props["caption"] = text
        self._root.update()


def _thinking_box() -> ui.expansion:
    return ui.expansion("Thoughts of the model", icon="psychology_alt").classes("tool").props("dense dense-toggle")


class ReplyView:
    """A reply while it streams. `citation_links` is set when the reply is complete."""

    def __init__(self, speaker: str) -> None:
        self.root = widgets.box("answer", tag="article").props("aria-busy=true")
        self.root.props["aria-label"] = f"{speaker} says"
        with self.root:
            self._parts_box = widgets.box("stack", "tight")
            self._spinner = ui.spinner("dots", size="1.75rem").props("aria-label=Answering")
            self.footer = widgets.box("line", "foot")
        self._current_text: StreamingText | None = None
        self._texts: list[StreamingText] = []
        self._finished_count = 0
        self.citation_links: Sequence[tuple[str, str]] = ()
        self.cards: dict[str, ToolCard] = {}

    @property
    def text(self) -> str:
        return "".join(each.text for each in self._texts if not each.is_thinking)

    def add_delta(self, delta: ReplyDelta) -> None:
        """Show a delta at the next `flush`."""
        match delta:
            case TextDelta(text) | ThinkingDelta(text):
                is_thinking = isinstance(delta, ThinkingDelta)
                if self._current_text is None or self._current_text.is_thinking != is_thinking:
                    with self._parts_box, _thinking_box() if is_thinking else nullcontext():
                        self._current_text = StreamingText(is_thinking=is_thinking)
                    self._texts.append(self._current_text)
                self._current_text.add(text)
            case ToolUseStart(id, name):
                self._current_text = None
                with self._parts_box:
                    self.cards[id] = ToolCard(name)
            case ToolUseInputDelta(id, partial_json) if id in self.cards:
                self.cards[id].add_input(partial_json)
            case ToolUseEnd(id) if id in self.cards:
                self.cards[id].finish_input()

    def flush(self) -> None:
        for text in self._texts:
            text.flush()
        for card in self.cards.values():
            card.flush()

    def set_text_if_empty(self, text: str) -> None:
        """Set the text of a reply that did not stream."""
        if not self.text and text:
            self.add_delta(TextDelta(text))

    def show_tools(self, invocations: Sequence[ToolInvocation]) -> None:
        for each in invocations:
            card = self._tool_card(each.id, each.name, each.arguments)
            if each.content is not None:  # None: the call waits for approval
                card.show_result(each.content, is_error=each.is_error)

    def ask_approvals(self, calls: Sequence[ToolCall], on_decision: Callable[[str, bool], Any]) -> None:
        for call in calls:
            self._tool_card(call.id, call.name, call.input).ask_approval(partial(on_decision, call.id))

    def add_note(self, text: str, *, is_error: bool = False) -> None:
        with self._parts_box:
            note(text, is_error=is_error)

    def start(self) -> None:
        self._current_text = None
        self._spinner.set_visibility(True)
        self.root.props("aria-busy=true")

    def finish(self) -> None:
        self.flush()
        for text in self._texts[self._finished_count :]:
            text.finish(self.citation_links)
        self._finished_count = len(self._texts)
        self._spinner.set_visibility(False)
        self.root.props("aria-busy=false")

    def _tool_card(self, id: str, name: str, arguments: Mapping[str, Any]) -> ToolCard:
        if id not in self.cards:
            with self._parts_box:
                self.cards[id] = ToolCard(name)
        self.cards[id].set_input(arguments)
        self.cards[id].flush()
        return self.cards[id]


def show_user_message(text: str) -> None:
    """Show a message of the user."""
    with widgets.box("mine", tag="article").props('aria-label="You say"'):
        text_label(text)


def tool_results_by_id(messages: Sequence[StoredMessage]) -> dict[str, ToolResultBlock]:
    """Return the tool results by the ids of their calls."""
    return {
        each.tool_use_id: each for message in messages for each in message.content if isinstance(each, ToolResultBlock)
    }


def show_blocks(blocks: Sequence[ContentBlock], results: Mapping[str, ToolResultBlock], *, has_markdown: bool) -> None:
    """Show a message's text, the names of its files, and its tool calls with their results."""
    for each in blocks:
        if isinstance(each, TextBlock):
            if has_markdown and not is_plain_text(each.text):
                render_markdown(each.text)
            elif each.text:
                text_label(each.text)
        elif isinstance(each, MediaBlock):
            widgets.chip(f"{each.type}: {each.name or each.mime_type or 'unnamed'}")
        elif isinstance(each, ToolUseBlock):
            card = ToolCard(each.name)
            card.set_input(each.arguments if each.invalid_input is None else each.invalid_input)
            card.flush()
            result = results.get(each.id)
            if result is None:
                card.show_unfinished()
            else:
                card.show_result(result.content, is_error=result.is_error)


def has_own_content(blocks: Sequence[ContentBlock]) -> bool:
    """Whether a message has anything besides tool results, which are shown with their calls."""
    return any(not isinstance(each, ToolResultBlock) for each in blocks)


def show_conversation(
    messages: Sequence[StoredMessage],
    speaker: str,
    show_footer: Callable[[StoredMessage], None],
    pending_ids: Collection[str] = (),
) -> None:
    """Show the visible messages of a chat; `show_footer` adds a footer to each answer.

    Calls that wait for approval (`pending_ids`) are omitted: the chat page shows them with their buttons.
    """
    results = tool_results_by_id(messages)
    for message in messages:
        blocks = [each for each in message.content if not isinstance(each, ToolUseBlock) or each.id not in pending_ids]
        is_unseen = message.visibility == "hidden" or (message.visibility == "internal" and not message.tool_calls)
        if is_unseen or message.role == "system" or not has_own_content(blocks):
            continue
        is_user = message.role == "user"
        with widgets.box("mine" if is_user else "answer", tag="article") as article:
            article.props["aria-label"] = "You said" if is_user else f"{speaker} said"
            show_blocks(blocks, results, has_markdown=not is_user)
            if not is_user and not message.tool_calls:
                with widgets.box("line", "foot"):
                    show_footer(message)
