"""One conversation on a page: its messages, what is hidden of them from a chat, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from tellback.console import widgets
from tellback.console.parts import note, words
from tellback.console.seat import Seat, tell
from tellback.console.speech import is_shown, results_in, show_stored
from tellback.console.why import cost_line
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom

PAGE = 50
BEFORE = 10
"""How many messages are shown before the one that a citation leads to."""
MOST_ATOMS = 20
LOOKED_THROUGH = 500
REMEMBERING_SECONDS = 60.0

_TO_LIT = """
const lit = document.querySelector('.lit');
if (lit) { lit.scrollIntoView({block: 'center'}); lit.focus({preventScroll: true}); }
"""
_SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_VISIBILITIES = {
    "internal": "internal: the model sees it, a chat does not show it",
    "hidden": "hidden: kept, but neither shown nor sent to the model",
}


class ConversationView:
    """A conversation, with the message lit that the address names."""

    def __init__(self, seat: Seat, talk: Conversation, lit: str | None) -> None:
        self._seat = seat
        self._talk = talk
        self._lit = lit
        self._first = self._last = 0

    async def build(self) -> None:
        messages = await self._wanted()
        self._head(messages)
        self._before = widgets.box("line").style("justify-content: center")
        self._rows = widgets.box("stack")
        self._after = widgets.box("line").style("justify-content: center")
        if messages:
            self._first, self._last = messages[0].seq, messages[-1].seq
            with self._rows:
                self._show(messages)
        else:
            with self._rows:
                widgets.quiet("Nothing was said in it.")
        self._ways()
        await self._remembered()
        if self._lit is not None:
            ui.run_javascript(_TO_LIT)

    async def _wanted(self) -> list[StoredMessage]:
        talks = self._seat.user.conversations
        if self._lit is not None:
            found = await talks.message(self._lit)
            if found is not None and found.conversation_id == self._talk.id:
                return await self._read(after=max(0, found.seq - BEFORE - 1))
            note("The message that this link leads to is not in this conversation (any more).", is_wrong=True)
        return await self._read()

    async def _read(self, *, before: int | None = None, after: int | None = None) -> list[StoredMessage]:
        return await self._seat.user.conversations.messages(
            self._talk.id, PAGE, include_internal=True, before=before, after=after, include_hidden=True
        )

    def _head(self, messages: Sequence[StoredMessage]) -> None:
        talk, seat = self._talk, self._seat
        with widgets.box("line"):
            widgets.go("All conversations", seat.link("/conversations"))
            if talk.is_open:
                with widgets.box("actions"):
                    ui.button("Close it", icon="check_circle_outline", on_click=self._ask_to_close).props(
                        "outline no-caps dense padding='4px 12px'"
                    )
        first = next((message.text for message in messages if message.role == "user"), "")
        title = words(widgets.cut(talk.title or first, 160) or "Conversation").classes("head2")
        title.props("role=heading aria-level=2")
        with widgets.box("line"):
            widgets.chip("open" if talk.is_open else "closed", "good" if talk.is_open else "")
            widgets.chip(talk.namespace)
            widgets.quiet(f"{widgets.counted(talk.last_seq, 'message')} in {widgets.counted(talk.turns, 'turn')}")
            widgets.quiet(f"begun {widgets.moment(talk.created_at)}")
            if talk.closed_at is not None:
                widgets.quiet(f"closed {widgets.moment(talk.closed_at)}")
            if talk.session_id is not None:
                widgets.quiet(f"session {widgets.cut(talk.session_id, 60)}")
        if talk.rolling_summary:
            with widgets.box("card", tag="section"):
                widgets.quiet(f"Summary, up to message {talk.rolling_summary_until_seq}")
                words(talk.rolling_summary)

    def _show(self, messages: Sequence[StoredMessage]) -> None:
        results = results_in(messages)
        asked = {call.id for message in messages for call in message.tool_calls}
        for message in messages:
            # Results stand with their calls, unless those are on another page.
            if not is_shown(message) and asked.issuperset(results_in([message])):
                continue
            with widgets.box("message", message.role, tag="article") as shown:
                if message.id == self._lit:
                    shown.classes("lit").props("tabindex=-1 aria-current=true")
                with widgets.box("line"):
                    ui.label(_SPEAKERS.get(message.role, message.role)).classes("who")
                    widgets.quiet(widgets.moment(message.created_at) or "")
                    if message.visibility in _VISIBILITIES:
                        widgets.chip(_VISIBILITIES[message.visibility], "wait")
                    if message.usage is not None or message.model:
                        widgets.quiet(self._cost(message))
                    with widgets.box("actions"):
                        address = self._seat.link("/conversations", id=self._talk.id, message=message.id)
                        link = ui.link(f"#{message.seq}", address).classes("go plain quiet")
                        widgets.named(link, f"Link to message {message.seq}")
                show_stored(message, results)
                if not is_shown(message):
                    for result in results_in([message]).values():
                        words(result.content)

    def _cost(self, message: StoredMessage) -> str:
        found = "" if message.usage is None else cost_line(message.usage)
        if message.model is None or message.model in found:
            return found
        return f"{message.model} · {found}" if found else message.model

    def _ways(self) -> None:
        """To what is before and after that which is shown."""
        self._before.clear()
        self._after.clear()
        if self._first > 1:
            with self._before:
                ui.button("Earlier messages", icon="expand_less", on_click=self._seat.doing(self._earlier)).props(
                    "flat no-caps"
                )
        if self._last < self._talk.last_seq:
            with self._after:
                ui.button("Later messages", icon="expand_more", on_click=self._seat.doing(self._later)).props(
                    "flat no-caps"
                )

    async def _earlier(self) -> None:
        found = await self._read(before=self._first)
        self._first = found[0].seq if found else 1
        with self._rows:
            box = widgets.box("stack")
            with box:
                self._show(found)
            box.move(self._rows, 0)
        self._ways()

    async def _later(self) -> None:
        found = await self._read(after=self._last)
        self._last = found[-1].seq if found else self._talk.last_seq
        with self._rows:
            self._show(found)
        self._ways()

    def _ask_to_close(self) -> None:
        async def close() -> None:
            await self._seat.user.conversations.close(self._talk.id)
            tell("Closed. It becomes memories now.")
            await self._seat.user.memory.wait_for_extraction(REMEMBERING_SECONDS)
            ui.navigate.to(self._seat.link("/conversations", id=self._talk.id))

        text = "It takes no more messages, and what was said in it becomes memories, if its namespace is remembered."
        widgets.confirmed(self._seat, "Close this conversation?", text, "Close it", close, is_grave=False)

    async def _remembered(self) -> None:
        """What is remembered of it, among the newest memories, and what became of the work to do so."""
        memory = self._seat.user.memory
        jobs = await memory.list_jobs(conversation_id=self._talk.id, limit=1)
        atoms: list[Atom] = []
        is_partial = False
        for space in await memory.list_spaces():
            newest = await memory.list_atoms(space.id, limit=LOOKED_THROUGH, include_superseded=True)
            atoms += [atom for atom in newest if any(each.conversation_id == self._talk.id for each in atom.citations)]
            is_partial = is_partial or len(newest) == LOOKED_THROUGH
        if not atoms and not jobs:
            return
        widgets.title("What is remembered of it")
        for atom in atoms[:MOST_ATOMS]:
            with widgets.box("card"):
                widgets.go(widgets.cut(atom.text, 300), self._seat.link("/atom", id=atom.id))
        if len(atoms) > MOST_ATOMS:
            widgets.quiet(f"and {len(atoms) - MOST_ATOMS:,} more")
        if is_partial:
            widgets.quiet(f"Only the newest {LOOKED_THROUGH} memories were looked through.")
        if jobs:
            with widgets.box("line"):
                widgets.quiet(
                    f"It was last read on {widgets.moment(jobs[0].created_at)}: {jobs[0].status.value.lower()}."
                )
                ui.link("Jobs", self._seat.link("/jobs")).classes("go quiet")
