"""Options are validated, and become a server."""

from __future__ import annotations

import pickle
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tellback import Tellback
from tellback.agent_sources import load_agents
from tellback.errors import ConfigurationError, TellbackError, UnknownModelError
from tellback.server import JwtSettings
from tellback.server.operations.http_server import (
    Server,
    bind_socket,
    build_tellback,
    check_options,
    key_creation_command,
    server_url,
)
from tellback.server.operations.supervisor import _exit_with_parent
from tellback.server.settings import ServeOptions

SPEC = "name: {}\nsystemPrompt: Be brief.\n"


def test_options_can_be_pickled() -> None:
    jwt = JwtSettings("https://issuer.test", "tellback", jwks_url="https://issuer.test/keys")
    options = ServeOptions(url="postgresql://a:secret@db/x", workers=3, jwt=jwt, metrics_token="hidden")
    assert pickle.loads(pickle.dumps(options)) == options
    assert "secret" not in repr(options)
    assert "hidden" not in repr(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2}, "PostgreSQL"),
        ({"workers": 0}, "at least 1"),
        ({"trust_proxy": ("*",)}, "trust_proxy"),
        ({"shutdown_seconds": -1}, "shutdown_seconds"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ServeOptions(**options)


async def test_a_store_without_keys_is_served_openly_on_loopback(tmp_path: Path) -> None:
    options = ServeOptions(url=str(tmp_path / "tellback.db"))
    assert (await check_options(options)).open


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
async def test_a_store_without_keys_is_not_served_on_other_addresses(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="tellback keys create"):
        await check_options(ServeOptions(url=str(tmp_path / "tellback.db"), host=host))


async def test_a_store_with_a_valid_key_is_not_open_and_one_with_revoked_keys_is_not_served(tmp_path: Path) -> None:
    options = ServeOptions(url=str(tmp_path / "tellback.db"), host="0.0.0.0")
    async with Tellback(options.url, worker=False) as tb:
        created = await tb.keys.create("app")
    assert not (await check_options(options)).open
    async with Tellback(options.url, worker=False) as tb:
        await tb.keys.revoke(created.key.id)
    for host in ("0.0.0.0", "127.0.0.1"):  # a store that once had keys never becomes open
        with pytest.raises(ConfigurationError, match="expired or were revoked"):
            await check_options(replace(options, host=host))


async def test_a_server_with_a_jwt_issuer_is_not_open(tmp_path: Path) -> None:
    jwt = JwtSettings("https://issuer.test", "tellback", jwks_url="https://issuer.test/keys")
    assert not (await check_options(ServeOptions(url=str(tmp_path / "tellback.db"), host="0.0.0.0", jwt=jwt))).open


@pytest.mark.parametrize("options", [{"model": "gtp-5"}, {"models": ("gpt-5", "gtp-5")}])
async def test_an_unknown_model_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(UnknownModelError, match="gtp-5"):
        await check_options(ServeOptions(url=":memory:", **options))


async def test_an_unreachable_store_is_rejected() -> None:
    with socket.socket() as listener:  # bound but not listening, so nothing responds
        listener.bind(("127.0.0.1", 0))
        with pytest.raises(TellbackError):
            await check_options(ServeOptions(url=f"postgresql://127.0.0.1:{listener.getsockname()[1]}/nothing"))


def test_agents_come_from_files_and_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(SPEC.format(name))
    (tmp_path / "notes.txt").write_text("not an agent")
    single = tmp_path / "more" / "three.json"
    single.parent.mkdir()
    single.write_text('{"name": "three", "systemPrompt": "Be brief."}')
    tb = Tellback(":memory:")
    assert load_agents(tb, [str(tmp_path), str(single)]) == []
    assert all(tb._specs.get(name) for name in ("one", "two", "three"))


MODULE = """
from tellback import Agent
agent = Agent(name="Wanda", goal="Book flights")
agents = [agent, Agent(name="Otto")]
seen = []
def of(tb):
    seen.append(tb)
    return agent
def registers(tb):
    tb.register_agent({"name": "four", "systemPrompt": "Be brief."})
number = 7
def broken(tb):
    raise LookupError("no such thing")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "desk_of_ours.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "desk_of_ours", raising=False)
    return "desk_of_ours"


def test_agents_with_routes_come_from_modules(module: str) -> None:
    tb = Tellback(":memory:")
    found = load_agents(tb, [f"{module}:agent", f"{module}:agents", f"{module}:of", f"{module}:registers"])
    assert [agent.name for agent in found] == ["Wanda", "Wanda", "Otto", "Wanda"]
    assert sys.modules[module].seen == [tb]
    tb.register_agent({"name": "five", "systemPrompt": "Be brief."})


@pytest.mark.parametrize(
    "source", ["nowhere.yaml", "nowhere", "no_module:agent", "{}:nothing", "{}:number", "{}:broken"]
)
def test_agents_that_fail_to_load_are_reported_by_source(module: str, source: str) -> None:
    source = source.format(module)
    with pytest.raises(ConfigurationError, match=source.partition(":")[0]):
        load_agents(Tellback(":memory:"), [source])


@pytest.mark.parametrize("text", ["name: [", "goal: nothing", "\x00"])
def test_an_invalid_spec_is_reported_with_its_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"broken\.yaml"):
        load_agents(Tellback(":memory:"), [str(tmp_path)])


def test_a_port_in_use_is_reported() -> None:
    with bind_socket("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        assert server_url(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigurationError, match=f"port {port}"):
            bind_socket("127.0.0.1", port)
    with pytest.raises(ConfigurationError, match="Cannot resolve"):
        bind_socket("no host", 0)


def test_uvicorn_is_configured_without_logs_and_with_limits() -> None:
    from tellback.server import create_app

    options = ServeOptions(url=":memory:", shutdown_seconds=2.5)
    tb, _ = build_tellback(options)
    config = Server(create_app(tb, options, opens=False), options).config
    assert (config.access_log, config.server_header, config.proxy_headers) == (False, False, False)
    assert config.timeout_graceful_shutdown == 3
    proxied = ServeOptions(url=":memory:", trust_proxy=("10.0.0.1",))
    config = Server(create_app(tb, options, opens=False), proxied).config
    assert config.proxy_headers
    assert config.forwarded_allow_ips == ["10.0.0.1"]


def test_the_key_creation_command_hides_passwords() -> None:
    assert "secret" not in key_creation_command("postgresql://app:secret@db/prod")
    assert key_creation_command("my file.db") == "`tellback keys create --role admin --url 'my file.db'`"


def test_a_worker_without_a_supervisor_stops_and_is_killed_if_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    parent = SimpleNamespace(join=lambda: sent.append(0))
    monkeypatch.setattr("multiprocessing.parent_process", lambda: parent)
    monkeypatch.setattr("os.kill", lambda pid, number: sent.append(number))
    _exit_with_parent(0.0)
    assert sent == [0, signal.SIGTERM, signal.SIGKILL]
