"""The code that peers leave to their users, as lean as possible: prompts, the schema of a reading, the next state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

import agent_routes
from agent_routes import CONDITIONAL, FIELDS, GUIDELINES, STATES, TRUE_CONDITIONS, RouteSpec, Turn
from pydantic import BaseModel, Field, create_model

KEYS = tuple(f"c{number}" for number in range(1, CONDITIONAL + 1))
"""The keys of the conditions in the prompt."""
ACTIONS = {key: agent_routes.build_guideline(number)[1] for number, key in enumerate(KEYS, 1)}
ALWAYS = tuple(agent_routes.build_guideline(number)[1] for number in range(CONDITIONAL + 1, GUIDELINES + 1))


def reading_schema(specs: Sequence[RouteSpec]) -> type[BaseModel]:
    """Return the schema of the model's reading of a message."""
    fields: dict[str, Any] = {
        "route": (Literal[tuple(spec.title for spec in specs)], ...),
        "place": (str | None, None),
        "day": (date | None, None),
        "count": (Annotated[int, Field(ge=1, le=9)] | None, None),
        "conditions": (list[Literal[KEYS]], []),
    }
    return create_model("Reading", **fields)


def reading(turn: Turn) -> dict[str, Any]:
    """Return the reading of a message, in that schema."""
    return {"route": turn.route, **turn.values, "conditions": [f"c{number}" for number in TRUE_CONDITIONS]}


def stated_values(reading: Any) -> dict[str, Any]:
    """Return the values in a reading."""
    return {name: value for name in FIELDS if (value := getattr(reading, name)) is not None}


def reading_prompt(specs: Sequence[RouteSpec]) -> str:
    """Return the prompt with all routes, fields and conditions."""
    return "\n".join(
        [
            f"You read the newest message for {agent_routes.NAME}. Say which route it is about, which values it states"
            " and which conditions are true.",
            *(f"- {spec.title}: {spec.description} When: {spec.condition}." for spec in specs),
            *(f"{name}: {json.dumps(schema)}" for name, schema in FIELDS.items()),
            *(f"{key}: {agent_routes.build_guideline(number)[0]}" for number, key in enumerate(KEYS, 1)),
        ]
    )


def reading_state(route: str | None, data: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the current state of the conversation as text."""
    return f"Current route: {route}\nKnown: {json.dumps({title: plain(values) for title, values in data.items()})}"


def next_state(known: Mapping[str, Any], state_index: int | None, *, changed: bool) -> int | None:
    """Return the index of the next state, or None if the route is completed."""
    missing = [index for index, name in enumerate(FIELDS) if name not in known]
    if missing:
        return missing[0]
    return None if state_index == len(FIELDS) and not changed else len(FIELDS)


def reply_prompt(spec: RouteSpec, known: Mapping[str, Any], conditions: Sequence[str], state_index: int | None) -> str:
    return "\n".join(
        [
            f"You are {agent_routes.NAME}. {agent_routes.GOAL} {spec.title}: {spec.description}",
            *(f"- {action}" for action in ALWAYS),
            *(f"- {ACTIONS[key]}" for key in conditions),
            f"Known: {json.dumps(plain(known))}",
            "Conclude." if state_index is None else f"Do this: {STATES[state_index]}",
        ]
    )


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in values.items()}
