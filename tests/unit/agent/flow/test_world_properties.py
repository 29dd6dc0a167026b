"""Promises that hold in every conversation of generated users with generated agents, compared with a simulated world.

`TELLBACK_FLOW_DIALOGUES` sets the number of conversations; a failure shows the seed and the turns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tellback.agent.flow import move, route_choice, walk
from tellback.agent.flow.walk import RouteWalk
from tellback.agent.sessions.session import enter_route
from tests.unit.agent.flow.world import BrokenPromise, play

pytestmark = pytest.mark.slow

DIALOGUES = int(os.environ.get("TELLBACK_FLOW_DIALOGUES", "10000"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(max(120, DIALOGUES // 50))
def test_no_promise_is_broken(part: int) -> None:
    # Half of the readings of questions and of dropped routes are wrong; in some conversations, all of them.
    for seed in range(part * DIALOGUES // PARTS, (part + 1) * DIALOGUES // PARTS):
        play(seed, noise=1.0 if seed % 5 == 0 else 0.5, turns=25 if seed % 7 == 0 else 12)


def play_many(seeds: Iterable[int], noise: float) -> None:
    for seed in seeds:
        play(seed, noise=noise, turns=25)


def nothing(*arguments: Any, **named: Any) -> None:
    return None


def keep_other_run(self: RouteWalk, state: Any, run: Any) -> Any:
    return self._keep(state, run)


def enter_even_for_a_question(route: Any, session: Any, interpretation: Any, score: float, thresholds: Any) -> bool:
    return bool(score >= (thresholds.reenter if session.has_completed(route.id) else thresholds.enter))


def replace_list(route: Any, known: Any, interpretation: Any) -> Any:
    merged = {**known, **interpretation.data.get(route.id, {})}
    return merged, tuple(name for name in known if merged[name] != known[name]), ()


def revive_with_progress(route: Any, session: Any) -> Any:
    paused = {id: replace(each, dropped=False) for id, each in session.paused_routes.items()}
    return replace(session, paused_routes=paused)


def lose_other_values(routes: Any, session: Any, chosen: Any, queued: Any, interpretation: Any) -> Any:
    return session, ()


Undo = Callable[[pytest.MonkeyPatch], None]
MENDS: dict[str, Undo] = {
    "an approved action is not asked for again": lambda patch: patch.setattr(
        RouteWalk, "_leave", lambda self, state, transition: None
    ),
    "an action with other values is done again only if it is confirmed": lambda patch: patch.setattr(
        RouteWalk, "_hold", keep_other_run
    ),
    "a confirmation is valid for its values": lambda patch: patch.setattr(RouteWalk, "_judge_confirmation", nothing),
    "a call that waits has the present values": lambda patch: patch.setattr(RouteWalk, "_drop_call", nothing),
    "the condition of a loop begins a new pass": lambda patch: patch.setattr(
        RouteWalk, "_find_looping_transition", nothing
    ),
    "a pass has its own data": lambda patch: patch.setattr(walk, "list_pass_fields", lambda route, states: set()),
    "results of other values are removed": lambda patch: patch.setattr(
        walk, "undo_tool_data", lambda route, runs, data, stated: data
    ),
    "a question is not an answer": lambda patch: (
        patch.setattr(RouteWalk, "_is_answered", lambda self: True),
        patch.setattr(RouteWalk, "_judge_consent", nothing),
    )[0],
    "a question does not start an action, whatever the reading says": lambda patch: patch.setattr(
        RouteWalk, "_judge_consent", nothing
    ),
    "a second wish waits": lambda patch: patch.setattr(move, "find_queued_routes", lambda *arguments: ()),
    "values of other routes are stored": lambda patch: patch.setattr(move, "_apply_to_other_routes", lose_other_values),
    "a branch can be changed": lambda patch: patch.setattr(RouteWalk, "_change_choices", nothing),
    "lists grow": lambda patch: (patch.setattr(walk, "merge_values", replace_list),)[0],
    "a contradictory reading drops nothing": lambda patch: patch.setattr(
        move, "resolve_contradictions", lambda route, session, interpretation: (interpretation, ())
    ),
    "a question does not begin a completed route again": lambda patch: patch.setattr(
        route_choice, "_may_enter", enter_even_for_a_question
    ),
    "a dropped route begins again": lambda patch: patch.setattr(move, "_revive", revive_with_progress),
    "what was done with these values is not done again": lambda patch: patch.setattr(
        RouteWalk, "_restore_replaced_run", nothing
    ),
    "completed routes keep their data": lambda patch: patch.setattr(move, "reopen_route", enter_without_data),
}


def enter_without_data(session: Any, route_id: str, title: str, *, at: Any) -> Any:
    return enter_route(session, route_id, title, at=at)


@pytest.mark.parametrize("mend", MENDS)
def test_the_promises_fail_without_this_mend(mend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MENDS[mend](monkeypatch)
    with pytest.raises((BrokenPromise, AssertionError, KeyError)):
        play_many(range(3000), noise=1.0)
