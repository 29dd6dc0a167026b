"""Options shared by commands, their help texts, and the parser for times on the command line."""

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

CHAT_PANEL, MEMORY_PANEL, DATA_PANEL, RUN_PANEL, CHECK_PANEL = "Chat", "Memory", "Data", "Server", "Diagnostics"
"""The panels of `tellback --help`."""

TARGET_PANEL = "Store and user"
"""The panel of the options that nearly every command has."""

TIME_METAVAR = "2026-03|yesterday|2w"

_AGO = re.compile(r"(\d{1,5})\s*(m|h|d|w|mo|y)(?:\s+ago)?")
_UNIT_SECONDS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400, "mo": 30 * 86_400, "y": 365 * 86_400}
_PERIOD = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")

UrlOption = Annotated[
    str,
    typer.Option("--url", envvar="TELLBACK_URL", help="Store: a file or postgresql://…", rich_help_panel=TARGET_PANEL),
]
RequiredUrlOption = Annotated[
    str, typer.Option(envvar="TELLBACK_URL", help="Store: a file or postgresql://…", show_default=False)
]
UserOption = Annotated[
    str, typer.Option("--user", "-u", envvar="TELLBACK_USER", help="User id.", rich_help_panel=TARGET_PANEL)
]
TenantOption = Annotated[
    str,
    typer.Option(
        "--tenant",
        envvar="TELLBACK_TENANT",
        help="Tenant: the organization that the user belongs to.",
        rich_help_panel=TARGET_PANEL,
    ),
]
AppOption = Annotated[
    str,
    typer.Option(
        "--app",
        envvar="TELLBACK_APP",
        help="App: your application, if several share the store.",
        rich_help_panel=TARGET_PANEL,
    ),
]


@dataclass(frozen=True, slots=True)
class UserTarget:
    """A user, and the store with their data. A command with this parameter gets its four options."""

    url: UrlOption = DEFAULT_URL
    user: UserOption = DEFAULT_USER
    tenant: TenantOption = "default"
    app: AppOption = "default"


DEFAULT_TARGET = UserTarget()

SpaceOption = Annotated[
    str | None,
    typer.Option(
        "--space", "-s", help="Memory space (name or id). Default: the space named default, or the user's only space."
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        envvar="TELLBACK_MODEL",
        help="Model name, path of a .gguf file, or the word offline. Default: the first available model.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, help="Maximum number of results.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log more details.")]


def format_examples(*lines: str) -> str:
    """Format the examples at the end of a command's help.

    >>> print(format_examples("tellback doctor"))
    Example:
      $ tellback doctor
    """
    formatted = "\n".join(f"  $ {line}".replace("[", "\\[") for line in lines)  # Rich parses help as markup
    return f"Example{'s' if len(lines) > 1 else ''}:\n{formatted}"


def unwrap_paragraphs(text: str) -> str:
    """Return a docstring with each paragraph on one line: the terminal wraps them to its width.

    >>> unwrap_paragraphs("Summary.\\n\\n    Two lines\\n    are joined.")
    'Summary.\\n\\nTwo lines are joined.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


def parse_period(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the first and the last moment of a period, in UTC unless the text has another time zone.

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
                f"{text!r} is not a valid time. Use a date (2026-03-01, 2026-03), a date and time (2026-03-01T18:30),"
                " today, yesterday, or a time ago (3d, 2w)."
            ) from None

    return parse


parse_period_start = _make_parser(0)
"""Parse an option's value to the first moment of its period."""

parse_period_end = _make_parser(1)
"""Parse an option's value to the last moment of its period."""


def time_option(name: str, help: str, parser: Callable[[str], datetime] = parse_period_start) -> Any:
    """Return an option whose value is a time, such as 2026-03 or yesterday."""
    day = "1 March" if parser is parse_period_start else "31 March"
    return typer.Option(name, parser=parser, metavar=TIME_METAVAR, help=f"{help} 2026-03: {day}; 2w: two weeks ago.")


AtOption = Annotated[datetime | None, time_option("--at", "Only memories valid at this time.")]
