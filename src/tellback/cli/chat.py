"""`tellback chat`: a chat in the terminal that remembers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tellback.cli.options import DEFAULT_URL, DEFAULT_USER, App, AsJson, Model, Tenant, Url, User
from tellback.cli.printing import say
from tellback.cli.running import Whose, handle, opened, told

if TYPE_CHECKING:
    from tellback.app import Tellback
    from tellback.chat import ModelChoice
    from tellback.cli.chatting import Chatting
    from tellback.cli.talks import Talk
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
    model: Model = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", help="Talk with an agent: a .json or .yaml file, or module:attribute."),
    ] = None,
    argument: Annotated[
        list[str] | None, typer.Option("--argument", metavar="NAME=VALUE", help="An argument of an agent in a file.")
    ] = None,
    space: Annotated[str, typer.Option("--space", "-s", help="The memory space by its name.")] = "default",
    namespace: Annotated[str, typer.Option("--namespace", help="What kind of conversation it is.")] = "chat",
    url: Url = DEFAULT_URL,
    user: User = DEFAULT_USER,
    tenant: Tenant = "default",
    app_id: App = "default",
    as_json: AsJson = False,
) -> None:
    """Chat with a model that remembers you, here in the terminal.

    It goes on with the conversation that is open, if there is one. Type /help in it for what else there is: /memory,
    /why, /close and more. A conversation becomes memories when it is closed.

    With a message, or with input from a pipe (a message a line), it answers and ends.
    """
    from tellback.cli.loop_thread import LoopThread

    if new and conversation is not None:
        raise typer.BadParameter("--new begins a conversation, and --conversation goes on with one: leave one out.")
    whose = Whose(url, user, tenant, app_id)
    alone = message is None and sys.stdin.isatty() and not as_json
    with told():
        from tellback.cli import models
        from tellback.cli.chatting import Chatting

        choice = models.chosen(model)
        with LoopThread() as loop:
            opening = opened(url, new=True, in_memory=True, worker=True, model=choice.name)
            rc = loop.call(opening.__aenter__())
            try:
                person = handle(rc, whose)
                talk = _talk(
                    rc, person, choice, agent, argument or [], namespace, space, named=_is_typed(context, "model")
                )
                chatting = Chatting(loop, person, talk, space, _line if alone else input, as_json=as_json)
                if talk.model == choice.name and choice.is_offline:
                    say(models.OFFLINE, style="yellow", stderr=True)
                chatting.begin(conversation, new=new, quiet=not alone)
                if alone:
                    _alone(chatting, user, talk.model or "the agent's model")
                else:
                    _piped(chatting, message)
            finally:
                loop.call(opening.__aexit__(None, None, None))


def _is_typed(context: typer.Context, name: str) -> bool:
    """Whether an option was given on the command line: the environment's model is for agents that have none."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _alone(chatting: Chatting, user: str, model: str) -> None:
    say(f"You are {user}, and {model} answers. /help says what else there is; Ctrl-D leaves.", style="dim")
    chatting.converse()


def _piped(chatting: Chatting, message: str | None) -> None:
    """Answer the message, or each line of the input."""
    if message is not None and message != "-":
        chatting.answer(message)
        return
    whole = [sys.stdin.read()] if message == "-" else sys.stdin
    for text in whole:
        if text.strip():
            chatting.answer(text.strip())


def _line(prompt: str) -> str:
    import contextlib

    with contextlib.suppress(ImportError):  # editing and history, where there is such a thing
        import readline  # noqa: F401
    return input(prompt)


def _talk(
    rc: Tellback,
    person: Handle,
    choice: ModelChoice,
    source: str | None,
    arguments: list[str],
    namespace: str,
    space: str,
    *,
    named: bool,
) -> Talk:
    from tellback.agent_sources import agents_at
    from tellback.cli.talks import PlainTalk, RouteTalk, SpecTalk
    from tellback.errors import ConfigurationError

    if source is None:
        return PlainTalk(person, namespace, space, choice.name)
    found = agents_at(source, rc)
    problem = next((f"{each.where}: {each.problem}" for each in found if each.problem), None)
    if problem is not None:
        raise ConfigurationError(problem)
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise ConfigurationError(f"{source} has {len(found)} agents ({names}): name the one to talk with.")
    [one] = found
    if one.agent is not None:
        has_model = one.agent.model is not None or one.agent.options.chat_fn is not None
        model = choice.name if named or not has_model else None
        if model is not None and choice.is_offline and one.agent.routes:
            raise ConfigurationError(
                f"{one.name} follows routes, for which it needs a model: set a provider's key, such as"
                " ANTHROPIC_API_KEY, start Ollama, or pass --model."
            )
        return RouteTalk(rc, person, one.agent, model)
    assert one.spec is not None
    if person.agents.get(one.spec.name) is None:
        rc.register_agent(one.spec)
    return SpecTalk(
        person, one.spec, space, choice.name if named or one.spec.model is None else None, dict(map(_pair, arguments))
    )


def _pair(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given or not name:
        raise typer.BadParameter(f"{text!r} is no argument: write --argument name=value.")
    return name, value
