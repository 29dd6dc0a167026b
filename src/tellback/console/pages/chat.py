"""The chat page: send messages, stream replies, approve tool calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial

from nicegui import context, ui

from tellback.chat.offline import SETUP_HINT, is_offline
from tellback.chat_backends import (
    BackendReply,
    ChatBackend,
    ChatHistory,
    ModelBackend,
    ReplyStream,
    RouteBackend,
    SpecBackend,
    takes_only_message,
)
from tellback.console import widgets
from tellback.console.context import EXTRACTION_WAIT_SECONDS, SERVER_FAILED, PageContext, notify
from tellback.console.explanation import (
    SessionCard,
    citation_links,
    format_cost,
    open_explanation,
    open_stored_explanation,
    show_recalled,
)
from tellback.console.layout import console_page
from tellback.console.messages import ReplyView, show_conversation, show_user_message
from tellback.console.widgets import note
from tellback.errors import InvalidArgumentError, NotFoundError, TellbackError
from tellback.types import ToolCall
from tellback.types.conversations import StoredMessage

log = logging.getLogger("tellback.console")

FLUSH_SECONDS = 0.05
MAX_MESSAGE_LENGTH = 100_000
"""The maximum length of a message in characters."""
NOTICE_COOKIE = "tellback_model_notice"
"""A cookie that hides the notice about the missing model after the user has dismissed it."""

_SEND_ON_ENTER = """(event) => {
  if (event.shiftKey || event.isComposing) return;
  event.preventDefault();
  emit(event.target.value);
}"""

# Follow the end of the page while an answer streams, unless the user has scrolled up.
_SCROLL_FOLLOW = """
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

STEP_LABELS = {
    "recall": "Searching the memory",
    "store_user": "Storing your message",
    "store_reply": "Storing the answer",
    "tool_data": "Storing the data of a tool",
}
INCOMPLETE_NOTES = {
    "truncated": "The answer is incomplete: it reached the maximum length.",
    "max_cycles": "The answer is incomplete: it reached the maximum number of model calls.",
}

EXAMPLE_MESSAGES = ("I moved to Lisbon in March, and I am vegetarian now.", "Where did I move?")


@console_page("/", "Chat")
async def chat_page(ctx: PageContext) -> None:
    """Show the chat with the default agent, or with the agent in the page's address."""
    agent = ctx.query.get("agent")
    chat_agents = list_chat_agents(ctx)
    await ChatPage(ctx, chat_agents, agent if agent in chat_agents else None).build()


def list_chat_agents(ctx: PageContext) -> list[str]:
    """Return the names of the agents that a user can chat with, besides the default agent.

    Agents from specs are included if they need no input except a message.
    """
    described = [spec.name for spec in ctx.user.agents.list() if takes_only_message(spec)]
    return list(dict.fromkeys([*ctx.agents, *described]))


def create_backend(ctx: PageContext, agent_name: str | None) -> ChatBackend:
    """Create the backend of a chat: for one of `list_chat_agents`, or for the model with the user's memory."""
    if agent_name is None:
        return ModelBackend(ctx.user)
    if agent_name in ctx.agents:
        return RouteBackend(ctx.served_agent(agent_name))
    spec = ctx.user.agents.get(agent_name)
    if spec is None or not takes_only_message(spec):
        raise NotFoundError("agent", agent_name)
    return SpecBackend(ctx.user, spec)


class ChatPage:
    """The chat page: one conversation with one agent."""

    def __init__(self, ctx: PageContext, chat_agents: Sequence[str], agent: str | None) -> None:
        self._ctx = ctx
        self._chat_agents = chat_agents
        self._agent = agent
        self._agent_name = agent or "Tellback"
        self._backend = create_backend(ctx, agent)
        self._turn: asyncio.Task[None] | None = None
        self._is_ending = False
        self._max_length = min(MAX_MESSAGE_LENGTH, ctx.caller.server.settings.text_length)

    async def build(self) -> None:
        ctx = self._ctx
        self._show_toolbar()
        self._session_card = (
            SessionCard(ctx, agent) if (agent := self._agent) is not None and agent in ctx.agents else None
        )
        self._log = widgets.box("talk").props("role=log aria-live=polite aria-label=Conversation")
        await self._show_history(await self._backend.load_history())
        self._show_composer()
        context.client.on_delete(self._cancel)  # a turn ends when its client disconnects
        ui.run_javascript(_SCROLL_FOLLOW)

    def _show_model_notice(self) -> None:
        """Explain how to set up a model, until the first message: its answer also says that there is no model."""
        ctx = self._ctx
        has_own_model = self._agent in ctx.agents  # agents with routes have their own model
        has_model = has_own_model or not (ctx.tb.model is None or is_offline(ctx.tb.model))
        if has_model or NOTICE_COOKIE in ctx.cookies:
            return
        with widgets.box("notice", "welcome").props('role=note aria-label="No model"') as notice:
            note(f"No model is set up, so answers quote your memory. {SETUP_HINT} Then restart the server.")

            def dismiss() -> None:
                ui.run_javascript(f"document.cookie = '{NOTICE_COOKIE}=dismissed; max-age=31536000; samesite=lax'")
                notice.delete()

            widgets.icon_button("close", "Dismiss", dismiss)

    def _show_toolbar(self) -> None:
        ctx = self._ctx
        with widgets.box("line"):
            if self._chat_agents:
                widgets.select_field(
                    {"": "Default agent", **{name: name for name in self._chat_agents}},
                    "Agent",
                    self._agent or "",
                    on_change=lambda event: ui.navigate.to(ctx.link("/", agent=event.value or None)),
                ).classes("some")
            self._title = widgets.muted("")
            with widgets.box("actions"):
                on_new = ctx.guard(self._start_new_conversation)
                self._new_button = widgets.button("New conversation", "add_comment", on_new, "small")

    def _show_composer(self) -> None:
        with widgets.box("composer"):
            self._message_field = ui.textarea(placeholder=f"Write a message to {self._agent_name}").props(
                "outlined autogrow autofocus dense dir=auto input-style='max-height: 40vh'"
                f" maxlength={self._max_length}"
            )
            self._message_field.props["aria-label"] = (
                f"Write a message to {self._agent_name}. Enter sends it, Shift+Enter adds a line."
            )
            send = self._ctx.guard(self._send)
            self._message_field.on("keydown.enter", lambda event: send(event.args), js_handler=_SEND_ON_ENTER)
            self._send_button = widgets.icon_button("send", "Send", lambda: send(self._message_field.value))
            self._send_button.props("unelevated color=primary").props(remove="flat dense")
            self._stop_button = widgets.icon_button("stop", "Stop", self._cancel)
            self._stop_button.props("unelevated color=negative").props(remove="flat dense")
            self._stop_button.set_visibility(False)

    async def _show_history(self, history: ChatHistory) -> None:
        self._log.clear()
        with self._log:
            if history.messages:
                self._show_messages(history)
            else:
                self._show_welcome(history)
        if history.pending:
            view = self._new_view()
            self._ask_approvals(view, history.pending)
            view.finish()
        if self._session_card is not None:
            self._session_card.show(history.session)

    def _show_messages(self, history: ChatHistory) -> None:
        conversation, messages = history.conversation, history.messages
        if conversation is not None and messages[0].seq > 1:
            widgets.page_link("Show earlier messages", self._ctx.link("/conversations", id=conversation.id))
        show_conversation(messages, self._agent_name, self._show_footer, {call.id for call in history.pending})
        if messages[-1].role == "user" and not history.pending:
            with widgets.box("line"):
                note("No answer yet: it is still being written, was stopped, or failed. You can send another message.")
                widgets.button("Reload", "refresh", self._ctx.guard(self._reload), "flat").props("dense")

    async def _reload(self) -> None:
        if self._turn is None:
            await self._show_history(await self._backend.load_history())

    def _show_footer(self, message: StoredMessage) -> None:
        """Show the explanation button and the cost of an answer from before the page was opened."""
        _show_why_button(lambda: open_stored_explanation(self._ctx, message))
        if message.usage is not None:
            widgets.muted(format_cost(message.usage))

    def _show_welcome(self, history: ChatHistory) -> None:
        hint = (
            "Write something about yourself, then click “New conversation”. Tellback then extracts memories from the"
            " conversation that you left. Later answers use these memories and show their source messages."
        )
        if self._agent is not None:
            served = self._ctx.agents.get(self._agent)
            hint = (served and served.description) or f"You are chatting with the agent {self._agent}."
        self._show_model_notice()
        with widgets.box("welcome"), widgets.empty_state("forum", "Send a message.", hint):
            for example in EXAMPLE_MESSAGES if self._agent is None else ():
                widgets.button(example, None, partial(self._fill_message, example), "small")
            if history.expired is not None:
                link = self._ctx.link("/conversations", id=history.expired.id)
                widgets.page_link("Your last conversation was closed automatically. View it", link)

    def _fill_message(self, text: str) -> None:
        self._message_field.set_value(text)
        self._message_field.run_method("focus")

    async def _send(self, text: str) -> None:
        message = (text or "").strip()
        if not message or self._turn is not None:
            return
        if len(message) > self._max_length:
            raise InvalidArgumentError(
                f"A message can have at most {self._max_length:,} characters; this one has {len(message):,}."
            )
        if self._is_ending:
            notify("One moment: Tellback is still extracting memories.")
            return
        self._message_field.set_value("")
        for welcome in [each for each in self._log if "welcome" in each.classes]:
            welcome.delete()
        with self._log:
            show_user_message(message)
        await self._run_turn(self._new_view(), self._backend.send(message))

    async def _run_turn(self, view: ReplyView, items: ReplyStream) -> None:
        """Show an answer while it streams, until it is complete, stopped or failed."""
        view.start()
        self._turn = turn = asyncio.create_task(self._stream_reply(view, items))
        self._set_busy(True)
        with view.root:
            timer = ui.timer(FLUSH_SECONDS, view.flush)
        try:
            await asyncio.wait({turn})
        finally:
            self._turn = None
            timer.cancel()
            view.finish()
            self._set_busy(False)
        if turn.cancelled():
            view.add_note("Stopped. Your message is stored. The incomplete answer is not stored.")
        elif (error := turn.exception()) is not None:
            view.add_note(self._error_text(error), is_error=True)
        self._message_field.run_method("focus")

    async def _stream_reply(self, view: ReplyView, items: ReplyStream) -> None:
        async with aclosing(items):
            async for item in items:
                if isinstance(item, BackendReply):
                    self._finish_reply(view, item)
                else:
                    view.add_delta(item)

    def _finish_reply(self, view: ReplyView, reply: BackendReply) -> None:
        ctx, result = self._ctx, reply.result
        view.set_text_if_empty(result.text)
        view.show_tools(result.tool_invocations)
        view.citation_links = citation_links(ctx, reply)
        for problem in result.problems:
            error = problem.error
            reason = ctx.error_text(error) if isinstance(error, TellbackError) else "the reason is in the server log."
            step = STEP_LABELS.get(problem.step, f"The step {problem.step}")
            view.add_note(f"{step} failed: {reason}", is_error=True)
        if result.status in INCOMPLETE_NOTES:
            view.add_note(INCOMPLETE_NOTES[result.status])
        if result.pending:
            self._ask_approvals(view, result.pending)
        view.footer.clear()
        with view.footer:
            show_recalled(ctx, reply)
            _show_why_button(lambda: open_explanation(ctx, reply))

            widgets.muted(format_cost(result.usage))
        if self._session_card is not None:
            self._session_card.show(reply.session)

    def _ask_approvals(self, view: ReplyView, calls: Sequence[ToolCall]) -> None:
        """Ask the user to approve or decline calls; the turn resumes when all are decided."""
        approvals: dict[str, bool] = {}

        async def submit(id: str, approved: bool) -> None:
            approvals[id] = approved
            if len(approvals) == len(calls) and self._turn is None:
                await self._run_turn(view, self._backend.approve(approvals))

        view.ask_approvals(calls, self._ctx.guard(submit))

    async def _start_new_conversation(self) -> None:
        """Close the conversation, wait for its memories, and start another."""
        await self._cancel_and_wait()
        self._is_ending = True  # a message sent now would disappear with the old ones
        self._new_button.props("loading")
        self._new_button.disable()
        try:
            if await self._backend.close() is not None:
                self._title.set_text("Remembering…")
                is_done = await self._ctx.user.memory.wait_for_extraction(EXTRACTION_WAIT_SECONDS)
                notify("Memories extracted." if is_done else "Still extracting memories. See Jobs for the progress.")
            await self._show_history(ChatHistory())
        finally:
            self._is_ending = False
            self._title.set_text("")
            self._new_button.props(remove="loading")
            self._new_button.enable()
        self._message_field.run_method("focus")

    def _cancel(self) -> None:
        if self._turn is not None:
            self._turn.cancel()

    async def _cancel_and_wait(self) -> None:
        self._cancel()
        if self._turn is not None:
            await asyncio.wait({self._turn})  # `_run_turn` waits for the same task, and has shown the answer by then

    def _new_view(self) -> ReplyView:
        with self._log:
            return ReplyView(self._agent_name)

    def _set_busy(self, busy: bool) -> None:
        self._send_button.set_visibility(not busy)
        self._stop_button.set_visibility(busy)

    def _error_text(self, error: BaseException) -> str:
        if isinstance(error, TellbackError):
            return self._ctx.error_text(error)
        log.error("a turn failed: %s", type(error).__name__, exc_info=error)
        return f"{SERVER_FAILED} Reload the page to check whether your message was stored."


def _show_why_button(on_click: Callable[[], None]) -> None:
    widgets.button("Why this answer", "help_outline", on_click, "flat").props("dense")
