"""What `tellback doctor` looks at, one after the other."""

from __future__ import annotations

import asyncio
import http.client
import importlib.metadata
import re
import shlex
import socket
import sqlite3
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tellback.cli.looking import StoreInfo, inspect_store
from tellback.errors import TellbackError

if TYPE_CHECKING:
    from tellback.chat.choice import ModelAtHand

CheckStatus = Literal["ok", "off", "warn", "fail"]

MIN_PYTHON = (3, 11)
LOCAL_HOST = "127.0.0.1"
PROBE_TIMEOUT = 1.0
"""How long whoever listens at the port may take to answer."""

INTERNAL_EXTRAS = ("all", "dev", "docs", "test")
UNCONFIGURED_NOTES = ("is not set", "names no GGUF file", "nothing answers")
"""What is said of models that nobody has set up."""

_REQUIREMENT_NAME = re.compile(r"^([A-Za-z0-9._-]+)")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, what was found, and what to do about it."""

    what: str
    status: CheckStatus
    found: str
    to_do: str = ""


async def run_checks(url: str, port: int) -> list[Check]:
    """Everything that can be told without changing anything."""
    return [
        _check_python(),
        *_check_extras(),
        await _check_store(url),
        *await asyncio.to_thread(_check_models),
        await _check_embedder(),
        await asyncio.to_thread(_check_port, port),
    ]


def _check_python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    found = f"{version}, with SQLite {sqlite3.sqlite_version}"
    if sys.version_info < MIN_PYTHON:
        return Check("Python", "fail", found, f"install Python {'.'.join(map(str, MIN_PYTHON))} or later")
    if sqlite3.sqlite_version_info < (3, 35):
        return Check("Python", "fail", found, "install a Python that comes with SQLite 3.35 or later")
    return Check("Python", "ok", found)


def packages_by_extra() -> dict[str, list[str]]:
    """The packages of each extra, as the package's own metadata names them."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tellback") or []:
        package, extra = _REQUIREMENT_NAME.match(line), _EXTRA_MARKER.search(line)
        if package is None or extra is None or extra[1] in INTERNAL_EXTRAS or package[1] == "tellback":
            continue
        if "win32" in line and sys.platform == "win32":
            continue
        found.setdefault(extra[1], []).append(package[1])
    return found


def _check_extras() -> list[Check]:
    try:
        by_extra = packages_by_extra()
    except importlib.metadata.PackageNotFoundError:
        return [Check("extras", "warn", "tellback is not installed as a package", "pip install tellback")]
    missing = {extra: [each for each in names if not _is_installed(each)] for extra, names in by_extra.items()}
    installed = [extra for extra, missing_extras in missing.items() if not missing_extras]
    checks = [Check("extras", "ok", ", ".join(installed) or "none")]
    missing_extras = [extra for extra, names in missing.items() if names]
    if missing_extras:
        install_hint = f"pip install 'tellback[{','.join(missing_extras)}]' for what you need of it"
        checks.append(Check("extras", "off", f"not installed: {', '.join(missing_extras)}", install_hint))
    if "console" in missing_extras:
        names = ", ".join(missing["console"])
        checks.append(Check("console", "warn", f"the web console needs {names}", "pip install 'tellback[console]'"))
    elif "console" in by_extra:
        checks.append(Check("console", "ok", "installed: tellback serve, then open /console"))
    return checks


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


async def _check_store(url: str) -> Check:
    try:
        found = await inspect_store(url, is_thorough=True)
    except TellbackError as error:
        return Check("store", "fail", " ".join(str(error).split()), "see docs/howto/stores.md, or name another: --url")
    if found.is_ahead:
        return Check("store", "fail", _format_versions(found), "upgrade Tellback: a newer one has migrated it")
    if not found.exists:
        return Check("store", "off", f"{found.place} is not there yet", "tellback chat begins it")
    if found.is_behind:
        # What a doctor says is shown to others: a URL may hold a password.
        url_note = ", with the same --url" if "://" in url else f" --url {shlex.quote(url)}"
        return Check("store", "warn", _format_versions(found), f"back it up, then: tellback migrate{url_note}")
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    size = "" if found.size is None else f", {_format_size(found.size)}"
    return Check("store", "ok", f"{found.kind} at {found.place}{size}{': ' if counts else ''}{counts}")


def _format_versions(found: StoreInfo) -> str:
    return f"{found.place} has schema version {found.version}; this release needs {found.needed}"


def _format_size(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1_000:.0f} kB"


def _check_models() -> list[Check]:
    from tellback.chat import choose_model, survey_models

    choice = choose_model()
    checks = []
    for each in survey_models():
        if each.provider == "offline":
            continue
        note, separator, package = each.note.partition(": pip ")
        found, to_do = (f"{each.model}: {note}" if each.is_ready else note), f"pip {package}" if separator else ""
        checks.append(Check(f"model: {each.provider}", _model_status(each), found, to_do))
    if choice.is_offline:
        to_do = "set a provider's key, start Ollama, or name a GGUF file in TELLBACK_GGUF"
        return [*checks, Check("model", "warn", "none: answers are what memory holds, word for word", to_do)]
    return [*checks, _check_chosen_model(choice.name, choice.why)]


def _model_status(model: ModelAtHand) -> CheckStatus:
    """What nobody has set up is off; what is half set up was meant to work."""
    if model.is_ready:
        return "ok"
    return "off" if any(note in model.note for note in UNCONFIGURED_NOTES) else "warn"


def _check_chosen_model(name: str, reason: str) -> Check:
    """Whether the model that would answer can be had."""
    from tellback.chat import ChatOptions, resolve_registration
    from tellback.cli.sentences import format_error

    try:
        resolve_registration(ChatOptions(model=name))
    except TellbackError as error:
        return Check("model", "fail", f"{name} ({reason})", format_error(error))
    return Check("model", "ok", f"{name} answers ({reason})")


async def _check_embedder() -> Check:
    from tellback.embed import StaticEmbedder

    embedder = StaticEmbedder()
    try:
        [vector] = await embedder.embed(["hello"])
    except TellbackError as error:
        return Check("embedder", "fail", f"{error}", "reinstall it: pip install --force-reinstall tellback")
    return Check("embedder", "ok", f"{embedder.name}, {len(vector)} dimensions")


def _check_port(port: int) -> Check:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOCAL_HOST, port))
        except OSError as error:
            if _is_tellback_server(port):
                return Check("port", "ok", f"a Tellback server answers at {LOCAL_HOST}:{port}")
            to_do = f"tellback serve --port {port + 1 if port < 65_535 else 8765}"
            return Check("port", "warn", f"{port} is taken ({error.strerror})", to_do)
    return Check("port", "ok", f"{port} is free for tellback serve")


def _is_tellback_server(port: int) -> bool:
    connection = http.client.HTTPConnection(LOCAL_HOST, port, timeout=PROBE_TIMEOUT)
    try:
        connection.request("GET", "/health/live")
        return b'"live"' in connection.getresponse().read(200)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
