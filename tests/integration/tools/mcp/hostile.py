"""A hand-written server that misbehaves as requested: `python hostile.py LOG [FAULT ...]`.

The server appends every message that it receives to the file LOG, so that a test can read them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

WRONG = set(sys.argv[2:])
OBJECT = {"type": "object", "properties": {}}
ODD = ["endless", "values", "chatter", "questions", "parts", "half", "whisper", "mismatch", "deep"]
changed = mismatched = False
list_count = 0


def send_text(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def send(message: dict[str, Any]) -> None:
    send_text(json.dumps({"jsonrpc": "2.0", **message}) + "\n")


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    send({"id": request["id"], "result": result})


def tool(name: Any, schema: Any = OBJECT, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema, "description": f"Do {name}.", **kwargs}


def chain(length: int) -> dict[str, Any]:
    """Build a schema whose definitions each refer to the next one twice: checking it takes exponential time."""
    steps = {f"s{n}": {"allOf": [{"$ref": f"#/$defs/s{n + 1}"}] * 2} for n in range(length)}
    return {"type": "object", "$ref": "#/$defs/s0", "$defs": {**steps, f"s{length}": {}}}


def bad_tools() -> list[Any]:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}
    return [
        tool("text_schema", "a text"),
        tool("no_schema", None),
        tool("array_schema", {"type": "array"}),
        tool("invalid_schema", {"type": "object", "properties": {"x": {"type": "nonsense"}}}),
        tool("circle", {"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        tool("doubling", chain(40)),
        tool("remote", {"type": "object", "properties": {"x": {"$ref": "http://192.0.2.1/schema.json"}}}),
        tool("dangling", {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}}),
        tool("huge", {"type": "object", "description": "x" * 200_000}),
        tool("deep", {"type": "object", "properties": {"x": deep}}),
        tool(17),
        tool(""),
        "not even an object",
        tool("tree", tree),
        tool("wordy", description="y" * 50_000, annotations={"readOnlyHint": True, "title": 3}),
        tool("backtracking", {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}),
        tool("good"),
        tool("good"),
    ]


def listing(request: dict[str, Any]) -> None:
    global list_count
    list_count += 1
    if "second-list-lost" in WRONG and list_count == 2:
        pass
    elif "many-tools" in WRONG:
        answer(request, {"tools": [tool(f"t{number}") for number in range(6_000)]})
    elif "bad-tools" in WRONG:
        answer(request, {"tools": bad_tools()})
    elif "pages" in WRONG:
        cursor = int((request.get("params") or {}).get("cursor") or 0)
        answer(request, {"tools": [tool(f"t{cursor}")], "nextCursor": str(cursor + 1)})
    elif "no-list" in WRONG:
        pass
    elif "nonsense-list" in WRONG:
        answer(request, {"tools": "many"})
    elif "two-pages" in WRONG:
        second = (request.get("params") or {}).get("cursor") == "2"
        answer(request, {"tools": [tool("b")]} if second else {"tools": [tool("a")], "nextCursor": "2"})
    else:
        names = [
            "act",
            "wait",
            "nonsense",
            "garble",
            "die",
            "huge",
            "flood",
            "change",
            "refuse",
            "pid",
            "blob",
            "sleep",
        ]
        answer(request, {"tools": [tool(name) for name in [*names, *ODD, *(["new"] if changed else [])]]})


def handle_odd_call(request: dict[str, Any], name: str) -> bool:
    """Handle special calls; return True if the call needs no further answer."""
    global mismatched
    while name == "endless":
        sys.stdout.write("x" * 1_000_000)
    while name == "chatter":
        send({"method": "notifications/message", "params": {"level": "info", "data": "x" * 10_000}})
    if name == "questions":
        for number in range(100):
            send({"id": f"q{number}", "method": "ping" if number else "sampling/createMessage", "params": {}})
    if name == "values":
        send_text(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":[{"[]," * 600_000}[]]}}\n')
    if name == "parts":
        answer(request, {"content": [{"type": "text", "text": ""}] * 300_000})
        return True
    if name == "half":
        answer(request, {"content": [{"type": "text", "text": "half \ud83d a character"}]})
        return True
    if name == "deep":
        send_text(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[],"structuredContent":{{"x":')
        send_text("[" * 500 + "]" * 500 + "}}}\n")
        return True
    if name == "whisper":
        print("a secret of somebody else", file=sys.stderr, flush=True)
    if name == "mismatch" and not mismatched:
        mismatched = True
        send({"id": request["id"], "error": {"code": -32020, "message": "other headers"}})
        return True
    return False


def call(request: dict[str, Any]) -> None:
    global changed
    name = request["params"]["name"]
    if name in ODD and handle_odd_call(request, name):
        return
    content: list[dict[str, Any]] = [{"type": "text", "text": "done"}]
    if name == "wait":
        return
    if name == "sleep":
        time.sleep(600)
    if name == "die":
        os._exit(1)
    if name == "nonsense":
        answer(request, {"content": "not a list"})
        return
    if name == "refuse":
        send({"id": request["id"], "error": {"code": -32000, "message": "not today"}})
        return
    if name == "garble":
        sys.stdout.buffer.write((b"\xff\xfe garbage {{{ \n[1, 2\nnull\n" + b"\x00" * 1_000 + b"\n") * 1_000)
        sys.stdout.buffer.flush()
    if name == "huge":
        content = [{"type": "text", "text": "z" * 3_000_000}]
    if name == "blob":
        content = [
            {"type": "image", "data": "AAAA", "mimeType": "text/html"},
            {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        ]
    if name == "pid":
        content = [{"type": "text", "text": str(os.getpid())}]
    if name == "flood":
        for number in range(20_000):
            sys.stderr.write(f"line {number} " + "e" * 50 + "\n")
        sys.stderr.write("w" * 1_000_000)
        sys.stderr.flush()
    if name == "change":
        changed = True
        send({"method": "notifications/tools/list_changed"})
    answer(request, {"content": content})


def handle(request: dict[str, Any]) -> None:
    method = request.get("method")
    if method == "initialize":
        if "no-greeting" in WRONG:
            return
        tools = {"listChanged": True} if "no-changes" not in WRONG else {}
        answer(
            request,
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": tools},
                "serverInfo": {"name": "hostile", "version": "1"},
            },
        )
    elif method == "tools/list":
        listing(request)
    elif method == "tools/call":
        call(request)
    elif "id" in request:
        send({"id": request["id"], "error": {"code": -32601, "message": "what?"}})


def main() -> None:
    with open(sys.argv[1], "a") as server_log:
        server_log.write(json.dumps({"pid": os.getpid()}) + "\n")
        server_log.flush()
        if "stubborn" in WRONG:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if "fails-at-once" in WRONG:
            sys.exit("the licence has expired")
        if "deaf" in WRONG:
            time.sleep(600)
        for line in sys.stdin:
            server_log.write(line)
            server_log.flush()
            handle(json.loads(line))
        if "stubborn" in WRONG:
            time.sleep(600)


if __name__ == "__main__":
    main()
