"""A simulated world for properties of flows: generated routes with actions, generated users, and an oracle.

The world records what is really done. The oracle compares this with what the user confirmed and with what the prompts
of the replies report, and raises `BrokenPromise` for a difference.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

from tellback.agent import END_ROUTE, Agent
from tellback.agent.definitions.route import Route
from tellback.agent.definitions.state import State
from tellback.agent.flow.interpretation import Interpretation, change_condition, drop_condition, retry_condition
from tellback.agent.flow.move import MoveResult, ToolRunRequest, ToolRunResult, move
from tellback.agent.prompts.reply import render_reply_prompt
from tellback.agent.sessions.session import (
    PendingCall,
    SessionState,
    ToolRun,
    create_session,
    find_unfinished,
    get_route_data,
)
from tellback.tools import tool
from tellback.types import ToolCall

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
USERS_PER_AGENT = 10
"""How many consecutive seeds talk to the same agent: building one takes longer than a conversation."""
DAYS, SIZES = ("Monday", "Tuesday", "Friday"), (1, 2, 3)
ITEMS = ("tea", "milk", "rice", "salt")
MORE, CARD, CASH = "the user wants another one", "the user pays by card", "the user pays in cash"
_REPORT = re.compile(r"(\w+)\((\{[^{}]*\})\) returned: (R\d+)")
_REFERENCE = re.compile(r"R\d+")


class BrokenPromise(AssertionError):
    """The agent did, reported or lost something that it should not have."""


@dataclass
class World:
    """What was really done: the results of lookups and of actions, by their reference."""

    random: Random
    failure_rate: float = 0.1
    results: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    attempts: list[tuple[str, dict[str, Any], bool]] = field(default_factory=list)
    """The calls of actions, and whether they were done."""

    @property
    def done(self) -> list[tuple[str, dict[str, Any]]]:
        return [(name, arguments) for name, arguments, was_done in self.attempts if was_done]

    def run(self, request: ToolRunRequest, *, denied: bool = False, decided: bool = False) -> ToolRunResult:
        """Run a tool of a state."""
        found = request.state.tool
        assert found is not None
        arguments = dict(request.arguments)
        run = ToolRun(found.name, arguments)
        if found.requires_approval and not decided:
            call = ToolCall(f"call_{self.random.randrange(10**9)}", found.name, arguments)
            return ToolRunResult(run, pending=PendingCall(request.state.id, call))
        is_action = found.name.startswith("act")
        fails = denied or self.random.random() < self.failure_rate
        if is_action:
            self.attempts.append((found.name, arguments, not fails))
        if fails:
            return ToolRunResult(ToolRun(found.name, arguments, error="it is closed"))
        reference = f"R{len(self.results) + 1}"
        self.results[reference] = (found.name, arguments)
        return ToolRunResult(ToolRun(found.name, arguments, reference), reference)


@dataclass(frozen=True)
class Service:
    """A route with an action, and the states that matter to the oracle."""

    route: Route
    action: State
    confirm: State | None
    report: State | None
    branch: State | None
    order: Mapping[str, int]
    """The position of each state in the route."""

    @property
    def needs(self) -> tuple[str, ...]:
        """The arguments of the action."""
        assert self.action.tool is not None
        return tuple(self.action.tool.parameters["properties"])


def build_service(random: Random, number: int) -> Service:
    """Build a route of random shape: questions, lookups, branches, a confirmation, an action, a report and a loop."""

    def happens(often: float) -> bool:
        return random.random() < often

    @tool(name=f"look{number}")
    def look(day: str) -> str:
        """Look a day up."""
        raise NotImplementedError

    @tool(name=f"act{number}", requires_approval=happens(0.3))
    def act(day: str, size: int) -> str:
        """Book a day."""
        raise NotImplementedError

    fields: dict[str, Any] = {"day": {"type": "string"}, "size": {"type": "integer"}, "slots": {}, "ref": {}}
    fields |= {"items": {"type": "array", "items": {"type": "string"}}, "account": {"type": "string"}}
    route = Route(
        f"Service {number}",
        conditions=[f"the user wants service {number}"],
        gather_schema={"type": "object", "properties": fields, "required": ["day", "size", "items", "account"]},
    )
    asks: list[State] = []
    last = route.initial_state
    for names in random.choice([[["day", "size"]], [["day"], ["size"]], [["size"], ["day"]]]):
        last = last.transition_to(chat_state=f"Ask for {' and '.join(names)}", gather=names)
        asks.append(last)
    if happens(0.3):
        last = last.transition_to(chat_state="Ask for items", gather=["items"])
        asks.append(last)
    if happens(0.4):
        last = last.transition_to(tool_state=look, save_as="slots" if happens(0.7) else None)
        if happens(0.3):
            last.transition_to(state=asks[0], on_error=True)
    how: State | None = None
    if happens(0.25):
        how = last.transition_to(chat_state="Ask how to pay")
        card = how.transition_to(chat_state="Ask for the account", gather=["account"], condition=CARD)
        last = card.transition_to(chat_state="Say what it costs") if happens(0.3) else card
        joined = last.transition_to(chat_state="Ask to confirm")
        how.transition_to(state=joined, condition=CASH)
        confirm: State | None = joined
        last = joined
    elif happens(0.85):
        confirm = last = last.transition_to(chat_state="Ask to confirm")
    else:
        confirm = None
    action = last = last.transition_to(tool_state=act, save_as="ref" if happens(0.7) else None, repeat=False)
    if happens(0.3):
        action.transition_to(chat_state="Say that it failed", on_error=True)
    report: State | None = None
    if happens(0.8):
        report = last = last.transition_to(chat_state="Report it")
        if happens(0.4):
            report.transition_to(state=asks[0], condition=MORE)
    if happens(0.7):
        last.transition_to(state=END_ROUTE)
    return Service(route, action, confirm, report, how, {state.id: at for at, state in enumerate(route.states)})


@functools.lru_cache(maxsize=4)
def build_agent(seed: int) -> tuple[Agent, Mapping[str, Service]]:
    """Build an agent with two services."""
    random = Random(seed)
    found = [build_service(random, number) for number in (1, 2)]
    return Agent("Clerk", routes=[each.route for each in found]), {each.route.id: each for each in found}


@dataclass(frozen=True)
class Say:
    """A message of the user: its kind, and its reading."""

    kind: str
    reading: Interpretation = Interpretation()
    approves: bool | None = None


class User:
    """Chooses the next message at random, from what the agent does now. The readings are right, or with `noise` such
    as a careless model would return."""

    def __init__(self, random: Random, services: Mapping[str, Service], noise: float) -> None:
        self._random = random
        self._services = services
        self._noise = noise

    def next(self, result: MoveResult | None, session: SessionState) -> Say:
        choose = self._random.choice
        if session.pending_calls and self._random.random() < 0.5:
            return Say("decides", approves=self._random.random() < 0.7)
        route = None if result is None or result.ended else result.route
        if route is None or result is None or result.state is None:
            return choose([self._wish, self._wish, self._two_wishes, self._thanks, self._question, self._correct_old])(
                session
            )
        service = self._services[route.id]
        state = result.state
        options = [self._correct, self._question, self._switch, self._two_wishes, self._drop, self._careless_drop]
        options += [self._thanks, self._forget]
        if state.gather:
            options += [self._answer] * 12
        elif state is service.confirm:
            options += [self._yes] * 10 + [self._no] * 2
        elif state is service.report:
            options += [self._yes] * 4 + [self._another] * 4
        elif state.kind == "tool" and self._may_retry(state, session):
            options += [self._retry] * 5
        elif state.transitions:
            options += [self._choose_branch] * 8 if state.description == "Ask how to pay" else [self._yes] * 5
        if any(each.description == "Ask how to pay" for each in route.states):
            options += [self._choose_branch] * 2
        return choose(options)(session)

    def _may_retry(self, state: State, session: SessionState) -> bool:
        """Whether the reading is asked whether the user wants to try a tool again."""
        run = session.progress.runs.get(state.id)
        return state.id in session.progress.held or (run is not None and run.error is not None)

    def _values(self, names: tuple[str, ...]) -> dict[str, Any]:
        pick = self._random.choice
        values = {"day": pick(DAYS), "size": pick(SIZES), "items": [pick(ITEMS)], "account": pick(["A1", "A2"])}
        return {name: values[name] for name in names}

    def _some(self, id: str) -> dict[str, Any]:
        names = [name for name in self._services[id].route.gatherable if self._random.random() < 0.4]
        return self._values(tuple(names or ["day"]))

    def _current(self, session: SessionState) -> Service:
        assert session.current_route is not None
        return self._services[session.current_route.id]

    def _data(self, session: SessionState, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {self._current(session).route.id: values}

    def _scores(self, session: SessionState, **others: float) -> dict[str, float] | None:
        if self._random.random() < 0.5 and not others:
            return None
        current = {} if session.current_route is None else {session.current_route.id: 90.0}
        return {**current, **others}

    def _wish(self, session: SessionState) -> Say:
        id = self._random.choice([*self._services])
        values = self._some(id) if self._random.random() < 0.7 else {}
        return Say("wish", Interpretation({id: 95}, {id: values} if values else {}))

    def _two_wishes(self, session: SessionState) -> Say:
        first, second = self._random.sample([*self._services], 2)
        if session.current_route is not None:
            first = session.current_route.id
            second = next(id for id in self._services if id != first)
        values = {id: self._some(id) for id in (first, second) if self._random.random() < 0.7}
        return Say("two wishes", Interpretation({first: 92, second: 90}, values, answered=False))

    def _switch(self, session: SessionState) -> Say:
        id = next(id for id in self._services if id != self._current(session).route.id)
        values = {id: self._some(id)} if self._random.random() < 0.6 else {}
        return Say("switch", Interpretation({id: 95, self._current(session).route.id: 10}, values, answered=False))

    def _thanks(self, session: SessionState) -> Say:
        answered = False if session.current_route is not None else None
        return Say("thanks", Interpretation(self._scores(session), answered=answered))

    def _question(self, session: SessionState) -> Say:
        noisy = self._random.random() < self._noise
        scores = self._scores(session)
        if session.current_route is None:  # about something that was done
            scores = {self._random.choice([*self._services]): 80 if noisy else 20}
        return Say("question", Interpretation(scores, answered=noisy, only_asks=True))

    def _answer(self, session: SessionState) -> Say:
        service = self._current(session)
        state = None if session.current_state is None else service.route.state(session.current_state.id)
        names = () if state is None else tuple(name for name in state.gather if name not in session.extracted)
        values = self._values(names or ("day",))
        if self._random.random() < 0.3:
            values = {**self._some(service.route.id), **values}
        return Say("answer", Interpretation(self._scores(session), self._data(session, values)))

    def _correct(self, session: SessionState) -> Say:
        gatherable = self._current(session).route.gatherable
        known = [name for name in gatherable if name in session.extracted and name != "items"]
        values = self._values((self._random.choice(known),) if known else ("day",))
        return Say("correction", Interpretation(self._scores(session), self._data(session, values), answered=False))

    def _correct_old(self, session: SessionState) -> Say:
        if not session.completed_routes:
            return self._thanks(session)
        id = self._random.choice([*session.completed_routes])
        conditions = frozenset([change_condition(self._services[id].route)])
        return Say("correction of a completed route", Interpretation({}, {id: self._values(("day",))}, {}, conditions))

    def _forget(self, session: SessionState) -> Say:
        gatherable = self._current(session).route.gatherable
        known = [name for name in gatherable if name in session.extracted and name != "items"]
        if not known:
            return self._thanks(session)
        forgotten = {self._current(session).route.id: (self._random.choice(known),)}
        return Say("forget", Interpretation(self._scores(session), {}, forgotten, answered=False))

    def _yes(self, session: SessionState) -> Say:
        return Say("yes", Interpretation(self._scores(session), answered=True))

    def _no(self, session: SessionState) -> Say:
        return Say("no", Interpretation(self._scores(session), answered=False))

    def _another(self, session: SessionState) -> Say:
        values = self._some(self._current(session).route.id) if self._random.random() < 0.6 else {}
        reading = Interpretation(
            self._scores(session), self._data(session, values) if values else {}, {}, frozenset([MORE]), answered=False
        )
        return Say("another", reading)

    def _choose_branch(self, session: SessionState) -> Say:
        condition = self._random.choice([CARD, CASH])
        return Say("branch", Interpretation(self._scores(session), {}, {}, frozenset([condition]), answered=False))

    def _retry(self, session: SessionState) -> Say:
        conditions = frozenset([retry_condition(self._current(session).action)])
        return Say("retry", Interpretation(self._scores(session), {}, {}, conditions, answered=False))

    def _drop(self, session: SessionState) -> Say:
        conditions = frozenset([drop_condition(self._current(session).route)])
        return Say("drop", Interpretation(self._scores(session), {}, {}, conditions, answered=False))

    def _careless_drop(self, session: SessionState) -> Say:
        """A reading that contradicts itself: the route is dropped, and gets new values."""
        if self._random.random() >= self._noise:
            return self._drop(session)
        known = session.extracted
        fresh = {"day": next(day for day in DAYS if day != known.get("day"))}
        conditions = frozenset([drop_condition(self._current(session).route)])
        reading = Interpretation(self._scores(session), self._data(session, fresh), {}, conditions, answered=False)
        return Say("careless drop", reading)


class Conversation:
    """A conversation in the simulated world; `take_turn` checks every promise."""

    def __init__(self, seed: int, *, noise: float = 0.5) -> None:
        random = Random(seed)
        self.agent, self.services = build_agent(seed // USERS_PER_AGENT)
        self.routes = self.agent.routes_by_id
        self.world = World(random)
        self.user = User(random, self.services, noise)
        self.session = create_session("web")
        self.result: MoveResult | None = None
        self.done_in_pass: dict[str, list[tuple[str, dict[str, Any]]]] = {id: [] for id in self.services}
        self.log: list[str] = []

    def take_turn(self) -> None:
        """Let the user say something, move, and compare."""
        said = self.user.next(self.result, self.session)
        before, result_before = self.session, self.result
        attempts_before = len(self.world.attempts)
        moved = self._move(said)
        self.session, self.result = moved.session, moved
        attempts = self.world.attempts[attempts_before:]
        state = None if moved.state is None else moved.state.description or moved.state.title
        self.log.append(f"{said.kind}: {said.reading.data} {attempts} -> {moved.route and moved.route.title}, {state}")
        self._end_passes(said, before, moved)
        self._check_actions(said, before, result_before, attempts)
        self._check_values(said, before, moved)
        self._check_pass(said, before, result_before, moved)
        self._check_direction(said, result_before, moved)
        self._check_wishes(said, before, moved)
        self._check_prompt(said, moved)

    def _move(self, said: Say) -> MoveResult:
        decides = said.approves is not None
        walk = move(self.routes, self.session, said.reading, NOW, after_decision=decides)
        is_decision = decides
        try:
            request = next(walk)
            while True:
                outcome = self.world.run(request, decided=is_decision, denied=is_decision and said.approves is False)
                is_decision = False
                request = walk.send(outcome)
        except StopIteration as stop:
            result: MoveResult = stop.value
            return result

    def _check_actions(
        self,
        said: Say,
        before: SessionState,
        shown: MoveResult | None,
        attempts: list[tuple[str, dict[str, Any], bool]],
    ) -> None:
        """One confirmation leads to exactly one action, with the values that the user saw."""
        expected = self._expect_action(said, before, shown)
        wanted = [] if expected is None else [expected]
        tried = [(name, arguments) for name, arguments, _ in attempts]
        if (
            expected is not None
            and expected not in tried
            and (self._waits_for(expected) or expected in self.done_in_pass[self._service_of(expected[0]).route.id])
        ):
            wanted = []  # it runs when it is approved, or it was done with these values before
        if any(service.confirm is None for service in self.services.values()):
            # Without a confirmation, stating the values is the consent. Each pass acts at most once.
            tried = [each for each in tried if self._service_of(each[0]).confirm is not None]
            wanted = [each for each in wanted if self._service_of(each[0]).confirm is not None]
        for name, arguments, was_done in attempts:
            if was_done:
                self.done_in_pass[self._service_of(name).route.id].append((name, arguments))
        if tried != wanted:
            raise BrokenPromise(f"the user confirmed {wanted}, but the agent did {tried}")

    def _service_of(self, name: str) -> Service:
        return next(each for each in self.services.values() if each.action.tool and each.action.tool.name == name)

    def _expect_action(
        self, said: Say, before: SessionState, shown: MoveResult | None
    ) -> tuple[str, dict[str, Any]] | None:
        if said.approves:
            [pending] = before.pending_calls
            return pending.call.name, dict(pending.call.input)
        if said.approves is False:  # the world refuses it: an attempt that is not done
            [pending] = before.pending_calls
            return pending.call.name, dict(pending.call.input)
        if shown is None or shown.state is None or shown.route is None or before.current_route is None:
            return None
        service = self.services[shown.route.id]
        assert service.action.tool is not None
        arguments = {name: before.extracted[name] for name in service.needs if name in before.extracted}
        call = (service.action.tool.name, arguments)
        waits = bool(before.pending_calls)
        if said.kind == "yes" and shown.state is service.confirm:
            return call
        if said.kind == "retry" and shown.state is service.action and not waits:
            return call
        return None

    def _waits_for(self, call: tuple[str, dict[str, Any]]) -> bool:
        return any((each.call.name, dict(each.call.input)) == call for each in self.session.pending_calls)

    def _end_passes(self, said: Say, before: SessionState, moved: MoveResult) -> None:
        """Forget what was done in passes that this message has ended."""
        current = None if before.current_route is None else before.current_route.id
        is_dropped = said.kind == "drop" and current not in moved.session.completed_routes
        if current is not None and (is_dropped or (said.kind == "another" and self._loops(before))):
            self.done_in_pass[current] = []
        for id, paused in before.completed_routes.items():
            is_changed = said.kind == "correction of a completed route" or bool(paused.changed)
            if id not in moved.session.completed_routes and not is_changed:
                self.done_in_pass[id] = []

    def _loops(self, before: SessionState) -> bool:
        """Whether the session is at a state from which the user may ask for another pass."""
        service = self.services[before.current_route.id] if before.current_route is not None else None
        state = before.current_state
        if service is None or state is None or service.report is None or state.id != service.report.id:
            return False
        return any(each.condition == MORE for each in service.report.transitions)

    def _check_pass(self, said: Say, before: SessionState, shown: MoveResult | None, moved: MoveResult) -> None:
        """Each pass has its own data, and lists grow; a branch is the one that the user chose last."""
        id = None if shown is None or shown.route is None or before.current_route is None else shown.route.id
        data = {} if id is None else get_route_data(moved.session, id)
        if id is not None and said.kind == "another" and self._loops(before):
            stated = said.reading.data.get(id, {})
            inherited = [name for name in ("day", "size", "account") if name in data and name not in stated]
            if inherited:
                raise BrokenPromise(f"the next pass has {inherited} of the last one")
        is_kept = id is not None and said.kind != "drop" and find_unfinished(moved.session, id) is not None
        lost = [item for item in before.extracted.get("items", ()) if item not in data.get("items", ())]
        if is_kept and lost:
            raise BrokenPromise(f"the list has lost {lost}")
        service = None if id is None else self.services[id]
        if (
            service is not None
            and said.kind == "branch"
            and service.branch is not None
            and moved.route is service.route
        ):
            [condition] = said.reading.true_conditions
            progress, branch = moved.session.progress, service.branch.id
            was_passed = branch in before.progress.path and branch in progress.path
            if was_passed and moved.state is not service.branch and progress.choices.get(branch) != condition:
                raise BrokenPromise(f"the user said {condition!r}, but the branch is {progress.choices}")
        if moved.state is not None and moved.state.gather and not moved.missing:
            raise BrokenPromise(f"{moved.state.title} asks for nothing")

    def _check_values(self, said: Say, before: SessionState, moved: MoveResult) -> None:
        """Every stated value is stored, or listed with a reason."""
        listed = {(each.route_id, each.field) for each in moved.rejected}
        for id, stated in said.reading.data.items():
            known = get_route_data(moved.session, id)
            for name, value in stated.items():
                is_known = (
                    all(item in known.get(name, ()) for item in value)
                    if name == "items"
                    else (known.get(name) == value)
                )
                if not is_known and (id, name) not in listed:
                    raise BrokenPromise(f"{name}={value!r} was stated and lost; known: {dict(known)}")
        failed = any(run.error is not None for _, run in moved.tool_runs)
        if said.kind == "correction of a completed route" and not failed:
            [id] = said.reading.data
            known, old = get_route_data(moved.session, id), before.completed_routes[id].extracted
            if any(known.get(name) != old.get(name) for name in ("size", "account")):
                raise BrokenPromise(f"the correction lost values: {dict(old)} became {dict(known)}")
        entered = None if before.current_route is not None or moved.route is None else moved.route.id
        if said.kind == "question" and entered in before.completed_routes:
            raise BrokenPromise("a question began a completed route once more")
        if said.kind == "careless drop" and not moved.ignored:
            raise BrokenPromise("a contradictory reading dropped the route")

    def _check_direction(self, said: Say, shown: MoveResult | None, moved: MoveResult) -> None:
        """The flow goes back only for a reason."""
        if shown is None or shown.state is None or shown.route is None or moved.state is None:
            return
        if moved.route is not shown.route or moved.completed:
            return
        order = self.services[shown.route.id].order
        goes_back = order[moved.state.id] < order[shown.state.id]
        failed = any(run.error is not None for _, run in moved.tool_runs)
        neutral = said.kind in ("thanks", "question", "yes", "no", "decides", "retry")
        if goes_back and not failed and (neutral or not moved.went_back):
            raise BrokenPromise(f"{said.kind} led back from {shown.state.title} to {moved.state.title}")

    def _check_wishes(self, said: Say, before: SessionState, moved: MoveResult) -> None:
        """A second wish waits, and is resumed when the first one ends."""
        session = moved.session
        if said.kind == "two wishes":
            first, second = said.reading.scores or {}
            ids = {*session.paused_routes, *session.completed_routes}
            ids |= set() if session.current_route is None else {session.current_route.id}
            ids |= {each.id for each in moved.completed}
            if not {first, second} <= ids:
                raise BrokenPromise(f"of {first} and {second}, only {ids} are known")
        if session.waiting_routes and session.current_route is None:
            raise BrokenPromise("no route is in progress, although one waits")

    def _check_prompt(self, said: Say, moved: MoveResult) -> None:
        """A result is reported only with the arguments that it was produced from, and with no others."""
        prompt = render_reply_prompt(self.agent, moved, said.reading, [], ({}, {}), None, {}).instructions
        for name, arguments, reference in _REPORT.findall(prompt):
            if self.world.results.get(reference) != (name, json.loads(arguments)):
                raise BrokenPromise(f"the prompt reports {name}({arguments}) = {reference}")
        if moved.route is None:
            return
        data = moved.session.extracted
        for field_name in ("ref", "slots"):
            reference = data.get(field_name)
            if reference is None:
                continue
            _, arguments = self.world.results[reference]
            current = {name: data.get(name) for name in arguments}
            if arguments != current:
                raise BrokenPromise(f"{field_name}={reference} was made with {arguments}, but known is {current}")
        rest = _REPORT.sub("", prompt)
        known = {str(value) for value in data.values()}
        known |= {str(value) for each in moved.session.completed_routes.values() for value in each.extracted.values()}
        for reference in _REFERENCE.findall(rest):
            if reference not in known:
                raise BrokenPromise(f"the prompt mentions {reference} without its arguments")


def play(seed: int, *, noise: float = 0.5, turns: int = 12) -> None:
    """Play one conversation; the error of a broken promise contains the seed and the turns."""
    conversation = Conversation(seed, noise=noise)
    try:
        for _ in range(turns):
            conversation.take_turn()
    except BrokenPromise as problem:
        routes = "\n".join(route.describe() for route in conversation.routes.values())
        log = "\n".join(conversation.log)
        raise BrokenPromise(f"seed {seed}: {problem}\n{routes}\n{log}") from None
