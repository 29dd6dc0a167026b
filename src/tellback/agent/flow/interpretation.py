"""`Interpretation`: the parsed meaning of a user's message, and the conditions about routes in words for the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.sessions.session import SessionState, get_route_data


@dataclass(frozen=True, slots=True)
class RejectedValue:
    """A value that the model read in a message, and that is not stored. `problem` is the reason.

    If `explained`, the user stated the value and the agent tells the user what is wrong with it. Otherwise the user's
    words do not support the value, or it belongs to a route that is not in progress.

    >>> import asyncio
    >>> from tellback.agent import Agent
    >>> from tellback.testing import ScriptedModel, says, understands
    >>> schema = {"type": "object", "properties": {"guests": {"type": "integer", "maximum": 8}}}
    >>> agent = Agent("Wanda", model=ScriptedModel([understands(guests=20), says("At most 8, sorry.")]))
    >>> route = agent.create_route("Book a table", gather_schema=schema)
    >>> ask = route.initial_state.transition_to(chat_state="Ask how many", gather=["guests"])
    >>> [rejected] = asyncio.run(agent.respond("A table for 20")).trace.rejected
    >>> rejected.field, rejected.value
    ('guests', 20)
    """

    field: str
    value: Any
    problem: str
    route_id: str = ""
    explained: bool = True


@dataclass(frozen=True, slots=True)
class Interpretation:
    """The parsed meaning of a user's message: `scores` by route (None if no routes were scored), values and fields to
    clear by route, and the texts of the conditions that are true.

    `answered` says whether the message answers a chat state without fields; None means that the model was not asked.
    `only_asks` is True for a message that consists of questions, and `declines` for one that begins with a word such as
    "no"; `is_remark` is True for greetings, thanks, words of agreement and questions, if a route was completed before.
    `user_spoke` is False if there was no message; with `unreadable` there was one, but the model's reading of it is
    unusable.

    >>> understood = Interpretation(scores={"book": 90}, data={"book": {"to": "Rome"}}, forgotten={"book": ["day"]})
    >>> understood.data["book"], understood.user_spoke
    ({'to': 'Rome'}, True)
    """

    scores: Mapping[str, float] | None = None
    data: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forgotten: Mapping[str, Sequence[str]] = field(default_factory=dict)
    true_conditions: frozenset[str] = frozenset()
    rejected: tuple[RejectedValue, ...] = ()
    user_spoke: bool = True
    answered: bool | None = None
    only_asks: bool = False
    declines: bool = False
    is_remark: bool = False
    unreadable: bool = False

    def has_values(self, route_id: str) -> bool:
        """Whether the message states values of the route or takes some back."""
        return bool(self.data.get(route_id) or self.forgotten.get(route_id))


def drop_condition(route: Route) -> str:
    """The condition under which a route is dropped, in words for the model."""
    return f"the user no longer wants this: {route.title}"


def change_condition(route: Route) -> str:
    """The condition under which a completed route is continued with changed values, in words for the model."""
    return f"the user wants to change what was done: {route.title}"


def retry_condition(state: State) -> str:
    """The condition under which a tool that failed or must not repeat runs again, in words for the model."""
    return f"the user wants to try this again: {state.title}"


def keep_condition(state: State) -> str:
    """The condition under which an action that was done with other values is not done again, in words for the model."""
    return f"the user does not want this again: {state.title}"


def retract_condition(condition: str) -> str:
    """The condition under which an earlier choice is taken back, in words for the model."""
    return f"it is no longer true that {condition}"


def states_fresh_values(session: SessionState, route_id: str, interpretation: Interpretation) -> bool:
    """Whether the message states values of the route that are not known yet, or differ."""
    known, stated = get_route_data(session, route_id), interpretation.data.get(route_id, {})
    return any(name not in known or known[name] != value for name, value in stated.items())


MIN_WANTED_SCORE = 50
"""The score at which a reading says that the user continues the current route."""


def resolve_contradictions(
    route: Route | None, session: SessionState, interpretation: Interpretation
) -> tuple[Interpretation, tuple[str, ...]]:
    """Return the interpretation without what contradicts the rest of it, and the problems.

    A message that states new values of the current route does not drop the route; neither does a question that scored
    the route high.
    """
    if route is None or drop_condition(route) not in interpretation.true_conditions:
        return interpretation, ()
    is_wanted = interpretation.only_asks and (interpretation.scores or {}).get(route.id, 0) >= MIN_WANTED_SCORE
    if not is_wanted and not states_fresh_values(session, route.id, interpretation):
        return interpretation, ()
    conditions = interpretation.true_conditions - {drop_condition(route)}
    problem = f"{drop_condition(route)!r} is ignored: the message states new values, or asks about the route"
    return replace(interpretation, true_conditions=conditions), (problem,)
