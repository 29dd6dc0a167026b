"""`tellback chat`: a chat in the terminal, with the model or with an agent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import (
    DEFAULT_URL,
    DEFAULT_USER,
    AppOption,
    JsonOption,
    ModelOption,
    TenantOption,
    UrlOption,
    UserOption,
)
from tellback.cli.output import print_line
from tellback.cli.runner import UserTarget, open_app, report_errors, user_of_target

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.chat import ModelChoice
    from tellback.cli.chat_backends import ChatBackend
    from tellback.cli.chat_repl import ChatRepl
    from tellback.user import User as Handle


def chat(
    context: typer.Context,
    message: Annotated[
        str | None,
        typer.Argument(
            help="What to say: it is answered, and that is all. - reads all of the input as one message.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Close the open conversation, so that it is remembered, and begin another.")
    ] = False,
    conversation: Annotated[str | None, typer.Option("--conversation", help="Go on with this one, by its id.")] = None,
    model: ModelOption = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Talk with an agent: a .json or .yaml file, or module:attribute."),
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option("--argument", metavar="NAME=VALUE", help="An argument of an agent in a file.")
    ] = None,
    space: Annotated[str, typer.Option("--space", "-s", help="The memory space by its name.")] = "default",
    namespace: Annotated[str, typer.Option("--namespace", help="What kind of conversation it is.")] = "chat",
    url: UrlOption = DEFAULT_URL,
    user: UserOption = DEFAULT_USER,
    tenant: TenantOption = "default",
    app_id: AppOption = "default",
    as_json: JsonOption = False,
) -> None:
    """Chat with a model that remembers you, here in the terminal.

    It goes on with the conversation that is open, if there is one. Type /help in it for what else there is: /memory,
    /why, /close and more. A conversation becomes memories when it is closed.

    With a message, or with input from a pipe (a message a line), it answers and ends.
    """
    from tellback.cli.chat_repl import LoopThread

    if new and conversation is not None:
        raise typer.BadParameter("--new begins a conversation, and --conversation goes on with one: leave one out.")
    target = UserTarget(url, user, tenant, app_id)
    is_interactive = message is None and sys.stdin.isatty() and not as_json
    with report_errors():
        from tellback.cli import runner
        from tellback.cli.chat_repl import ChatRepl

        choice = runner.resolve_model(model)
        with LoopThread() as loop:
            store_context = open_app(url, may_create=True, allow_in_memory=True, worker=True, model=choice.name)
            rc = loop.run(store_context.__aenter__())
            try:
                user_handle = user_of_target(rc, target)
                backend = _build_backend(
                    rc,
                    user_handle,
                    choice,
                    agent,
                    argument or [],
                    namespace,
                    space,
                    model_was_typed=_is_on_command_line(context, "model"),
                )
                repl = ChatRepl(
                    loop, user_handle, backend, space, _read_line if is_interactive else input, as_json=as_json
                )
                if backend.model == choice.name and choice.is_offline:
                    print_line(runner.OFFLINE_NOTE, style="yellow", stderr=True)
                repl.open_conversation(conversation, starts_new=new, is_quiet=not is_interactive)
                if is_interactive:
                    _run_interactive(repl, user, backend.model or "the agent's model")
                else:
                    _run_piped(repl, message)
            finally:
                loop.run(store_context.__aexit__(None, None, None))


def _is_on_command_line(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line: the environment's model is for agents that have none."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _run_interactive(repl: ChatRepl, user: str, model: str) -> None:
    print_line(f"You are {user}, and {model} answers. /help says what else there is; Ctrl-D leaves.", style="dim")
    repl.run()


def _run_piped(repl: ChatRepl, message: str | None) -> None:
    """Answer the message, or each line of the input."""
    if message is not None and message != "-":
        repl.send(message)
        return
    inputs = [sys.stdin.read()] if message == "-" else sys.stdin
    for text in inputs:
        if text.strip():
            repl.send(text.strip())


def _read_line(prompt: str) -> str:
    import contextlib

    with contextlib.suppress(ImportError):  # editing and history, where there is such a thing
        import readline  # noqa: F401
    return input(prompt)


def _build_backend(
    rc: Tellback,
    user: Handle,
    choice: ModelChoice,
    source: str | None,
    arguments: list[str],
    namespace: str,
    space: str,
    *,
    model_was_typed: bool,
) -> ChatBackend:
    from tellback.agent_sources import find_agents
    from tellback.cli.chat_backends import ModelBackend, RouteBackend, SpecBackend
    from tellback.errors import ConfigurationError

    if source is None:
        return ModelBackend(user, namespace, space, choice.name)
    found = find_agents(source, rc)
    problem = next((f"{each.source}: {each.problem}" for each in found if each.problem), None)
    if problem is not None:
        raise ConfigurationError(problem)
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise ConfigurationError(f"{source} has {len(found)} agents ({names}): name the one to talk with.")
    [source_agent] = found
    if source_agent.agent is not None:
        has_model = source_agent.agent.model is not None or source_agent.agent.options.chat_fn is not None
        model = choice.name if model_was_typed or not has_model else None
        if model is not None and choice.is_offline and source_agent.agent.routes:
            raise ConfigurationError(
                f"{source_agent.name} follows routes, for which it needs a model: set a provider's key, such as"
                " ANTHROPIC_API_KEY, start Ollama, or pass --model."
            )
        return RouteBackend(rc, user, source_agent.agent, model)
    assert source_agent.spec is not None
    if user.agents.get(source_agent.spec.name) is None:
        rc.register_agent(source_agent.spec)
    return SpecBackend(
        user,
        source_agent.spec,
        space,
        choice.name if model_was_typed or source_agent.spec.model is None else None,
        dict(map(_parse_argument, arguments)),
    )


def _parse_argument(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is no argument: write --argument name=value.")
    return name, value
