"""Measure what a request costs the server, compared with plain FastAPI and a plain Starlette stream.

Each application runs in one uvicorn worker with uvloop and httptools. Tellback is configured as by `tellback serve`,
with logs, metrics and limits. `append_user_message` is a POST to Tellback on a SQLite file with an API key: it is
authenticated, counted, validated, stored in a transaction with its event, answered after the commit, and logged. The
echo reads the same message as a pydantic model and returns one. `deltas` are the events of a streamed turn whose model
answers immediately; `feed` are logged events, read from the store and sent to a client that resumes. Starlette's stream
yields ready-made events.

Requests come from one process over several keep-alive connections, sequentially on each. CPU time is that of the
server's process, all threads; the rate is what this machine's cores could do together with the client. Rounds are
interleaved. Goals: a third of FastAPI's rate for the append, half of Starlette's for events, by CPU time.

    python bench/server.py
    python bench/server.py --rounds 3 --requests 2000 --events 20000 --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import align_columns, summary
from runner import Progress, publish, rotate

WORKER = Path(__file__).parent / "workers" / "http_servers.py"
START_SECONDS = 60.0
TEXT = "Where is my refund? I sent the parcel back on Tuesday, and the shop says that it has arrived. " * 2
GOALS = {"append": ("echo", 1 / 3), "deltas": ("events", 1 / 2), "feed": ("events", 1 / 2)}
"""For each measurement of Tellback: what it is compared with, and the share of that rate that is the goal."""


@dataclass(frozen=True)
class Server:
    """A server process."""

    pid: int
    port: int
    secret: str = ""
    conversation: str = ""

    def cpu(self) -> float:
        """Return the seconds of CPU time so far, of all threads. /proc/PID/stat would give only hundredths."""
        try:
            return time.clock_gettime((~self.pid << 3) | 2)  # The id that clock_getcpuclockid(3) returns.
        except (AttributeError, OSError) as error:
            sys.exit(f"cannot read the CPU time of process {self.pid} ({error}): it has exited, or this is not Linux")


@contextmanager
def run_server(name: str, file: str, events: int = 0) -> Iterator[Server]:
    """Run a contender's server until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(WORKER), name, str(port), file, str(events)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        secret, conversation = process.stdout.readline().split() if name == "tellback" else ("", "")
        _await_port(port, process)
        yield Server(process.pid, port, secret, conversation)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_port(port: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    sys.exit(f"the server did not start (exit code {process.poll()})")


def request(server: Server, path: str, body: Any = None) -> bytes:
    """Return a request as bytes."""
    content = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(content)}\r\n"
    )
    if body is not None:
        head += "Content-Type: application/json\r\n"
    if server.secret:
        head += f"Authorization: Bearer {server.secret}\r\nX-Tellback-User: maya\r\n"
    return f"{head}\r\n".encode() + content


async def send_requests(server: Server, payload: bytes, count: int, connections: int) -> None:
    """Send a request `count` times, over several connections."""
    remaining = iter(range(count))

    async def send_all() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in remaining:
            writer.write(payload)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise SystemExit(f"unexpected response: {head.decode()}{(await reader.read(2_000)).decode()}")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
        writer.close()

    await asyncio.gather(*(send_all() for _ in range(connections)))


async def read_events(server: Server, payload: bytes, count: int) -> None:
    """Send a request, and read `count` events of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**20)
    writer.write(payload)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"unexpected response: {head.decode()}{(await reader.read(2_000)).decode()}")
    seen, rest = 0, b""
    while seen < count:
        chunk = await reader.read(2**18)
        if not chunk:
            raise SystemExit(f"the stream ended after {seen} of {count} events")
        chunk = rest + chunk
        seen += chunk.count(b"\ndata: ")
        rest = chunk[-6:] if not chunk.endswith(b"\ndata: ") else b""
    writer.close()


def measure(server: Server, work: Any, count: int) -> dict[str, float]:
    """Return the CPU milliseconds of one operation, and the operations per second."""
    cpu, wall = server.cpu(), time.monotonic()
    asyncio.run(work)
    cpu, wall = server.cpu() - cpu, time.monotonic() - wall
    return {"cpu_ms": cpu * 1_000 / count, "rate": count / wall}


def run(options: argparse.Namespace) -> dict[str, Any]:
    progress = Progress()
    samples: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            name: stack.enter_context(run_server(name, str(Path(folder) / "bench.db"), options.events))
            for name in ("tellback", "fastapi", "starlette")
        }
        ours = servers["tellback"]
        message = {"content": TEXT}
        append = request(ours, f"/ai-conversations/{ours.conversation}/user-messages", message)
        turn = request(ours, "/ai-conversations/chat", {"text": str(options.events), "space": None, "stream": True})
        echo = request(servers["fastapi"], "/echo/conv_1", message)
        events = request(servers["starlette"], f"/stream?count={options.events}&data=word")
        feed = request(ours, "/ai-events?after=0")
        tasks = {
            "append": (
                ours,
                lambda: send_requests(ours, append, options.requests, options.connections),
                options.requests,
            ),
            "echo": (
                servers["fastapi"],
                lambda: send_requests(servers["fastapi"], echo, options.requests, options.connections),
                options.requests,
            ),
            "events": (
                servers["starlette"],
                lambda: read_events(servers["starlette"], events, options.events),
                options.events,
            ),
            "deltas": (ours, lambda: read_events(ours, turn, options.events), options.events),
            "feed": (ours, lambda: read_events(ours, feed, options.events), options.events),
        }
        tasks = {name: task for name, task in tasks.items() if name in options.only}
        for name, (_, work, _) in tasks.items():  # One warm-up round.
            progress(f"warming up: {name}")
            asyncio.run(work())
        for round_number in range(options.rounds):
            for name, (server, work, count) in rotate([*tasks.items()], round_number):
                progress(f"round {round_number + 1} of {options.rounds}: {name}")
                samples[name].append(measure(server, work(), count))
        progress.end()
    numbers = {
        name: {kind: summary([each[kind] for each in results]) for kind in ("cpu_ms", "rate")}
        for name, results in samples.items()
    }
    shares = {
        name: {
            "peer": peer,
            "share": numbers[peer]["cpu_ms"]["median"] / numbers[name]["cpu_ms"]["median"],
            "share_by_rate": numbers[name]["rate"]["median"] / numbers[peer]["rate"]["median"],
            "goal": goal,
        }
        for name, (peer, goal) in GOALS.items()
        if name in numbers and peer in numbers
    }
    return {"python": platform.python_version(), "rounds": options.rounds, "numbers": numbers, "shares": shares}


TITLES = {
    "append": "Tellback, append_user_message",
    "echo": "plain FastAPI, echo",
    "deltas": "Tellback, deltas of a turn",
    "feed": "Tellback, event feed from the store",
    "events": "plain Starlette, ready-made events",
}


def table(result: dict[str, Any]) -> str:
    rows = [["", "CPU µs", "minimum", "per second"]]
    for name, title in TITLES.items():
        if name not in result["numbers"]:
            continue
        kinds = result["numbers"][name]
        cpu, rate = kinds["cpu_ms"], kinds["rate"]
        rows.append([title, f"{cpu['median'] * 1_000:.0f}", f"{cpu['min'] * 1_000:.0f}", f"{rate['median']:,.0f}"])
    lines = [f"Python {result['python']}, {result['rounds']} rounds, interleaved.", "", *align_columns(rows), ""]
    for name, share in result["shares"].items():
        met = "met" if share["share"] >= share["goal"] else "missed"
        lines.append(
            f"{TITLES[name]}: {share['share']:.2f} of the rate of {TITLES[share['peer']]} by CPU time"
            f" ({share['share_by_rate']:.2f} by wall time); the goal of {share['goal']:.2f} is {met}."
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3_000, help="requests per round")
    parser.add_argument("--events", type=int, default=20_000, help="events per round")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--json", nargs="?", const="-", metavar="PATH")
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a goal is missed")
    parser.add_argument("--only", default=",".join(TITLES), help=f"measurements (default: {','.join(TITLES)})")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    result = run(options)
    publish(result, table(result), options.json)
    missed = [name for name, share in result["shares"].items() if share["share"] < share["goal"]]
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
