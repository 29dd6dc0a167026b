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

from tellback.cli.looking import StoreLook, look
from tellback.errors import TellbackError

if TYPE_CHECKING:
    from tellback.chat.choice import ModelAtHand

Status = Literal["ok", "off", "warn", "fail"]

OLDEST = (3, 11)
HOST = "127.0.0.1"
SECONDS = 1.0
"""How long whoever listens at the port may take to answer."""

NOT_FOR_USERS = ("all", "dev", "docs", "test")
NOT_SET_UP = ("is not set", "names no GGUF file", "nothing answers")
"""What is said of models that nobody has set up."""

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: how it is, what was found, and what to do about it."""

    what: str
    status: Status
    found: str
    to_do: str = ""


async def checkup(url: str, port: int) -> list[Check]:
    """Everything that can be told without changing anything."""
    return [
        _python(),
        *_extras(),
        await _store(url),
        *await asyncio.to_thread(_models),
        await _embedder(),
        await asyncio.to_thread(_port, port),
    ]


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    found = f"{version}, with SQLite {sqlite3.sqlite_version}"
    if sys.version_info < OLDEST:
        return Check("Python", "fail", found, f"install Python {'.'.join(map(str, OLDEST))} or later")
    if sqlite3.sqlite_version_info < (3, 35):
        return Check("Python", "fail", found, "install a Python that comes with SQLite 3.35 or later")
    return Check("Python", "ok", found)


def packages_by_extra() -> dict[str, list[str]]:
    """The packages of each extra, as the package's own metadata names them."""
    found: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("tellback") or []:
        package, extra = _REQUIREMENT.match(line), _EXTRA.search(line)
        if package is None or extra is None or extra[1] in NOT_FOR_USERS or package[1] == "tellback":
            continue
        if "win32" in line and sys.platform == "win32":
            continue
        found.setdefault(extra[1], []).append(package[1])
    return found


def _extras() -> list[Check]:
    try:
        by_extra = packages_by_extra()
    except importlib.metadata.PackageNotFoundError:
        return [Check("extras", "warn", "tellback is not installed as a package", "pip install tellback")]
    missing = {extra: [each for each in names if not _is_installed(each)] for extra, names in by_extra.items()}
    there = [extra for extra, lacking in missing.items() if not lacking]
    checks = [Check("extras", "ok", ", ".join(there) or "none")]
    lacking = [extra for extra, names in missing.items() if names]
    if lacking:
        wanted = f"pip install 'tellback[{','.join(lacking)}]' for what you need of it"
        checks.append(Check("extras", "off", f"not installed: {', '.join(lacking)}", wanted))
    if "console" in lacking:
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


async def _store(url: str) -> Check:
    try:
        found = await look(url, thorough=True)
    except TellbackError as error:
        return Check("store", "fail", " ".join(str(error).split()), "see docs/howto/stores.md, or name another: --url")
    if found.is_ahead:
        return Check("store", "fail", _version(found), "upgrade Tellback: a newer one has migrated it")
    if not found.exists:
        return Check("store", "off", f"{found.place} is not there yet", "tellback chat begins it")
    if found.is_behind:
        # What a doctor says is shown to others: a URL may hold a password.
        how = ", with the same --url" if "://" in url else f" --url {shlex.quote(url)}"
        return Check("store", "warn", _version(found), f"back it up, then: tellback migrate{how}")
    counts = ", ".join(f"{count} {name}" for name, count in found.counts.items())
    size = "" if found.size is None else f", {_megabytes(found.size)}"
    return Check("store", "ok", f"{found.kind} at {found.place}{size}{': ' if counts else ''}{counts}")


def _version(found: StoreLook) -> str:
    return f"{found.place} has schema version {found.version}; this release needs {found.needed}"


def _megabytes(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 100_000 else f"{size / 1_000:.0f} kB"


def _models() -> list[Check]:
    from tellback.chat import choose_model, survey_models

    choice = choose_model()
    checks = []
    for each in survey_models():
        if each.provider == "offline":
            continue
        note, missing, package = each.note.partition(": pip ")
        found, to_do = (f"{each.model}: {note}" if each.is_ready else note), f"pip {package}" if missing else ""
        checks.append(Check(f"model: {each.provider}", _status(each), found, to_do))
    if choice.is_offline:
        to_do = "set a provider's key, start Ollama, or name a GGUF file in TELLBACK_GGUF"
        return [*checks, Check("model", "warn", "none: answers are what memory holds, word for word", to_do)]
    return [*checks, _named(choice.name, choice.why)]


def _status(model: ModelAtHand) -> Status:
    """What nobody has set up is off; what is half set up was meant to work."""
    if model.is_ready:
        return "ok"
    return "off" if any(words in model.note for words in NOT_SET_UP) else "warn"


def _named(name: str, why: str) -> Check:
    """Whether the model that would answer can be had."""
    from tellback.chat import ChatOptions, resolve_registration
    from tellback.cli.sentences import sentence_of

    try:
        resolve_registration(ChatOptions(model=name))
    except TellbackError as error:
        return Check("model", "fail", f"{name} ({why})", sentence_of(error))
    return Check("model", "ok", f"{name} answers ({why})")


async def _embedder() -> Check:
    from tellback.embed import StaticEmbedder

    embedder = StaticEmbedder()
    try:
        [vector] = await embedder.embed(["hello"])
    except TellbackError as error:
        return Check("embedder", "fail", f"{error}", "reinstall it: pip install --force-reinstall tellback")
    return Check("embedder", "ok", f"{embedder.name}, {len(vector)} dimensions")


def _port(port: int) -> Check:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if _is_ours(port):
                return Check("port", "ok", f"a Tellback server answers at {HOST}:{port}")
            to_do = f"tellback serve --port {port + 1 if port < 65_535 else 8765}"
            return Check("port", "warn", f"{port} is taken ({error.strerror})", to_do)
    return Check("port", "ok", f"{port} is free for tellback serve")


def _is_ours(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request("GET", "/health/live")
        return b'"live"' in connection.getresponse().read(200)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
