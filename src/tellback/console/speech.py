"""What was said, on a page: messages as they are stored, and answers as they come."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from tellback.console import widgets
from tellback.console.parts import block, inline, note, words
from tellback.console.prose import draw, is_plain
from tellback.types import (
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from tellback.types.blocks import ContentBlock, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from tellback.types.conversations import StoredMessage, ToolInvocation

PIECE = 600
"""A streamed text is shown in pieces of about so many characters: what is sent again with each of them stays small."""

Decide = Callable[[bool], Any]


class Flow:
    """A text that grows. It is shown when `flush` is called, so that many small pieces cost one update."""

    def __init__(self) -> None:
        self._root = widgets.box("said").props("dir=auto")
        self._last: TextElement | None = None
        self._new: list[str] = []
        self.text = ""

    def add(self, text: str) -> None:
        self.text += text
        self._new.append(text)

    def flush(self) -> None:
        new = "".join(self._new)
        self._new.clear()
        if not new:
            return
        if self._last is None or len(self._last.text) > PIECE:
            with self._root:
                self._last = inline("")
        self._last.text += new

    def finish(self, addresses: Sequence[tuple[str, str]]) -> None:
        """It is complete: draw its marks, and links where its numbers in brackets lead."""
        self.flush()
        if not is_plain(self.text):
            self._root.clear()
            with self._root:
                draw(self.text, addresses)


class ToolCard:
    """A tool call: its input, and what came of it. It is open while it waits for a decision."""

    def __init__(self, name: str) -> None:
        self._input = ""
        self._root = ui.expansion(name, icon="build").classes("tool").props("dense dense-toggle")
        self._root.props["aria-label"] = f"Tool {name}"
        with self._root, widgets.box("stack", "tight"):
            widgets.quiet("Input")
            self._shown = block("")
            self._result = widgets.box("stack", "tight")
        self._caption("…")

    def add_input(self, part: str) -> None:
        self._input += part

    def set_input(self, value: Any) -> None:
        self._input = _json(value)

    def flush(self) -> None:
        if self._shown.text != self._input:
            self._shown.text = self._input

    def input_ended(self) -> None:
        """Its input has come: show it so that people can read it."""
        with suppress(ValueError):  # else as the model wrote it, who is told of its mistake
            self._input = _json(json.loads(self._input or "{}"))
        self.flush()
        self._caption("running…")

    def done(self, content: str, *, is_error: bool) -> None:
        self._caption("failed" if is_error else "done")
        self._result.clear()
        with self._result:
            widgets.quiet("Error" if is_error else "Result")
            block(content)

    def left(self) -> None:
        """Nothing came of it."""
        self._caption("not finished")

    def ask(self, decide: Decide) -> None:
        """Have a person decide whether it is called."""
        self._caption("waits for your decision")
        self._root.open()
        self._result.clear()
        with self._result, widgets.box("line"):

            async def on(approved: bool) -> None:
                self._result.clear()
                self._caption("running…" if approved else "declined")
                await decide(approved)

            ui.button("Approve", icon="check", on_click=lambda: on(True)).props("no-caps unelevated dense")
            ui.button("Decline", icon="close", on_click=lambda: on(False)).props("no-caps outline dense")

    def _caption(self, text: str) -> None:
        self._root.props["caption"] = text
        self._root.update()


class AnswerView:
    """An answer while it comes. `addresses` are where the numbers in it lead, once that is known."""

    def __init__(self, who: str) -> None:
        self.root = widgets.box("answer", tag="article").props("aria-busy=true")
        self.root.props["aria-label"] = f"{who} says"
        with self.root:
            self._parts = widgets.box("stack", "tight")
            self._waiting = ui.spinner("dots", size="1.75rem").props("aria-label=Answering")
            self.foot = widgets.box("line", "foot")
        self._text: Flow | None = None
        self._thinking: Flow | None = None
        self._flows: list[Flow] = []
        self._thoughts: list[Flow] = []
        self._finished = 0
        self.addresses: Sequence[tuple[str, str]] = ()
        self.cards: dict[str, ToolCard] = {}

    @property
    def text(self) -> str:
        return "".join(flow.text for flow in self._flows)

    def take(self, delta: ReplyDelta) -> None:
        """Show a delta at the next `flush`."""
        match delta:
            case TextDelta(text):
                self._thinking = None
                if self._text is None:
                    with self._parts:
                        self._text = Flow()
                    self._flows.append(self._text)
                self._text.add(text)
            case ThinkingDelta(text):
                self._text = None
                if self._thinking is None:
                    with self._parts, ui.expansion("Thinking", icon="psychology_alt").classes("tool") as opened:
                        opened.props("dense dense-toggle")
                        self._thinking = Flow()
                    self._thoughts.append(self._thinking)
                self._thinking.add(text)
            case ToolUseStart(id, name):
                self._text = self._thinking = None
                with self._parts:
                    self.cards[id] = ToolCard(name)
            case ToolUseInputDelta(id, part) if id in self.cards:
                self.cards[id].add_input(part)
            case ToolUseEnd(id) if id in self.cards:
                self.cards[id].input_ended()

    def flush(self) -> None:
        for flow in (*self._thoughts, *self._flows):
            flow.flush()
        for card in self.cards.values():
            card.flush()

    def tell(self, text: str) -> None:
        """A text that did not come as deltas."""
        if not self.text and text:
            self.take(TextDelta(text))

    def tools(self, invocations: Sequence[ToolInvocation]) -> None:
        """What the tools gave."""
        for each in invocations:
            card = self._card(each.id, each.name, each.arguments)
            if each.content is not None:  # else it waits
                card.done(each.content, is_error=each.is_error)

    def ask(self, calls: Sequence[ToolCall], decide: Callable[[str, bool], Any]) -> None:
        """Have a person decide on calls."""
        for call in calls:
            self._card(call.id, call.name, call.input).ask(partial(decide, call.id))

    def remark(self, text: str, *, is_wrong: bool = False) -> None:
        with self._parts:
            note(text, is_wrong=is_wrong)

    def begin(self) -> None:
        """More comes."""
        self._text = self._thinking = None
        self._waiting.set_visibility(True)
        self.root.props("aria-busy=true")

    def end(self) -> None:
        """Nothing more comes."""
        self.flush()
        for flow in self._flows[self._finished :]:
            flow.finish(self.addresses)
        self._finished = len(self._flows)
        self._waiting.set_visibility(False)
        self.root.props("aria-busy=false")

    def _card(self, id: str, name: str, arguments: Mapping[str, Any]) -> ToolCard:
        if id not in self.cards:
            with self._parts:
                self.cards[id] = ToolCard(name)
        self.cards[id].set_input(arguments)
        self.cards[id].flush()
        return self.cards[id]


def show_user(text: str) -> None:
    """What the user says."""
    with widgets.box("mine", tag="article").props('aria-label="You say"'):
        words(text)


def results_in(messages: Sequence[StoredMessage]) -> dict[str, ToolResultBlock]:
    """What tools gave, by the ids of the calls."""
    return {
        each.tool_use_id: each for message in messages for each in message.content if isinstance(each, ToolResultBlock)
    }


def show_stored(message: StoredMessage, results: Mapping[str, ToolResultBlock]) -> None:
    """What of a message is there to be read: its words, files by their names, and tool calls with what they gave."""
    _show_blocks(message.content, results, is_marked=message.role == "assistant")


def _show_blocks(blocks: Sequence[ContentBlock], results: Mapping[str, ToolResultBlock], *, is_marked: bool) -> None:
    for each in blocks:
        if isinstance(each, TextBlock):
            if is_marked and not is_plain(each.text):
                draw(each.text)
            elif each.text:
                words(each.text)
        elif isinstance(each, MediaBlock):
            widgets.chip(f"{each.type}: {each.name or each.mime_type or 'without a name'}")
        elif isinstance(each, ToolUseBlock):
            card = ToolCard(each.name)
            card.set_input(each.arguments if each.invalid_input is None else each.invalid_input)
            card.flush()
            result = results.get(each.id)
            if result is None:
                card.left()
            else:
                card.done(result.content, is_error=result.is_error)


def is_shown(message: StoredMessage) -> bool:
    """Whether a message is more than the results of calls, which are shown with those."""
    return any(not isinstance(each, ToolResultBlock) for each in message.content)


def show_talk(
    messages: Sequence[StoredMessage],
    who: str,
    foot: Callable[[StoredMessage], None],
    waiting: Collection[str] = (),
) -> None:
    """The messages of a chat that a person sees; `foot` adds something to each answer.

    Calls that are `waiting` for a decision are left out: they are shown where it is asked for.
    """
    results = results_in(messages)
    for message in messages:
        shown = [each for each in message.content if not isinstance(each, ToolUseBlock) or each.id not in waiting]
        if message.visibility == "hidden" or message.role == "system":
            continue
        if not any(not isinstance(each, ToolResultBlock) for each in shown):
            continue
        if message.visibility == "internal" and not message.tool_calls:
            continue
        is_mine = message.role == "user"
        with widgets.box("mine" if is_mine else "answer", tag="article") as said:
            said.props["aria-label"] = "You said" if is_mine else f"{who} said"
            _show_blocks(shown, results, is_marked=not is_mine)
            if not is_mine and not message.tool_calls:
                with widgets.box("line", "foot"):
                    foot(message)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
