"""Hearing of other processes' commits: SQLite keeps a counter of them, and tells nobody."""

from __future__ import annotations

import logging
import sqlite3
import threading

from tellback.stores.sqlite.connection import SqliteOptions, connect
from tellback.stores.waking import ChangeNotifier

log = logging.getLogger("tellback.stores")

WATCH_SECONDS = 0.1
"""How often the counter is looked at, while someone waits."""


class ChangeWatcher:
    """Rings the bell when the file has changed; a thread of its own, as long as anyone listens."""

    def __init__(self, options: SqliteOptions, notifier: ChangeNotifier) -> None:
        self._options = options
        self._notifier = notifier
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure_running(self) -> None:
        """Watch, if nobody does."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._watch, name="tellback-watcher", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _watch(self) -> None:
        connection: sqlite3.Connection | None = None
        seen: int | None = None
        try:
            while not self._stopped.is_set():
                try:
                    connection = connection or connect(self._options)
                    version = int(connection.execute("PRAGMA data_version").fetchone()[0])
                except sqlite3.Error:  # locked for a moment: look again in the next round
                    log.debug("could not look for changes of %s", self._options.path, exc_info=True)
                else:
                    if version != seen:
                        seen = version
                        self._notifier.notify()
                self._stopped.wait(WATCH_SECONDS)
                with self._lock:
                    if not self._notifier.has_listeners:
                        self._thread = None
                        return
        finally:
            if connection is not None:
                connection.close()
