"""Options and help that commands have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_URL = "tellback.db"
DEFAULT_USER = "local"

CHAT_PANEL, MEMORY_PANEL, DATA_PANEL, RUN_PANEL, CHECK_PANEL = "Talk", "Memory", "What is kept", "Run", "Look and check"
"""The panels of `tellback --help`."""

TARGET_PANEL = "Where, and whose"
"""The panel of what nearly every command takes."""

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", rich_help_panel=TARGET_PANEL
    ),
]
UserOption = Annotated[
    str, typer.Option("--user", "-u", envvar="TELLBACK_USER", help="The user's id.", rich_help_panel=TARGET_PANEL)
]
TenantOption = Annotated[
    str, typer.Option("--tenant", envvar="TELLBACK_TENANT", help="The user's tenant.", rich_help_panel=TARGET_PANEL)
]
AppOption = Annotated[
    str, typer.Option("--app", envvar="TELLBACK_APP", help="The user's app.", rich_help_panel=TARGET_PANEL)
]
SpaceOption = Annotated[
    str | None,
    typer.Option("--space", "-s", help="A memory space, by name or id: the default one, or the only one there is."),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="TELLBACK_MODEL",
        help="The model's name, a path to a .gguf file, or offline. Without it, the best that is set up here.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.")]


def format_examples(*lines: str) -> str:
    """The end of a command's help: what one would type.

    >>> print(format_examples("tellback doctor"))
    Example:
      $ tellback doctor
    """
    formatted = "\n".join(f"  $ {line}".replace("[", "\\[") for line in lines)  # help is read as markup
    return f"Example{'s' if len(lines) > 1 else ''}:\n{formatted}"


def unwrap_paragraphs(text: str) -> str:
    """A docstring whose paragraphs are one line each: the terminal folds them where it ends.

    >>> unwrap_paragraphs("Begin.\\n\\n    What follows\\n    is one line.")
    'Begin.\\n\\nWhat follows is one line.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def register_command(
    app: typer.Typer, *examples: str, name: str | None = None, panel: str | None = None
) -> Callable[[F], F]:
    """Make a function a command, with its docstring as help and examples of what one would type."""

    def decorate(function: F) -> F:
        assert function.__doc__ is not None
        help_text = unwrap_paragraphs(function.__doc__)
        app.command(name, help=help_text, epilog=format_examples(*examples), rich_help_panel=panel)(function)
        return function

    return decorate
