"""Streams in the contract: OpenAPI has no words for events, so `x-events` names the schema of each event's data."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from tellback.server.examples import ExampleBuilder, Schema
from tellback.server.sse import MEDIA_TYPE, encode_frame
from tellback.wire.agents import AgentDelta
from tellback.wire.base import WireModel
from tellback.wire.events import ChangeWire, ReadyWire
from tellback.wire.problems import Problem
from tellback.wire.turns import StopWire, TextDeltaWire, ToolUseEndWire, ToolUseInputWire, ToolUseStartWire

EVENTS_EXTENSION = "x-events"
ERROR_EVENT = "error"
_SCHEMA_REFERENCE = "#/components/schemas/{model}"
_STREAM_SCHEMA = {
    "type": "string",
    "description": f"Events, whose data are JSON; `{EVENTS_EXTENSION}` has the schema of each.",
}

DELTA_EVENTS: dict[str, type[WireModel]] = {
    "text": TextDeltaWire,
    "thinking": TextDeltaWire,
    "tool_use_start": ToolUseStartWire,
    "tool_use_input": ToolUseInputWire,
    "tool_use_end": ToolUseEndWire,
    "stop": StopWire,
}
"""What comes while a turn runs."""
FEED_EVENTS: dict[str, type[WireModel]] = {"ready": ReadyWire, "message.appended": ChangeWire, "atom.added": ChangeWire}
"""The first event of the feed, and two of the many that may follow: all the others are alike."""
_STREAM_ONLY_MODELS: tuple[type[WireModel], ...] = (
    AgentDelta,
    ChangeWire,
    ReadyWire,
    *dict.fromkeys(DELTA_EVENTS.values()),
)
"""What no body has: other schemas are in the contract by their routes."""


def stream_responses(description: str, events: dict[str, type[WireModel]]) -> dict[int | str, dict[str, Any]]:
    """What a route answers as a stream, for OpenAPI: the events by name, in the order they come in."""
    models: dict[str, type[WireModel]] = {**events, ERROR_EVENT: Problem}
    references = {name: {"$ref": _SCHEMA_REFERENCE.format(model=model.__name__)} for name, model in models.items()}
    return {
        200: {
            "description": description,
            "content": {MEDIA_TYPE: {"schema": _STREAM_SCHEMA, EVENTS_EXTENSION: references}},
        }
    }


def build_stream_schemas() -> dict[str, Schema]:
    """The schemas of what only streams have."""
    _, document = models_json_schema(
        [(model, "serialization") for model in _STREAM_ONLY_MODELS], ref_template=_SCHEMA_REFERENCE
    )
    schemas: dict[str, Schema] = document["$defs"]
    return schemas


def build_stream_example(media: Schema, examples: ExampleBuilder) -> str:
    """A stream as it may be, without an error."""
    frames = []
    for number, (name, schema) in enumerate(media[EVENTS_EXTENSION].items(), 1):
        if name != ERROR_EVENT:
            data = examples.build_response(schema)
            is_numbered = isinstance(data, dict) and "position" in data
            if is_numbered:
                data = {**data, "position": number, **({"type": name} if "type" in data else {})}
            frames.append(encode_frame(name, json.dumps(data).encode(), number if is_numbered else None))
    return b"".join(frames).decode()
