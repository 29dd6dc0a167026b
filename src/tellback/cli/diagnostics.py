"""Inspect a store without changing it, and run the checks of `tellback doctor`.

Imported on demand, because it imports the stores.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.metadata
import os
import re
import shlex
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tellback.cli import MIN_PYTHON
from tellback.cli.runner import LOCAL_HOST, format_error, probe_port
from tellback.errors import ConfigurationError, StoreCorruptError, StoreUnavailableError, TellbackError
from tellback.stores import Store, open_store
from tellback.stores.catalogue import migrations

if TYPE_CHECKING:
    from tellback.chat.registry import FoundModel

SQLITE_HEADER = b"SQLite format 3\x00"
COUNTED_TABLES = ("conversations", "messages", "atoms", "entities", "jobs")
MAX_CHECKED_BYTES = 500_000_000
"""The integrity of larger files is not checked, since the check reads the whole file."""

MAX_TABLES_NAMED = 3
"""Maximum number of another program's tables to list in an error."""

PROBE_TIMEOUT = 1.0
"""Seconds to wait for the process that listens on the port."""

INTERNAL_EXTRAS = ("all", "dev", "docs", "test")
UNCONFIGURED_NOTES = ("is not set", "no Ollama answers")
"""If a model's note contains one of these texts, the model is not set up at all."""

_REQUIREMENT_NAME = re.compile(r"^([A-Za-z0-9._-]+)")
_EXTRA_MARKER = re.compile(r"extra\s*==\s*['\"]([\w-]+)['\"]")

CheckStatus = Literal["ok", "off", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store's kind, place and schema: `version` is 0 without tables, `needed` is this release's schema version."""

    kind: str
    place: str
    exists: bool
    version: int = 0
    needed: int = 0
    size: int | None = None
    counts: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def is_behind(self) -> bool:
        """Whether opening the store would migrate it."""
        return self.exists and self.version < self.needed

    @property
    def is_ahead(self) -> bool:
        """Whether a newer release has migrated the store."""
        return self.version > self.needed


def store_path(store: Store) -> Path | None:
    """Return the file of a store, or None if the store is not a file."""
    scheme, _, place = store.url.partition(":///")
    return Path(place) if scheme == "sqlite" and place != ":memory:" else None


def validate_store_file(url: str, *, may_create: bool) -> None:
    """Raise an error if the file belongs to another program, or is missing and may not be created.

    Opening a store would create a missing file, or add tables to another program's database. A mistyped path must
    cause neither.
    """
    path = store_path(open_store(url))
    if path is not None and path.exists():
        _validate_file(path)
    elif path is not None and not may_create:
        raise StoreUnavailableError(
            f"There is no store at {path}: pass --url, set TELLBACK_URL, or run `tellback chat` to create one."
        )


def _validate_file(path: Path) -> None:
    if path.is_dir():
        raise ConfigurationError(f"{path} is a folder: pass a file in it, such as --url {path / 'tellback.db'}.")
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise StoreUnavailableError(
            f"{path} cannot be read: {error.strerror}. Check the permissions of the file and its folder."
        ) from error
    if header and header != SQLITE_HEADER:
        raise StoreCorruptError(
            f"{path} is not a Tellback store, because it is not a SQLite file: pass another --url, or restore the file"
            " from a backup."
        )
    if not header:
        return
    from tellback.stores.sqlite.connection import to_store_error

    try:
        with closing(_open_read_only(path)) as connection:
            tables = _list_tables(connection)
    except sqlite3.Error as error:
        raise to_store_error(error, str(path)) from error
    if tables and "tellback_migrations" not in tables:
        names = ", ".join(map(repr, tables[:MAX_TABLES_NAMED])) + ("…" if len(tables) > MAX_TABLES_NAMED else "")
        raise ConfigurationError(
            f"{path} belongs to another program (it has the table{'s' if len(tables) > 1 else ''} {names}):"
            " pass another file with --url."
        )


def _list_tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return [name for (name,) in found if not name.startswith("sqlite_")]


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


async def inspect_store(url: str, *, is_thorough: bool = False) -> StoreInfo:
    """Return the state of a store. Raises the errors that opening it would raise.

    With `is_thorough`, also count the rows of a SQLite file and check its integrity, unless it is very large.
    """
    store = open_store(url)
    if store.url.startswith("sqlite"):
        return _inspect_sqlite(store, is_thorough)
    return await _inspect_postgres(store)


def _inspect_sqlite(store: Store, is_thorough: bool) -> StoreInfo:
    needed = migrations("sqlite")[-1].version
    path = store_path(store)
    if path is None:
        return StoreInfo("SQLite, in memory", ":memory:", False, needed=needed)
    if not path.exists():
        return StoreInfo("SQLite", str(path), False, needed=needed)
    _validate_file(path)
    from tellback.stores.sqlite.connection import to_store_error
    from tellback.stores.sqlite.schema import schema_version

    try:
        with closing(_open_read_only(path)) as connection:
            version, counts = schema_version(connection), {}
            if version and is_thorough:
                counts = {
                    name: connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0]
                    for name in COUNTED_TABLES
                    if name in _list_tables(connection)
                }
                _validate_integrity(connection, path)
    except sqlite3.Error as error:
        raise to_store_error(error, str(path)) from error
    return StoreInfo("SQLite", str(path), True, version, needed, os.path.getsize(path), counts)


def _validate_integrity(connection: sqlite3.Connection, path: Path) -> None:
    if path.stat().st_size > MAX_CHECKED_BYTES:
        return
    [(outcome,)] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if outcome != "ok":
        raise StoreCorruptError(f"{path} is damaged ({' '.join(str(outcome).split())}): restore it from a backup.")


async def _inspect_postgres(store: Any) -> StoreInfo:
    import asyncpg

    from tellback.stores.postgres.connection import DRIVER_ERRORS, to_store_error
    from tellback.stores.postgres.schema import quote_identifier, schema_version

    needed, settings = migrations("postgres")[-1].version, store.queue_settings()
    try:
        connection = await asyncpg.connect(settings.dsn, timeout=10)
        try:
            await connection.execute(f"SET search_path = {quote_identifier(settings.schema)}")
            version = await schema_version(connection, settings.schema, settings.display_url)
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise to_store_error(error, settings.display_url) from error
    return StoreInfo("PostgreSQL", settings.display_url, version > 0, version, needed)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: its subject, status, finding and recommended action."""

    what: str
    status: CheckStatus
    found: str
    to_do: str = ""


async def run_checks(url: str, port: int) -> list[Check]:
    """Run all checks. None of them changes anything."""
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
    """Return the packages of each extra, from the metadata of the installed tellback package."""
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
        install_hint = f"optional: pip install 'tellback[{','.join(missing_extras)}]'"
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
        return Check("store", "fail", " ".join(str(error).split()), "see docs/howto/stores.md, or pass another --url")
    if found.is_ahead:
        return Check(
            "store", "fail", _format_versions(found), "upgrade Tellback: a newer release has migrated this store"
        )
    if not found.exists:
        return Check("store", "off", f"{found.place} does not exist yet", "run tellback chat to create it")
    if found.is_behind:
        # Users share this output, and a URL can contain a password.
        url_note = ", with the same --url" if "://" in url else f" --url {shlex.quote(url)}"
        return Check("store", "warn", _format_versions(found), f"back it up, then: tellback migrate{url_note}")
    counts = ", ".join(f"{name}: {count}" for name, count in found.counts.items())
    size = "" if found.size is None else f", {_format_size(found.size)}"
    return Check("store", "ok", f"{found.kind} at {found.place}{size}{f' ({counts})' if counts else ''}")


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
        to_do = "set a provider's API key, start Ollama, or set TELLBACK_GGUF to the path of a GGUF file"
        return [*checks, Check("model", "warn", "no model is set up: answers only quote memory", to_do)]
    return [*checks, _check_chosen_model(choice.name, choice.why)]


def _model_status(model: FoundModel) -> CheckStatus:
    """Return "off" for a model that is not set up, and "warn" for an incomplete setup."""
    if model.is_ready:
        return "ok"
    return "off" if any(note in model.note for note in UNCONFIGURED_NOTES) else "warn"


def _check_chosen_model(name: str, reason: str) -> Check:
    from tellback.chat import ChatOptions, resolve_registration

    try:
        resolve_registration(ChatOptions(model=name))
    except TellbackError as error:
        return Check("model", "fail", f"{name} ({reason})", format_error(error))
    return Check("model", "ok", f"{name} is used ({reason})")


async def _check_embedder() -> Check:
    from tellback.embed import StaticEmbedder

    embedder = StaticEmbedder()
    try:
        [vector] = await embedder.embed(["hello"])
    except TellbackError as error:
        return Check("embedder", "fail", f"{error}", "reinstall Tellback: pip install --force-reinstall tellback")
    return Check("embedder", "ok", f"{embedder.name}, {len(vector)} dimensions")


def _check_port(port: int) -> Check:
    error = probe_port(port)
    if error is None:
        return Check("port", "ok", f"{port} is free for tellback serve")
    if _is_tellback_server(port):
        return Check("port", "ok", f"a Tellback server is running at {LOCAL_HOST}:{port}")
    to_do = f"tellback serve --port {port + 1 if port < 65_535 else 8765}"
    return Check("port", "warn", f"{port} is in use ({error.strerror})", to_do)


def _is_tellback_server(port: int) -> bool:
    with closing(http.client.HTTPConnection(LOCAL_HOST, port, timeout=PROBE_TIMEOUT)) as connection:
        try:
            connection.request("GET", "/health/live")
            return b'"live"' in connection.getresponse().read(200)
        except (OSError, http.client.HTTPException):
            return False
