"""Streams in the contract: OpenAPI has no words for events, so `x-events` names the schema of each event's data."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from tellback.server.examples import Examples, Schema
from tellback.server.sse import MEDIA_TYPE, frame
from tellback.wire.agents import AgentDelta
from tellback.wire.base import Wire
from tellback.wire.events import ChangeWire, ReadyWire
from tellback.wire.problems import Problem
from tellback.wire.turns import StopWire, TextDeltaWire, ToolUseEndWire, ToolUseInputWire, ToolUseStartWire

EVENTS = "x-events"
ERROR = "error"
_REFERENCE = "#/components/schemas/{model}"
_SCHEMA = {"type": "string", "description": f"Events, whose data are JSON; `{EVENTS}` has the schema of each."}

DELTAS: dict[str, type[Wire]] = {
    "text": TextDeltaWire,
    "thinking": TextDeltaWire,
    "tool_use_start": ToolUseStartWire,
    "tool_use_input": ToolUseInputWire,
    "tool_use_end": ToolUseEndWire,
    "stop": StopWire,
}
"""What comes while a turn runs."""
FEED: dict[str, type[Wire]] = {"ready": ReadyWire, "message.appended": ChangeWire, "atom.added": ChangeWire}
"""The first event of the feed, and two of the many that may follow: all the others are alike."""
_ONLY_HERE: tuple[type[Wire], ...] = (AgentDelta, ChangeWire, ReadyWire, *dict.fromkeys(DELTAS.values()))
"""What no body has: other schemas are in the contract by their routes."""


def streamed(description: str, events: dict[str, type[Wire]]) -> dict[int | str, dict[str, Any]]:
    """What a route answers as a stream, for OpenAPI: the events by name, in the order they come in."""
    named: dict[str, type[Wire]] = {**events, ERROR: Problem}
    told = {name: {"$ref": _REFERENCE.format(model=wire.__name__)} for name, wire in named.items()}
    return {200: {"description": description, "content": {MEDIA_TYPE: {"schema": _SCHEMA, EVENTS: told}}}}


def stream_schemas() -> dict[str, Schema]:
    """The schemas of what only streams have."""
    _, made = models_json_schema([(wire, "serialization") for wire in _ONLY_HERE], ref_template=_REFERENCE)
    found: dict[str, Schema] = made["$defs"]
    return found


def stream_example(media: Schema, examples: Examples) -> str:
    """A stream as it may be, without an error."""
    frames = []
    for number, (name, schema) in enumerate(media[EVENTS].items(), 1):
        if name != ERROR:
            data = examples.answer(schema)
            is_numbered = isinstance(data, dict) and "position" in data
            if is_numbered:
                data = {**data, "position": number, **({"type": name} if "type" in data else {})}
            frames.append(frame(name, json.dumps(data).encode(), number if is_numbered else None))
    return b"".join(frames).decode()
