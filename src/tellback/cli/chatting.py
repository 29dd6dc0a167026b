"""A chat in the terminal: messages and answers, and what one may ask about them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import typer

from tellback.cli.printing import console, counted, json_line, minute, one_line, plain, safe, say
from tellback.cli.remembering import made_of
from tellback.cli.sentences import sentence_of
from tellback.cli.showing import plain_atom, show_atoms, show_hits
from tellback.cli.talks import Answer
from tellback.errors import TellbackError
from tellback.types import TextDelta, ToolUseEnd, ToolUseInputDelta, ToolUseStart

if TYPE_CHECKING:
    from tellback.agent import Agent, SessionState
    from tellback.cli.loop_thread import LoopThread
    from tellback.cli.talks import Stream, Talk
    from tellback.types.conversations import Conversation, StoredMessage
    from tellback.user import User

COMMANDS = {
    "/memory [words]": "what is remembered, or what is on that topic",
    "/why": "what the last answer was given: memories with scores and dates, and tokens",
    "/routes": "the agent's routes, where you are, and what it has gathered",
    "/close": "close the conversation: it becomes memories, and a new one begins (also /new)",
    "/help": "this",
    "/quit": "leave; the conversation stays open (also Ctrl-D)",
}
TAIL = 6
SHOWN = 20
STOPPED = "The answer was stopped; your message is kept, and you can go on."


class Chatting:
    """One person's chat. `line` asks for the next message; it raises `EOFError` when there is none."""

    def __init__(
        self, loop: LoopThread, user: User, talk: Talk, space: str, line: Callable[[str], str], *, as_json: bool = False
    ) -> None:
        self._loop = loop
        self._user = user
        self._talk = talk
        self._space = space
        self._line = line
        self._as_json = as_json
        self._conversation_id: str | None = None
        self._last: Answer | None = None

    def begin(self, conversation_id: str | None, *, new: bool, quiet: bool) -> None:
        """Find the conversation to go on with, and show how it ended; with `new` it is closed, and another begins."""
        found = self._loop.call(self._talk.begin(conversation_id))
        self._conversation_id = None if found is None else found.id
        if new and found is not None:
            self._close(quiet=quiet)
        elif found is not None and found.last_seq and not quiet:
            self._show_tail(found)

    def converse(self) -> None:
        """Talk until there is nothing more to say."""
        while True:
            try:
                text = self._line("you> ").strip()
            except EOFError:
                typer.echo()
                return
            if text in ("/quit", "/exit"):
                return
            if not text:
                continue
            try:
                self._command(text) if text.startswith("/") else self.answer(text)
            except TellbackError as error:
                say(sentence_of(error), style="red", stderr=True)
            except KeyboardInterrupt:
                typer.echo()
                say(STOPPED, style="yellow", stderr=True)

    def answer(self, text: str) -> Answer:
        """Say something, show the answer as it comes, and ask about calls that wait for a decision."""
        answer = self._streamed(self._talk.say(text))
        while answer.pending and not self._as_json:
            answer = self._streamed(self._talk.decide(self._decisions(answer)))
        self._last = answer
        return answer

    def _streamed(self, stream: Stream) -> Answer:
        answer = self._loop.call(self._follow(stream))
        if self._as_json:
            typer.echo(json_line(plain_answer(answer)))
        else:
            typer.echo()
            for problem in answer.problems:
                say(f"This failed without ending the turn: {problem}.", style="yellow", stderr=True)
        if self._conversation_id not in (None, answer.conversation_id) and not self._as_json:
            say("A new conversation has begun: nothing was said in the last one for long.", style="dim", stderr=True)
        self._conversation_id = answer.conversation_id
        return answer

    async def _follow(self, stream: Stream) -> Answer:
        # A terminal shows that something goes on until there is something to show.
        with console(stderr=True).status("", spinner="dots") as waiting:
            show = _Shown(waiting.stop, silent=self._as_json)
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, Answer):
                        show.tools(item)
                        return item
                    show.delta(item)
        raise AssertionError("a stream ends with its answer")

    def _decisions(self, answer: Answer) -> dict[str, bool]:
        found = {}
        for call in answer.pending:
            asked = f"Run {call.name} with {one_line(json.dumps(plain(call.input)))}? [y/N] "
            try:
                found[call.id] = self._line(asked).strip().lower() in ("y", "yes")
            except EOFError:
                found[call.id] = False
        return found

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        known: Mapping[str, Callable[[], None]] = {
            "/memory": lambda: self._show_memory(rest.strip()),
            "/why": self._show_why,
            "/routes": self._show_routes,
            "/close": self._close,
            "/new": self._close,
            "/help": show_help,
        }
        if name not in known:
            say(f"There is no {name}: /help lists what there is.", style="red", stderr=True)
            return
        known[name]()

    def _show_memory(self, query: str) -> None:
        memory = self._user.memory

        async def find() -> None:
            spaces = await memory.list_spaces(self._space)
            if not spaces:
                say("Nothing is remembered yet: /close makes memories of what was said.")
            elif query:
                found = await memory.recall_by_topic(spaces[0].id, query)
                show_hits(found.hits) if found.hits else say("Nothing is remembered of that.")
            else:
                atoms = await memory.list_atoms(spaces[0].id, limit=SHOWN)
                show_atoms(atoms) if atoms else say(
                    "Nothing is remembered yet: /close makes memories of what was said."
                )

        self._loop.call(find())

    def _show_why(self) -> None:
        if self._last is None:
            say("Nothing was answered yet.")
            return
        show_why(self._last)

    def _show_routes(self) -> None:
        if self._talk.agent is None:
            say("There are no routes: name an agent that has some with --agent module:attribute.")
            return
        show_routes(self._talk.agent, self._loop.call(self._talk.session()))

    def _close(self, *, quiet: bool = False) -> None:
        id = self._conversation_id
        if id is None:
            say("There is nothing to close: say something first.")
            return
        with console(stderr=True).status("Making memories of what was said…"):
            made = self._loop.call(self._closed(id))
        self._conversation_id = self._last = None
        if not quiet:
            say(f"Closed: {made} A new conversation begins.")

    async def _closed(self, id: str) -> str:
        await self._talk.end(id)
        _, told = await made_of(self._user, id)
        return told

    def _show_tail(self, conversation: Conversation) -> None:
        messages = self._loop.call(self._user.conversations.messages(conversation.id, TAIL))
        say(f"Going on with {conversation.id}, last changed {minute(conversation.updated_at)}:", style="dim")
        for message in messages:
            show_line(message)


class _Shown:
    """An answer on its way to the screen: text as it comes, and a line for each tool. `begin` is called before any."""

    def __init__(self, begin: Callable[[], None], *, silent: bool) -> None:
        self._begin = begin
        self._silent = silent
        self._names: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._is_mid_line = False
        self._told: set[str] = set()

    def delta(self, item: Any) -> None:
        if isinstance(item, TextDelta):
            self._write(safe(item.text))
        elif isinstance(item, ToolUseStart):
            self._names[item.id], self._inputs[item.id] = item.name, ""
        elif isinstance(item, ToolUseInputDelta):
            self._inputs[item.id] = self._inputs.get(item.id, "") + item.partial_input_json
        elif isinstance(item, ToolUseEnd):
            self._told.add(item.id)
            self._tool(self._names.get(item.id, "tool"), self._inputs.get(item.id, ""))

    def tools(self, answer: Answer) -> None:
        """Tools that ran without being streamed: those of states."""
        for each in answer.tools:
            if each.id not in self._told:
                self._tool(each.name, json.dumps(plain(each.arguments)))

    def _tool(self, name: str, arguments: str) -> None:
        if self._silent:
            return
        self._begin()
        if self._is_mid_line:
            self._write("\n")
        say(f"→ {one_line(f'{name} {arguments}', 200)}", style="dim", stderr=True)

    def _write(self, text: str) -> None:
        if self._silent or not text:
            return
        self._begin()
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_mid_line = not text.endswith("\n")


def show_help() -> None:
    """What one may type beside messages."""
    width = max(map(len, COMMANDS))
    for name, what in COMMANDS.items():
        say(f"  {name:{width}}  {what}")


def show_line(message: StoredMessage) -> None:
    """A message of the past, on a line."""
    if message.text and message.role in ("user", "assistant"):
        say(f"{'you>' if message.role == 'user' else '    '} {one_line(message.text, 300)}", style="dim")


def show_why(answer: Answer) -> None:
    """What an answer was given: memories, turns and tokens."""
    context, usage = answer.context, answer.usage
    if context is None:
        say("No memory was asked for this answer.")
    else:
        asked = f' for "{one_line(context.recall_query, 80)}"' if context.recall_query else ""
        always = context.atoms_used[: len(context.atoms_used) - len(context.hits)]
        given = counted(len(context.atoms_used), "memory was", "memories were")
        say(f"{given} given{asked}, with {counted(context.turns_used, 'turn')} before this one.")
        if always:
            show_atoms(always)
        if context.hits:
            show_hits(context.hits)
        over = ", over its budget" if context.over_budget else ""
        say(f"The working context is about {context.tokens_estimated} tokens{over}.")
    if usage.input_tokens is not None or usage.output_tokens is not None:
        cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
        model = f" by {usage.model}" if usage.model else ""
        say(f"{usage.input_tokens or 0} tokens were read and {usage.output_tokens or 0} written{model}{cost}.")


def show_routes(agent: Agent, session: SessionState | None) -> None:
    """An agent's routes and states, with a mark at where the session stands, and what was gathered."""
    at_route = None if session is None or session.current_route is None else session.current_route.id
    at_state = None if session is None or session.current_state is None else session.current_state.id
    if not agent.routes:
        say(f"{agent.name} has no routes.")
    for route in agent.routes:
        here = route.id == at_route
        conditions = f" (when {'; '.join(route.conditions)})" if route.conditions else ""
        say(f"{'▶' if here else ' '} {route.title}{conditions}", style="bold" if here else None)
        for state in route.states:
            if state.kind != "start":
                mark = "▶" if here and state.id == at_state else "·"
                say(f"    {mark} {'run ' if state.kind == 'tool' else ''}{state.title}")
    gathered = {} if session is None else session.extracted
    say("Nothing was gathered yet." if not gathered else f"Gathered: {json_line(gathered)}")


def plain_answer(answer: Answer) -> dict[str, Any]:
    """An answer as JSON has it, on one line."""
    context = answer.context
    return {
        "text": answer.text,
        "conversation_id": answer.conversation_id,
        "atoms_used": [] if context is None else [plain_atom(atom) for atom in context.atoms_used],
        "tool_calls": plain(answer.tools),
        "pending": plain(answer.pending),
        "problems": [str(problem) for problem in answer.problems],
        "usage": plain(answer.usage),
        "route": _title(answer.session),
        "data": None if answer.session is None else plain(answer.session.extracted),
    }


def _title(session: SessionState | None) -> str | None:
    return None if session is None or session.current_route is None else session.current_route.title
