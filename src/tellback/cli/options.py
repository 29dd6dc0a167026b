"""Options that commands share, their help texts, and the parser for dates on the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from tellback.types.ids import utc_now

DEFAULT_URL = "tellback.db"
DEFAULT_USER = "local"

CHAT_PANEL, MEMORY_PANEL, DATA_PANEL, RUN_PANEL, CHECK_PANEL = "Talk", "Memory", "What is kept", "Run", "Look and check"
"""The panels of `tellback --help`."""

TARGET_PANEL = "Where, and whose"
"""The panel of what nearly every command takes."""

TIME_METAVAR = "2026-03|yesterday|2w"

_AGO = re.compile(r"(\d{1,5})\s*(m|h|d|w|mo|y)(?:\s+ago)?")
_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}
_PERIOD = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")

UrlOption = Annotated[
    str,
    typer.Option(
        "--url", envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", rich_help_panel=TARGET_PANEL
    ),
]
RequiredUrlOption = Annotated[
    str, typer.Option(envvar="TELLBACK_URL", help="The store: a file, or postgresql://…", show_default=False)
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


@dataclass(frozen=True, slots=True)
class UserTarget:
    """A user, and the store that holds their data. A command that takes one has the four options of it."""

    url: UrlOption = DEFAULT_URL
    user: UserOption = DEFAULT_USER
    tenant: TenantOption = "default"
    app: AppOption = "default"


DEFAULT_TARGET = UserTarget()

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


def parse_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """The first and the last moment of what a text names, in UTC unless it says otherwise.

    >>> first, last = parse_period("2026-02", datetime(2026, 5, 1, tzinfo=UTC))
    >>> f"{first:%d %b}", f"{last:%d %b %H:%M}"
    ('01 Feb', '28 Feb 23:59')
    """
    lowered = text.strip().lower()
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if lowered == "now":
        return now, now
    if lowered in ("today", "yesterday"):
        first = today - timedelta(days=lowered == "yesterday")
        return first, _instant_before(first + timedelta(days=1))
    if ago := _AGO.fullmatch(lowered):
        moment = now - timedelta(seconds=int(ago[1]) * _UNIT_SECONDS[ago[2]])
        return moment, moment
    if found := _PERIOD.fullmatch(lowered):
        return _calendar_period(*found.groups())
    moment = datetime.fromisoformat(text.strip())
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment, moment


def _calendar_period(year: str, month: str | None, day: str | None) -> tuple[datetime, datetime]:
    first = datetime(int(year), int(month or 1), int(day or 1), tzinfo=UTC)
    if day is not None:
        return first, _instant_before(first + timedelta(days=1))
    if month is not None:
        return first, _instant_before((first + timedelta(days=31)).replace(day=1))
    return first, _instant_before(first.replace(year=first.year + 1))


def _instant_before(moment: datetime) -> datetime:
    return moment - timedelta(microseconds=1)


def _make_parser(index: int) -> Callable[[str], datetime]:
    def parse(text: str) -> datetime:
        try:
            return parse_period(text, utc_now())[index]
        except (ValueError, OverflowError):
            raise typer.BadParameter(
                f"{text!r} is no time: write a date such as 2026-03-01 or 2026-03, a moment such as"
                " 2026-03-01T18:30, yesterday, or how long ago, such as 3d or 2w."
            ) from None

    return parse


parse_period_start = _make_parser(0)
"""Reads an option: the first moment of what it names."""

parse_period_end = _make_parser(1)
"""Reads an option: the last moment of what it names."""


def time_option(name: str, help: str, parser: Callable[[str], datetime] = parse_period_start) -> Any:
    """An option that is a time, such as 2026-03 or yesterday."""
    return typer.Option(name, parser=parser, metavar=TIME_METAVAR, help=help)


AtOption = Annotated[datetime | None, time_option("--at", "What held at that moment.")]
