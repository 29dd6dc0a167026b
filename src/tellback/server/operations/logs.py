"""The server's log: one line per request, and no message text.

More people can read the logs than the store, and error texts may quote a user. Therefore, the log contains the type and
location of an exception, but not its text. Of records of other libraries, it contains only the location.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from pydantic_core import to_json

from tellback.errors import (
    ConfigurationError,
    MissingExtraError,
    MissingKeyError,
    SchemaVersionError,
    StoreClosedError,
    StoreUnavailableError,
)
from tellback.server.settings import LogFormat

current_request_id: ContextVar[str | None] = ContextVar("tellback_request_id", default=None)
current_trace_id: ContextVar[str | None] = ContextVar("tellback_trace_id", default=None)

OWN_LOGGERS = ("tellback", "uvicorn.error")
PASSTHROUGH_LOGGER = "tellback.tools.mcp"
"""Messages of our own loggers are logged, except those of `PASSTHROUGH_LOGGER`, which come from other programs."""

MAX_FRAMES = 12
"""The number of innermost stack frames logged with an exception."""

_SAFE_ERRORS = (
    ConfigurationError,
    MissingExtraError,
    MissingKeyError,
    SchemaVersionError,
    StoreClosedError,
    StoreUnavailableError,
)


class RedactingFilter(logging.Filter):
    """Removes text that may quote users from log records. Add it to your handlers if you configure logging.

    It drops records of other libraries below WARNING.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record, and return whether to log it."""
        if getattr(record, "is_redacted", False):
            return True
        if not _is_own_logger(record.name):
            if record.levelno < logging.WARNING:
                return False
            record.msg, record.args = _describe_origin(record), None
        elif record.name == "uvicorn.error":  # startup errors have many lines
            record.msg, record.args = record.getMessage().partition("\n")[0], None
        elif record.args:
            record.args = _redact_arguments(record.args)
        if isinstance(record.msg, BaseException):
            record.msg = _error_title(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = format_exception(record.exc_info[1])
            record.exc_info = None
        record.stack_info = None
        record.is_redacted = True
        return True


def _describe_origin(record: logging.LogRecord) -> str:
    """Describe the origin of another library's record."""
    if record.name == "py.warnings":
        match = re.match(r".*:\d+: \w+", record.getMessage())
        return match.group() if match else "a warning"
    return f"{record.levelname.lower()} of {record.name}, in {record.module} line {record.lineno}"


def _is_own_logger(name: str) -> bool:
    is_ours = any(name == logger or name.startswith(logger + ".") for logger in OWN_LOGGERS)
    return is_ours and not (name == PASSTHROUGH_LOGGER or name.startswith(PASSTHROUGH_LOGGER + "."))


def _redact_arguments(args: Any) -> Any:
    """Return the record's arguments, with exceptions replaced by their type."""
    if isinstance(args, tuple):
        return tuple(_redact(each) for each in args)
    return {name: _redact(each) for name, each in args.items()}


def _redact(value: Any) -> Any:
    return _error_title(value) if isinstance(value, BaseException) else value


def format_exception(error: BaseException) -> str:
    """Format an exception and its causes as types and code locations.

    >>> try:
    ...     raise ValueError("I live in Lisbon")
    ... except ValueError as error:
    ...     print(format_exception(error).splitlines()[-1])
    ValueError
    """
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < 5:
        seen.add(id(current))
        frames = traceback.extract_tb(current.__traceback__, limit=-MAX_FRAMES)
        lines = [f"  {_short_path(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames]
        inner = [f"  contains {_error_title(each)}" for each in getattr(current, "exceptions", ())[:5]]
        parts.append("\n".join([*lines, *inner, _error_title(current)]))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\nled to\n".join(reversed(parts))


def _error_title(error: BaseException) -> str:
    name = type(error).__name__
    if type(error) in _SAFE_ERRORS:
        return f"{name}: {error}"
    if isinstance(error, OSError) and error.strerror and error.errno is not None:
        return f"{name}: errno {error.errno}"
    return name


def _short_path(path: str) -> str:
    parts = PurePath(path).parts
    start = parts.index("site-packages") + 1 if "site-packages" in parts else max(0, len(parts) - 3)
    return "/".join(parts[start:])


class JsonFormatter(logging.Formatter):
    """Formats records as JSON lines."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= _request_context(record)
        entry |= getattr(record, "fields", {})
        if record.exc_text:
            entry["exception"] = record.exc_text
        try:
            return to_json(entry, fallback=str).decode()
        except ValueError:  # a lone surrogate in a name
            return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """Formats records as readable text."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        line = f"{moment} {record.levelname:<7} {_escape_unprintable(record.getMessage())}"
        if record.levelno >= logging.WARNING and (id := _request_context(record).get("requestId")):
            line += f" [request {id}]"
        return f"{line}\n{record.exc_text}" if record.exc_text else line


def _escape_unprintable(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _request_context(record: logging.LogRecord) -> dict[str, str]:
    known = {"requestId": current_request_id.get(), "traceId": current_trace_id.get()}
    return {name: value for name, value in known.items() if value is not None}


def log_to_stderr(log_format: LogFormat = "auto", *, verbose: bool = False) -> logging.Handler:
    """Log to stderr as JSON or text; auto chooses text for a terminal. For processes that only run a server."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextFormatter() if is_text else JsonFormatter())
    handler.addFilter(RedactingFilter())
    # Our formats do not use these fields, and collecting them is a third of a record's cost.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    for previous in [each for each in root.handlers if getattr(each, "is_server_handler", False)]:
        root.removeHandler(previous)
    handler.is_server_handler = True  # type: ignore[attr-defined]
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.getLogger("tellback").setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return handler
