"""The `tellback chat` command: one answer, or a conversation in the terminal.

The event loop runs in a separate thread, so background jobs continue while the user types.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tellback.cli.conversations import wait_for_memories
from tellback.cli.memory import atom_to_json, print_atoms, print_hits
from tellback.cli.options import DEFAULT_TARGET, JsonOption, ModelOption, UserTarget
from tellback.cli.output import (
    create_console,
    escape_controls,
    format_count,
    format_minute,
    print_line,
    to_json_line,
    to_json_value,
    to_one_line,
)
from tellback.cli.runner import format_error, open_app, report_errors, resolve_model, user_of_target
from tellback.errors import ConfigurationError, TellbackError, require_found
from tellback.portal import Portal
from tellback.types import TextDelta, ToolUseEnd, ToolUseInputDelta, ToolUseStart

if TYPE_CHECKING:
    from tellback.agent import Agent, SessionState
    from tellback.app import Tellback
    from tellback.chat import ModelChoice
    from tellback.chat_backends import BackendReply, ChatBackend, ReplyStream
    from tellback.types.conversations import Conversation, StoredMessage
    from tellback.user import User

T = TypeVar("T")

WAKEUP_SECONDS = 0.5
"""How long the waiting thread sleeps before it handles signals: on some systems, a signal does not wake it."""

SLASH_COMMANDS = {
    "/memory [words]": "List your memories, or search them for a topic.",
    "/why": "Show the memories and the number of tokens behind the last answer.",
    "/routes": "Show the agent's routes, the current state and the gathered data.",
    "/close": "Close the conversation, extract memories and start a new one (also /new).",
    "/help": "Show this help.",
    "/quit": "Quit; the conversation stays open (also Ctrl-D).",
}
TAIL_MESSAGES = 6
MEMORIES_SHOWN = 20
REPLY_STOPPED = "Answer stopped. Your message is stored; you can continue."


class LoopThread(Portal):
    """Runs coroutines in a separate thread. Ctrl-C cancels the current coroutine and waits until it has finished."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result. A second Ctrl-C stops waiting for the cancelled coroutine."""
        finished = threading.Event()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            task = self._loop.create_task(coroutine)
            tasks.append(task)
            task.add_done_callback(lambda _: finished.set())

        self._loop.call_soon_threadsafe(start)
        try:
            _wait_interruptibly(finished)
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            _wait_interruptibly(finished)
            if not tasks[0].cancelled():
                tasks[0].exception()  # retrieved, so that asyncio does not log it
            raise
        return tasks[0].result()


def _wait_interruptibly(finished: threading.Event) -> None:
    while not finished.wait(WAKEUP_SECONDS):
        pass


class ChatRepl:
    """An interactive chat of one user. `read_line` returns the next line, or raises `EOFError` at the end."""

    def __init__(
        self,
        loop: LoopThread,
        backend: ChatBackend,
        space: str,
        read_line: Callable[[str], str],
        *,
        as_json: bool = False,
    ) -> None:
        self._loop = loop
        self._user = backend.user
        self._backend = backend
        self._space = space
        self._read_line = read_line
        self._as_json = as_json
        self._last_reply: BackendReply | None = None

    def open_conversation(self, conversation_id: str | None, *, starts_new: bool, is_quiet: bool) -> None:
        """Find the conversation to continue and show its last messages; with `starts_new`, close it instead."""
        found = self._loop.run(self._find_conversation(conversation_id))
        if starts_new:
            self._close(is_quiet=is_quiet or found is None)
        elif found is not None and found.last_seq and not is_quiet:
            self._show_tail(found)

    async def _find_conversation(self, id: str | None) -> Conversation | None:
        if id is None:
            return await self._backend.find_conversation()
        found = require_found(
            await self._user.conversations.get(id),
            "conversation",
            id,
            "Run `tellback conversations list` to see all conversations.",
        )
        await self._backend.resume(found)
        return found

    def run(self) -> None:
        while True:
            try:
                text = self._read_line("you> ").strip()
            except EOFError:
                typer.echo()
                return
            if text in ("/quit", "/exit"):
                return
            if not text:
                continue
            try:
                self._run_slash_command(text) if text.startswith("/") else self.send(text)
            except TellbackError as error:
                print_line(format_error(error), style="red", stderr=True)
            except KeyboardInterrupt:
                typer.echo()
                print_line(REPLY_STOPPED, style="yellow", stderr=True)

    def send(self, text: str) -> None:
        """Send a message, stream the answer, and ask the user to approve pending tool calls."""
        reply = self._stream_reply(self._backend.send(text))
        while reply.result.pending and not self._as_json:
            reply = self._stream_reply(self._backend.approve(self._ask_approvals(reply)))
        self._last_reply = reply

    def _stream_reply(self, stream: ReplyStream) -> BackendReply:
        previous_id = self._backend.conversation_id
        reply = self._loop.run(self._print_stream(stream))
        if self._as_json:
            typer.echo(to_json_line(_reply_to_json(reply)))
        else:
            typer.echo()
            for problem in reply.result.problems:
                print_line(f"Warning: {problem}.", style="yellow", stderr=True)
        if previous_id not in (None, reply.result.conversation_id) and not self._as_json:
            print_line("Started a new conversation, because the last one was inactive.", style="dim", stderr=True)
        return reply

    async def _print_stream(self, stream: ReplyStream) -> BackendReply:
        from tellback.chat_backends import BackendReply

        # The spinner runs until the first output.
        with create_console(stderr=True).status("", spinner="dots") as spinner:
            printer = _StreamPrinter(spinner.stop, is_silent=self._as_json)
            async with aclosing(stream):
                async for item in stream:
                    if isinstance(item, BackendReply):
                        printer.print_tools(item)
                        return item
                    printer.print_delta(item)
        raise AssertionError("the stream ended without a BackendReply")

    def _ask_approvals(self, reply: BackendReply) -> dict[str, bool]:
        approvals = {}
        for call in reply.result.pending:
            prompt = f"Run {call.name} with {to_one_line(json.dumps(to_json_value(call.input)))}? [y/N] "
            try:
                approvals[call.id] = self._read_line(prompt).strip().lower() in ("y", "yes")
            except EOFError:
                approvals[call.id] = False
        return approvals

    def _run_slash_command(self, text: str) -> None:
        name, _, argument = text.partition(" ")
        handlers: Mapping[str, Callable[[], None]] = {
            "/memory": lambda: self._show_memory(argument.strip()),
            "/why": self._show_why,
            "/routes": self._show_routes,
            "/close": self._close,
            "/new": self._close,
            "/help": _print_help,
        }
        if name not in handlers:
            print_line(f"Unknown command {name}. Type /help for a list of commands.", style="red", stderr=True)
            return
        handlers[name]()

    def _show_memory(self, query: str) -> None:
        memory = self._user.memory
        spaces = self._loop.run(memory.list_spaces(self._space))
        if spaces and query:
            hits = self._loop.run(memory.recall_by_topic(spaces[0].id, query)).hits
            print_hits(hits) if hits else print_line("No matching memories.")
        elif spaces and (atoms := self._loop.run(memory.list_atoms(spaces[0].id, limit=MEMORIES_SHOWN))):
            print_atoms(atoms)
        else:
            print_line("No memories yet. Memories are extracted when you /close the conversation.")

    def _show_why(self) -> None:
        _print_explanation(self._last_reply) if self._last_reply else print_line("No answer yet.")

    def _show_routes(self) -> None:
        if self._backend.agent is None:
            print_line("This chat has no agent with routes. Choose one with --agent module:attribute.")
            return
        _print_routes(self._backend.agent, self._loop.run(self._backend.load_session()))

    def _close(self, *, is_quiet: bool = False) -> None:
        with create_console(stderr=True).status("Extracting memories…"):
            outcome = self._loop.run(self._close_and_extract())
        if not is_quiet:
            print_line(outcome)

    async def _close_and_extract(self) -> str:
        id = await self._backend.close()
        self._last_reply = None
        if id is None:
            return "No open conversation."
        _, outcome = await wait_for_memories(self._user, id)
        return f"Closed the conversation. {outcome} Your next message starts a new one."

    def _show_tail(self, conversation: Conversation) -> None:
        messages = self._loop.run(self._user.conversations.messages(conversation.id, TAIL_MESSAGES))
        print_line(f"Continuing {conversation.id}, last updated {format_minute(conversation.updated_at)}:", style="dim")
        for message in messages:
            _print_message(message)


class _StreamPrinter:
    """Prints a reply while it streams: the text, and a line for each tool call.

    `before_output` is called before each output.
    """

    def __init__(self, before_output: Callable[[], None], *, is_silent: bool) -> None:
        self._before_output = before_output
        self._is_silent = is_silent
        self._names: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._is_mid_line = False
        self._printed_calls: set[str] = set()

    def print_delta(self, item: Any) -> None:
        if isinstance(item, TextDelta):
            self._write(escape_controls(item.text))
        elif isinstance(item, ToolUseStart):
            self._names[item.id], self._inputs[item.id] = item.name, ""
        elif isinstance(item, ToolUseInputDelta):
            self._inputs[item.id] = self._inputs.get(item.id, "") + item.partial_input_json
        elif isinstance(item, ToolUseEnd):
            self._printed_calls.add(item.id)
            self._print_tool(self._names.get(item.id, "tool"), self._inputs.get(item.id, ""))

    def print_tools(self, reply: BackendReply) -> None:
        """Print the tool calls that were not streamed: those of tool states."""
        for each in reply.result.tool_invocations:
            if each.id not in self._printed_calls:
                self._print_tool(each.name, json.dumps(to_json_value(each.arguments)))

    def _print_tool(self, name: str, arguments: str) -> None:
        if self._is_silent:
            return
        self._before_output()
        if self._is_mid_line:
            self._write("\n")
        print_line(f"→ {to_one_line(f'{name} {arguments}', 200)}", style="dim", stderr=True)

    def _write(self, text: str) -> None:
        if self._is_silent or not text:
            return
        self._before_output()
        sys.stdout.write(text)
        sys.stdout.flush()
        self._is_mid_line = not text.endswith("\n")


def _print_help() -> None:
    width = max(map(len, SLASH_COMMANDS))
    for name, description in SLASH_COMMANDS.items():
        print_line(f"  {name:{width}}  {description}")


def _print_message(message: StoredMessage) -> None:
    if message.text and message.role in ("user", "assistant"):
        print_line(f"{'you>' if message.role == 'user' else '    '} {to_one_line(message.text, 300)}", style="dim")


def _print_explanation(reply: BackendReply) -> None:
    context, usage = reply.result.context, reply.result.usage
    if context is None:
        print_line("This answer used no memory.")
    else:
        query_note = f' (query: "{to_one_line(context.recall_query, 80)}")' if context.recall_query else ""
        pinned_atoms = context.atoms_used[: len(context.atoms_used) - len(context.hits)]
        count = format_count(len(context.atoms_used), "memory", "memories")
        turns = format_count(context.turns_used, "earlier turn")
        print_line(f"The prompt contained {count}{query_note} and {turns}.")
        if pinned_atoms:
            print_atoms(pinned_atoms)
        if context.hits:
            print_hits(context.hits)
        budget_note = ", over budget" if context.over_budget else ""
        print_line(f"Working context: about {context.tokens_estimated} tokens{budget_note}.")
    if usage.input_tokens is not None or usage.output_tokens is not None:
        cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
        model = f"{usage.model}: " if usage.model else ""
        print_line(f"{model}{usage.input_tokens or 0} input tokens, {usage.output_tokens or 0} output tokens{cost}.")


def _print_routes(agent: Agent, session: SessionState | None) -> None:
    route_id = None if session is None or session.current_route is None else session.current_route.id
    state_id = None if session is None or session.current_state is None else session.current_state.id
    if not agent.routes:
        print_line(f"{agent.name} has no routes.")
    for route in agent.routes:
        is_current = route.id == route_id
        conditions = f" (when {'; '.join(route.conditions)})" if route.conditions else ""
        print_line(f"{'▶' if is_current else ' '} {route.title}{conditions}", style="bold" if is_current else None)
        for state in route.states:
            if state.kind != "start":
                mark = "▶" if is_current and state.id == state_id else "·"
                print_line(f"    {mark} {'run ' if state.kind == 'tool' else ''}{state.title}")
    gathered = {} if session is None else session.extracted
    print_line(f"Gathered data: {to_json_line(gathered)}" if gathered else "No data gathered yet.")


def _reply_to_json(reply: BackendReply) -> dict[str, Any]:
    result, session = reply.result, reply.session
    route = None if session is None else session.current_route
    return {
        "text": result.text,
        "conversation_id": result.conversation_id,
        "atoms_used": [atom_to_json(atom) for atom in result.atoms_used],
        "tool_calls": to_json_value(result.tool_invocations),
        "pending": to_json_value(result.pending),
        "problems": [str(problem) for problem in result.problems],
        "usage": to_json_value(result.usage),
        "route": None if route is None else route.title,
        "data": None if session is None else to_json_value(session.extracted),
    }


def chat(
    context: typer.Context,
    message: Annotated[
        str | None,
        typer.Argument(
            help="Message to send. With -, all of standard input is one message. Without a message, each"
            " piped line is one; if nothing is piped, the chat is interactive.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Close the open conversation, extract its memories and start a new one.")
    ] = False,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help="Continue the conversation with this id.")
    ] = None,
    model: ModelOption = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Agent to talk to: a .json or .yaml file, or module:attribute."),
    ] = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="NAME=VALUE", help="Argument that the agent's JSON or YAML file declares."),
    ] = None,
    space: Annotated[str, typer.Option("--space", "-s", help="Name of the memory space.")] = "default",
    namespace: Annotated[
        str, typer.Option("--namespace", help="Namespace: a name that you choose for this kind of conversation.")
    ] = "chat",
    target: UserTarget = DEFAULT_TARGET,
    as_json: JsonOption = False,
) -> None:
    """Chat in the terminal with a model that remembers you.

    Continues the open conversation, if there is one. Type /help in the chat for its commands, such as /memory, /why
    and /close. Memories are extracted when the conversation is closed.

    If you pass a message, or pipe a file with one message per line, the command prints the answers and exits.
    """
    if new and conversation is not None:
        raise typer.BadParameter("--new and --conversation cannot be used together.")
    from tellback.chat.offline import is_offline
    from tellback.chat_backends import ModelBackend

    is_interactive = message is None and sys.stdin.isatty() and not as_json
    with report_errors():
        choice = resolve_model(model)
        with closing(LoopThread()) as loop:
            store_context = open_app(target.url, may_create=True, allow_in_memory=True, worker=True, model=choice.name)
            tb = loop.run(store_context.__aenter__())
            try:
                user = user_of_target(tb, target)
                if agent is None:
                    backend: ChatBackend = ModelBackend(user, namespace, space, choice.name)
                else:
                    source = context.get_parameter_source("model")  # TELLBACK_MODEL is only for agents without a model
                    is_typed = source is not None and source.name == "COMMANDLINE"
                    arguments = dict(map(_parse_argument, argument or []))
                    backend = _build_agent_backend(tb, user, choice, agent, space, arguments, model_was_typed=is_typed)
                repl = ChatRepl(loop, backend, space, _read_line if is_interactive else input, as_json=as_json)

                repl.open_conversation(conversation, starts_new=new, is_quiet=not is_interactive)
                if is_interactive:
                    model_note = f" with {backend.model}." if backend.model else "."
                    if is_offline(backend.model):
                        model_note = ". No model is set up."
                    greeting = f"Chatting as {target.user}{model_note}"
                    print_line(f"{greeting} Type /help for commands, Ctrl-D to quit.", style="dim")
                    repl.run()
                else:
                    _run_piped(repl, message)
            finally:
                loop.run(store_context.__aexit__(None, None, None))


def _run_piped(repl: ChatRepl, message: str | None) -> None:
    if message is not None and message != "-":
        repl.send(message)
        return
    inputs = [sys.stdin.read()] if message == "-" else sys.stdin
    for text in inputs:
        if text.strip():
            repl.send(text.strip())


def _read_line(prompt: str) -> str:
    with suppress(ImportError):  # line editing and history, where available
        import readline  # noqa: F401
    return input(prompt)


def _build_agent_backend(
    tb: Tellback,
    user: User,
    choice: ModelChoice,
    source: str,
    space: str,
    arguments: Mapping[str, str],
    *,
    model_was_typed: bool,
) -> ChatBackend:
    from tellback.agent_sources import find_agents
    from tellback.chat_backends import RouteBackend, ServedAgent, SpecBackend, bind_agent, store_sessions

    found = find_agents(source, tb)
    problem = next((f"{each.source}: {each.problem}" for each in found if each.problem), None)
    if problem is not None:
        raise ConfigurationError(problem)
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise ConfigurationError(f"{source} contains {len(found)} agents ({names}), but --agent requires exactly one.")
    agent, spec = found[0].agent, found[0].spec
    if agent is not None:
        has_model = agent.model is not None or agent.options.chat_fn is not None
        model = choice.name if model_was_typed or not has_model else None
        if model is not None and choice.is_offline and agent.routes:
            raise ConfigurationError(
                f"Agent {agent.name} has routes, which require a model: set a provider's API key, such as"
                " ANTHROPIC_API_KEY, start Ollama, or pass --model."
            )
        agent = agent if model is None else agent.with_model(model)
        sessions = store_sessions(agent, tb, user.scope) if agent.persistence is None else agent.persistence
        return RouteBackend(ServedAgent(bind_agent(agent, tb, sessions), user), model)
    assert spec is not None
    if user.agents.get(spec.name) is None:
        tb.register_agent(spec)
    return SpecBackend(user, spec, space, choice.name if model_was_typed or spec.model is None else None, arguments)


def _parse_argument(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE.")
    return name, value
