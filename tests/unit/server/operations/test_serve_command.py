"""`tellback serve`: options and startup errors."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tellback.cli import serve
from tellback.cli.app import app
from tellback.server.settings import ServeOptions, ServerSettings


@pytest.fixture(autouse=True)
def logging_as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    root, package_logger = logging.getLogger(), logging.getLogger("tellback")
    before = root.level, package_logger.level, list(root.handlers)
    for name in ("logThreads", "logProcesses", "logMultiprocessing"):
        monkeypatch.setattr(logging, name, True)
    yield
    root.setLevel(before[0])
    package_logger.setLevel(before[1])
    root.handlers[:] = before[2]
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def error_text(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["serve", "--port", "0", *arguments])
    assert result.exit_code == 2, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert len(result.output.splitlines()) == 1, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--host", "0.0.0.0"), "tellback keys create"),
        (("--model", "gtp-5"), "gtp-5"),
        (("--allow-model", "gtp-5"), "gtp-5"),
        (("--agents", "nowhere"), "nowhere"),
        (("--workers", "3"), "PostgreSQL"),
        (("--url", "postgresql://db/x", "--workers", "2", "--console"), "remove --workers"),
        (("--url", "/no/such/folder/x.db"), "x.db"),
        (("--url", "mysql://db"), "mysql"),
        (("--jwt-issuer", "https://x.test"), "--jwks-url"),
        (("--jwt-issuer", ""), "--jwks-url"),
        (("--jwt-issuer", "", "--jwt-audience", "", "--jwks-url", ""), "issuer"),
        (("--cors-origin", "*"), "cors_origins"),
        (("--trust-proxy", "*"), "trust_proxy"),
        (("--host", "no host"), "no host"),
    ],
)
def test_startup_errors_are_reported_in_one_sentence(tmp_path: Path, arguments: tuple[str, ...], expected: str) -> None:
    options = arguments if "--url" in arguments else ("--url", str(tmp_path / "a.db"), *arguments)
    assert expected in error_text(*options)


def test_an_invalid_agent_and_a_port_in_use_are_each_reported_in_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    url = ("--url", str(tmp_path / "a.db"))
    assert "broken.yaml" in error_text(*url, "--agents", str(broken))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert "--port" in error_text(*url, "--port", str(listener.getsockname()[1]))


def test_options_come_from_the_command_line_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ServeOptions] = []

    def record_options(options: ServeOptions) -> int:
        seen.append(options)
        return 0

    monkeypatch.setattr(serve, "run_server", record_options)
    environment: dict[str, Any] = {
        "TELLBACK_URL": "postgresql://db/x",
        "TELLBACK_WORKERS": "3",
        "TELLBACK_ALLOW_MODEL": "gpt-5 gemini-2.5-flash",
        "TELLBACK_JWT_ISSUER": "https://issuer.test",
        "TELLBACK_JWT_AUDIENCE": "us",
        "TELLBACK_JWKS_URL": "https://issuer.test/keys",
        "TELLBACK_JWT_TENANT": "acme",
        "TELLBACK_METRICS_TOKEN": "scrape",
        "TELLBACK_RATE_LIMIT": "0",
        "TELLBACK_WORKER": "false",
        "TELLBACK_BODY_BYTES": "1000",
        "TELLBACK_FAILURE_LIMIT": "0",
    }
    command_options = ["--workers", "2", "--cors-origin", "https://a.test", "--text-length", "200", "--page-size", "7"]
    command_options += ["--largest-page", "9", "--heartbeat-seconds", "2.5"]
    result = CliRunner().invoke(app, ["serve", *command_options], env=environment)
    assert result.exit_code == 0, result.output
    [options] = seen
    assert (options.url, options.workers, options.runs_jobs) == ("postgresql://db/x", 2, False)
    assert options.models == ("gpt-5", "gemini-2.5-flash")
    assert options.cors_origins == ("https://a.test",)
    assert (options.rate_limit, options.metrics_token) == (None, "scrape")
    assert (options.body_bytes, options.text_length) == (1_000, 200)
    assert (options.page_size, options.largest_page) == (7, 9)
    assert (options.heartbeat_seconds, options.failure_limit) == (2.5, None)
    assert options.jwt is not None
    assert (options.jwt.issuer, options.jwt.tenant_id) == ("https://issuer.test", "acme")


def test_omitted_options_have_the_defaults_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(options: ServeOptions) -> int:
        assert replace(options, web_uis=()) == ServeOptions()
        assert all(getattr(options, field.name) == field.default for field in fields(ServerSettings))
        return 7

    monkeypatch.setattr(serve, "run_server", check)
    assert CliRunner().invoke(app, ["serve"]).exit_code == 7


@pytest.mark.parametrize(
    "name", ["--body-bytes", "--text-length", "--page-size", "--largest-page", "--heartbeat-seconds"]
)
def test_limits_that_allow_nothing_are_rejected(name: str) -> None:
    result = CliRunner().invoke(app, ["serve", name, "0"])
    assert result.exit_code == 2
    assert name in result.output
    assert "Invalid value" in result.output


def test_the_banner_shows_the_url_and_warns_about_an_open_server() -> None:
    line, answers = serve.startup_lines(ServeOptions(url="a.db", model="gpt-5"), "http://127.0.0.1:8765")
    assert "http://127.0.0.1:8765" in line
    assert "/docs" in line
    assert answers == "Model: gpt-5"
    _, offline, warning = serve.startup_lines(
        ServeOptions(url="a.db", model="offline", open=True), "http://127.0.0.1:8765"
    )
    assert "answers only quote memory" in offline
    assert "tellback keys create --role admin --url a.db" in warning
