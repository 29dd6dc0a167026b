"""Options and help that commands have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL = "tellback.db"
DEFAULT_USER = "local"

TALK, MEMORY, RECORDS, RUN, LOOK = "Talk", "Memory", "What is kept", "Run", "Look and check"
"""The panels of `tellback --help`."""

WHOSE = "Where, and whose"
"""The panel of what nearly every command takes."""

Url = Annotated[
    str,
    typer.Option("--url", envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", rich_help_panel=WHOSE),
]
User = Annotated[
    str, typer.Option("--user", "-u", envvar="TELLBACK_USER", help="The user's id.", rich_help_panel=WHOSE)
]
Tenant = Annotated[
    str, typer.Option("--tenant", envvar="TELLBACK_TENANT", help="The user's tenant.", rich_help_panel=WHOSE)
]
App = Annotated[str, typer.Option("--app", envvar="TELLBACK_APP", help="The user's app.", rich_help_panel=WHOSE)]
Space = Annotated[
    str | None,
    typer.Option("--space", "-s", help="A memory space, by name or id: the default one, or the only one there is."),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="TELLBACK_MODEL",
        help="The model's name, a path to a .gguf file, or offline. Without it, the best that is set up here.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")]


def examples(*lines: str) -> str:
    """The end of a command's help: what one would type.

    >>> print(examples("tellback doctor"))
    Example:
      $ tellback doctor
    """
    shown = "\n".join(f"  $ {line}".replace("[", "\\[") for line in lines)  # help is read as markup
    return f"Example{'s' if len(lines) > 1 else ''}:\n{shown}"


def unfolded(text: str) -> str:
    """A docstring whose paragraphs are one line each: the terminal folds them where it ends.

    >>> unfolded("Begin.\\n\\n    What follows\\n    is one line.")
    'Begin.\\n\\nWhat follows is one line.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def command(app: typer.Typer, *lines: str, name: str | None = None, panel: str | None = None) -> Callable[[F], F]:
    """Make a function a command, with its docstring as help and examples of what one would type."""

    def made(function: F) -> F:
        assert function.__doc__ is not None
        shown = unfolded(function.__doc__)
        app.command(name, help=shown, epilog=examples(*lines), rich_help_panel=panel)(function)
        return function

    return made
