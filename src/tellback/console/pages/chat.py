"""Chat: talk with what is remembered, or along an agent's routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from nicegui import context, ui

from tellback.chat.offline import SET_UP, is_offline
from tellback.console import widgets
from tellback.console.frame import console_page
from tellback.console.parts import note
from tellback.console.seat import Seat, tell
from tellback.console.speech import AnswerView, show_talk, show_user
from tellback.console.standing import Standing
from tellback.console.talks import REMEMBERING_SECONDS, Answer, Earlier, partners, talk_with
from tellback.console.why import addresses, cost_line, show_stored_why, show_why
from tellback.errors import InvalidArgumentError, TellbackError
from tellback.types import ReplyDelta, ToolCall
from tellback.types.conversations import StoredMessage

log = logging.getLogger("tellback.console")

FLUSH_SECONDS = 0.05
LONGEST = 100_000
"""How many characters a message may have here."""

_SEND_ON_ENTER = """(event) => {
  if (event.shiftKey || event.isComposing) return;
  event.preventDefault();
  emit(event.target.value);
}"""

# The page stays at its end while an answer comes, unless the person has scrolled up to read.
_FOLLOW = """
(() => {
  const root = document.scrollingElement;
  let isAtEnd = true;
  addEventListener('scroll', () => { isAtEnd = root.scrollHeight - root.scrollTop - innerHeight < 80; });
  const toEnd = () => { if (isAtEnd) root.scrollTop = root.scrollHeight; };
  const log = document.querySelector('[role=log]');
  if (log) new MutationObserver(toEnd).observe(log, {childList: true, subtree: true, characterData: true});
  root.scrollTop = root.scrollHeight;
})();
"""

EXAMPLES = ("I moved to Lisbon in March, and I am vegetarian now.", "What do you remember about me?")


@console_page("/", "Chat")
async def chat(seat: Seat) -> None:
    """Talk, with what is remembered."""
    asked = seat.query.get("agent")
    found = partners(seat)
    await ChatPage(seat, found, asked if asked in found else None).build()


class ChatPage:
    """The page of one conversation."""

    def __init__(self, seat: Seat, partners: Mapping[str, str], agent: str | None) -> None:
        self._seat = seat
        self._partners = partners
        self._agent = agent
        self._who = agent or "Tellback"
        self._talk = talk_with(seat, agent)
        self._turn: asyncio.Task[None] | None = None
        self._is_ending = False
        self._longest = min(LONGEST, seat.caller.home.settings.text_length)

    async def build(self) -> None:
        seat = self._seat
        self._bar()
        # Agents with routes bring models of their own.
        if self._agent not in seat.agents and (seat.rc.model is None or is_offline(seat.rc.model)):
            note(f"No model is set up: answers are quotations from memory. {SET_UP}")
        self._standing = Standing(seat, agent) if (agent := self._agent) is not None and agent in seat.agents else None
        self._log = widgets.box("talk").props("role=log aria-live=polite aria-label=Conversation")
        await self._show(await self._talk.earlier())
        self._composer()
        client = context.client
        client.on_delete(self._leave)
        ui.run_javascript(_FOLLOW)

    def _bar(self) -> None:
        seat = self._seat
        with widgets.box("line"):
            if self._partners:
                ui.select(
                    {"": "Tellback", **self._partners},
                    label="Talk to",
                    value=self._agent or "",
                    on_change=lambda event: ui.navigate.to(seat.link("/", agent=event.value or None)),
                ).props("outlined dense options-dense").classes("some")
            self._title = widgets.quiet("")
            with widgets.box("actions"):
                self._anew = ui.button("New conversation", icon="add_comment", on_click=seat.doing(self._begin_anew))
                self._anew.props("outline no-caps dense padding='4px 12px'")

    def _composer(self) -> None:
        with widgets.box("composer"):
            self._field = ui.textarea(placeholder=f"Message {self._who}").props(
                f"outlined autogrow autofocus dense dir=auto maxlength={self._longest} input-style='max-height: 40vh'"
            )
            self._field.props["aria-label"] = f"Message {self._who}: Enter sends it, Shift+Enter begins a line"
            send = self._seat.doing(self._send)
            self._field.on("keydown.enter", lambda event: send(event.args), js_handler=_SEND_ON_ENTER)
            self._button = widgets.icon_button("send", "Send", lambda: send(self._field.value))
            self._button.props("unelevated color=primary").props(remove="flat dense")
            self._stop = widgets.icon_button("stop", "Stop", self._cancel)
            self._stop.props("unelevated color=negative").props(remove="flat dense")
            self._stop.set_visibility(False)

    async def _show(self, earlier: Earlier) -> None:
        """The conversation so far."""
        self._log.clear()
        with self._log:
            if earlier.messages:
                self._gone_on(earlier)
            else:
                self._welcome(earlier)
        if earlier.pending:
            view = self._new_view()
            self._ask(view, earlier.pending)
            view.end()
        if self._standing is not None:
            self._standing.show(earlier.session)

    def _gone_on(self, earlier: Earlier) -> None:
        talk, said = earlier.conversation, earlier.messages
        if talk is not None and said[0].seq > 1:
            widgets.go("What was said before", self._seat.link("/conversations", id=talk.id))
        show_talk(said, self._who, self._foot, {call.id for call in earlier.pending})
        if said[-1].role == "user" and not earlier.pending:
            with widgets.box("line"):
                note(
                    "There is no answer: it is still on its way, or was stopped, or failed. You can go on all the same."
                )
                ui.button("Look again", icon="refresh", on_click=self._seat.doing(self._look_again)).props(
                    "flat no-caps dense"
                )

    async def _look_again(self) -> None:
        if self._turn is None:
            await self._show(await self._talk.earlier())

    def _foot(self, message: StoredMessage) -> None:
        """What there is to know of an answer that was given before the page was opened."""
        _why_button(lambda: show_stored_why(self._seat, message))
        if message.usage is not None:
            widgets.quiet(cost_line(message.usage))

    def _welcome(self, earlier: Earlier) -> None:
        how = (
            "Tell it something about you. When you begin a new conversation, this one becomes memories, and the next"
            " answers build on them: with a link to what you said."
        )
        if self._agent is not None:
            how = f"You talk to the agent {self._agent}."
        with widgets.box("welcome") as self._hello, widgets.empty("forum", "Say something.", how):
            for example in EXAMPLES if self._agent is None else ():
                ui.button(example, on_click=lambda text=example: self._put(text)).props(
                    "outline no-caps dense padding='4px 12px'"
                )
            if earlier.left is not None:
                link = self._seat.link("/conversations", id=earlier.left.id)
                widgets.go("Your last conversation has ended by itself: show it", link)

    def _put(self, text: str) -> None:
        self._field.set_value(text)
        self._field.run_method("focus")

    async def _send(self, text: str) -> None:
        said = (text or "").strip()
        if not said or self._turn is not None:
            return
        if len(said) > self._longest:
            raise InvalidArgumentError(
                f"A message has at most {self._longest:,} characters here; this one has {len(said):,}."
            )
        if self._is_ending:
            tell("One moment: what was said before is becoming memories.")
            return
        self._field.set_value("")
        for hello in [each for each in self._log if "welcome" in each.classes]:
            hello.delete()
        with self._log:
            show_user(said)
        await self._run(self._new_view(), self._talk.say(said))

    async def _run(self, view: AnswerView, items: AsyncGenerator[ReplyDelta | Answer, None]) -> None:
        """Show an answer as it comes, until it has come, or was stopped, or failed."""
        view.begin()
        self._turn = turn = asyncio.create_task(self._follow(view, items))
        self._is_busy(True)
        with view.root:
            timer = ui.timer(FLUSH_SECONDS, view.flush)
        try:
            await asyncio.wait({turn})
        finally:
            self._turn = None
            timer.cancel()
            view.end()
            self._is_busy(False)
        if turn.cancelled():
            view.remark("Stopped. What you said is kept, this part of an answer is not.")
        elif (error := turn.exception()) is not None:
            view.remark(self._told(error), is_wrong=True)
        self._field.run_method("focus")

    async def _follow(self, view: AnswerView, items: AsyncGenerator[ReplyDelta | Answer, None]) -> None:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, Answer):
                    self._ended(view, item)
                else:
                    view.take(item)

    def _ended(self, view: AnswerView, answer: Answer) -> None:
        seat = self._seat
        view.tell(answer.text)
        view.tools(answer.tools)
        view.addresses = addresses(seat, answer)
        for problem in answer.problems:
            error = problem.error
            what = seat.words(error) if isinstance(error, TellbackError) else "the server's log says why."
            view.remark(f"Not all went well ({problem.step}): {what}", is_wrong=True)
        if answer.status in ("truncated", "max_cycles"):
            view.remark("The answer was cut off: it reached its limit.")
        if answer.pending:
            self._ask(view, answer.pending)
        view.foot.clear()
        with view.foot:
            _why_button(lambda: show_why(seat, answer))
            widgets.quiet(cost_line(answer.usage))
        if self._standing is not None:
            self._standing.show(answer.session)

    def _ask(self, view: AnswerView, calls: Sequence[ToolCall]) -> None:
        """Have the person decide on calls; the turn goes on once all are decided."""
        decisions: dict[str, bool] = {}

        async def decide(id: str, approved: bool) -> None:
            decisions[id] = approved
            if len(decisions) == len(calls) and self._turn is None:
                await self._run(view, self._talk.decide(decisions))

        view.ask(calls, self._seat.doing(decide))

    async def _begin_anew(self) -> None:
        """Close the conversation, wait for its memories, and begin another."""
        await self._cancel_and_wait()
        self._is_ending = True  # what is sent now would be cleared away with the rest
        self._anew.props("loading")
        self._anew.disable()
        try:
            if await self._talk.end():
                self._title.set_text("Remembering…")
                is_done = await self._seat.user.memory.wait_for_extraction(REMEMBERING_SECONDS)
                tell("It is remembered now." if is_done else "It is still becoming memories: the page Jobs has more.")
            await self._show(Earlier())
        finally:
            self._is_ending = False
            self._title.set_text("")
            self._anew.props(remove="loading")
            self._anew.enable()
        self._field.run_method("focus")

    def _cancel(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    async def _cancel_and_wait(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.wait({self._turn})  # whoever shows its answer waited first, and is done with it now

    def _leave(self) -> None:
        """The page is gone: as for all clients that go away, its turn is cancelled."""
        self._cancel()

    def _new_view(self) -> AnswerView:
        with self._log:
            return AnswerView(self._who)

    def _is_busy(self, busy: bool) -> None:
        self._button.set_visibility(not busy)
        self._stop.set_visibility(busy)

    def _told(self, error: BaseException) -> str:
        if isinstance(error, TellbackError):
            return self._seat.words(error)
        log.error("a turn failed: %s", type(error).__name__, exc_info=error)
        return "The server failed: its log has the reason. What you said is kept if it is there after a reload."


def _why_button(show: Callable[[], None]) -> None:
    ui.button("Why this answer", icon="help_outline", on_click=show).props("flat no-caps dense")
