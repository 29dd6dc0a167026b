"""bench/flow_quality.py: a perfect model makes every turn right, and each planted error is counted."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tellback.agent import create_session
from tellback.chat.model import ChatRequest
from tellback.testing import FunctionModel, answers, raises, says, understands
from tellback.testing.nlu import parse_understanding_request
from tellback.types import message_text
from tests.unit.bench.module_loader import import_bench_module

dialogues = import_bench_module("flow_dialogues")
flow_quality = import_bench_module("flow_quality")

BOOK, WEATHER, INTAKE, REFUND = "Book a flight", "Tell the weather", "Intake", "Refund an order"
ACCEPTS_OFFER = "the user takes a flight that was offered"
CHANGES_BOOKING = "the user wants to change what was done: Book a flight"
DROPS_REFUND = "the user no longer wants this: Refund an order"

Reading = dict[str, Any]
WELL = says("Well.")
READINGS: dict[str, list[Reading]] = {
    "flight_booking": [
        {},
        {"route": BOOK, "destination": "Rome", "departure": "2026-12-01", "passengers": 2},
        {"route": BOOK},
        {"route": BOOK, "passengers": 2},
        {"route": BOOK, "destination": "Oslo"},
        {"route": WEATHER},
        {"scores": {WEATHER: 60, BOOK: 85}, "city": "Oslo"},
        {"route": BOOK, "holds": [ACCEPTS_OFFER]},
        {},
        {"route": BOOK, "passengers": 3, "holds": [CHANGES_BOOKING]},
    ],
    "onboarding": [
        {},
        {"name": "Maya", "kind": "business"},
        {},
        {},
        {"company": "Tascas & Co", "phone": "0151 2345678"},
        {"phone": "0151 2345679", "answered": False},
        {"answered": False},
        {"kind": "personal"},
        {"birthday": "2002-05-17"},
        {"answered": True},
    ],
    "clinic_intake": [
        {"route": INTAKE},
        {"route": INTAKE, "name": "Omar Said", "birthday": "1961-07-01"},
        {"route": INTAKE},
        {"route": INTAKE},
        {"route": INTAKE, "complaint": "left knee hurts", "pain": 12},
        {"route": INTAKE, "complaint": "right knee hurts", "pain": 8},
        {"route": INTAKE, "answered": False},
        {"route": INTAKE, "birthday": "1961-07-02", "answered": False},
        {"route": INTAKE, "answered": True},
        {"route": "Emergency"},
    ],
    "support_refunds": [
        {},
        {"route": REFUND},
        {"order": "A-100"},
        {},
        {"reason": "stopped working"},
        {},
        {"route": REFUND, "order": "A-200", "reason": "came too late"},
        {},
        {"holds": [DROPS_REFUND]},
        {},
    ],
}


class ReadingModel(FunctionModel):
    """A model that reads each message as given by READINGS or `changes`, and always sends the same reply."""

    def __init__(self, example: str, changes: dict[int, Reading] | None = None, reply: Any = WELL) -> None:
        super().__init__(self._answer)
        (dialogue,) = (each for each in dialogues.DIALOGUES if each.example == example)
        readings = dict(enumerate(READINGS[example], 1)) | (changes or {})
        self._readings = {turn.text: readings[number] for number, turn in enumerate(dialogue.turns, 1)}
        self._reply = reply

    def _answer(self, request: ChatRequest) -> Any:
        understanding = parse_understanding_request(request)
        if understanding is None:
            is_choice = request.output_schema is not None
            return answers({"answer": "r1"}) if is_choice else self._reply
        newest = message_text(request.messages[0]).rpartition("Newest message: ")[2]
        reading = dict(self._readings[json.loads(newest)])
        if "routes" not in understanding.parts:
            reading.pop("route", None)
        return understands(**reading)(request)


async def play(example: str, changes: dict[int, Reading] | None = None, reply: Any = WELL) -> list[Any]:
    (dialogue,) = (each for each in dialogues.DIALOGUES if each.example == example)
    records: list[Any] = await flow_quality.play(dialogue, ReadingModel(example, changes, reply))
    return records


class StubAgent:
    """An agent that returns given replies, and runs a tool before some of them."""

    def __init__(self, recorder: Any, replies: list[str], runs: dict[int, Any]) -> None:
        self.routes = ()
        self._recorder = recorder
        self._replies = replies
        self._runs = runs

    async def respond(self, history: list[Any], session: Any) -> Any:
        number = sum(each["role"] == "user" for each in history)
        self._recorder.runs += [self._runs[number]] if number in self._runs else []
        trace = SimpleNamespace(
            model_calls=2, route="", scores={}, walked=(), conditions=(), rejected=(), problems=(), calls=()
        )
        return SimpleNamespace(
            message=self._replies[number - 1],
            session=create_session(),
            trace=trace,
            **dict.fromkeys(("state",)),
            **dict.fromkeys(("asks", "pending", "problems", "tool_calls"), ()),
        )


@pytest.mark.parametrize("example", READINGS)
async def test_correct_readings_make_every_turn_right(example: str) -> None:
    records = await play(example)
    assert [flow_quality.format_turn(each) for each in records if not each.is_right] == []
    totals = flow_quality.count(records)
    assert totals["turns"] == totals["right"] == 10
    assert not any(
        totals[name]
        for name in ("missing", "wrong", "asked again", "contradictions", "no consent", "twice", "failures")
    )


async def test_a_wrong_value_is_counted_once_and_makes_all_turns_wrong_until_it_is_corrected() -> None:
    records = await play("onboarding", {2: {"name": "Maya", "kind": "personal"}, 8: {}})
    assert [each.wrong for each in records] == [[], ["kind"], *[[]] * 8]
    assert [each.is_right for each in records[:7]] == [True, *[False] * 6]


async def test_a_missing_value_is_counted_and_so_is_the_question_for_it() -> None:
    records = await play("onboarding", {2: {"kind": "business"}})
    assert (records[1].missing, records[1].asked_again) == (["name"], ["name"])
    assert records[2].missing == []
    assert "asked again: name" in flow_quality.format_turn(records[2])


async def test_a_wrong_route_makes_a_turn_wrong() -> None:
    records = await play("flight_booking", {1: {"route": WEATHER}})
    assert not records[0].is_right
    assert "route: Tell the weather, not None" in flow_quality.format_turn(records[0])


async def test_a_route_that_is_left_is_not_completed() -> None:
    records = await play("support_refunds", {5: {"holds": [DROPS_REFUND]}})
    assert not records[4].is_right
    assert (records[4].route, records[4].is_completed) == (None, False)


async def test_a_reply_must_not_say_that_the_flight_is_booked_before_it_is() -> None:
    records = await play("flight_booking", reply=says("Great! Your flight is booked. Anything else?"))
    assert [len(each.contradictions) for each in records] == [1, 1, 1, 1, 1, 1, 1, 0, 0, 0]


async def test_an_exception_is_a_failure_and_the_user_goes_on() -> None:
    records = await play("onboarding", reply=raises(TimeoutError("too slow")))
    assert all("too slow" in each.failure for each in records)
    assert flow_quality.count(records)["failures"] == 10


async def test_actions_without_consent_and_repeated_actions_are_counted() -> None:
    booking = ("book_flight", {"destination": "Oslo", "passengers": 2})
    other = ("book_flight", {"destination": "Rome", "passengers": 2})
    recorder = flow_quality.ToolRecorder(())
    agent = StubAgent(recorder, ["Fine."] * 9 + ["  "], {2: other, 8: booking, 9: booking, 10: other})
    records = await flow_quality.Conversation(dialogues.FLIGHT, agent, recorder).run(None)
    assert [each.number for each in records if each.no_consent] == [2]
    assert [each.number for each in records if each.twice] == [9, 10]
    assert [each.number for each in records if each.failure] == [10]
    totals = flow_quality.count(records)
    assert (totals["no consent"], totals["twice"], totals["failures"], totals["model calls"]) == (1, 2, 1, 20)


def test_the_user_can_withdraw_what_was_agreed() -> None:
    ledger = flow_quality.ConsentLedger()
    agreed = dialogues.Action("pay_back", {"order": "A-100"})
    run = ("pay_back", {"order": "A-100", "amount": 12})
    ledger.add_turn(dialogues.UserTurn("Pay it back", None, agrees_to=agreed))
    ledger.add_turn(dialogues.UserTurn("No, wait", None, withdraws=True))
    assert ledger.check([run]) == ([run], [])
    ledger.add_turn(dialogues.UserTurn("Pay it back after all", None, agrees_to=agreed))
    assert ledger.check([run, run]) == ([], [run])


def test_runs_of_tools_are_recorded() -> None:
    module = flow_quality.load_example("support_refunds")
    recorder = flow_quality.ToolRecorder(dialogues.REFUNDS.tools)
    recorder.install(module)
    module.build()
    module.pay_back(order="A-100", amount=12)
    module.pay_back_much.fn(order="A-200", amount=480, reason="late")
    assert [name for name, _ in recorder.runs] == ["pay_back", "pay_back_much"]


REFUNDED = [("pay_back", {"order": "A-100", "amount": 12})]


@pytest.mark.parametrize(
    ("example", "reply", "runs", "is_pending"),
    [
        ("REFUNDS", "Your order has been refunded.", [], False),
        ("REFUNDS", "Your refund of 12 euros is on its way.", REFUNDED, True),
        ("REFUNDS", "A-200 was refunded.", REFUNDED, False),
        ("REFUNDS", "You get 75 euros.", [], False),
        ("REFUNDS", "I look at A-300.", [], False),
        ("ONBOARDING", "Welcome, Maya! All is set up.", [], False),
        ("ONBOARDING", "Your personal account is free.", [], False),
        ("ONBOARDING", "I noted 18 May 2002 as your birthday.", [], False),
        ("FLIGHT", "I found a flight to Rome on 2026-12-01.", [], False),
        ("FLIGHT", "Two seats are left.", [], False),
        ("FLIGHT", "You leave on December 2nd.", [], False),
        ("CLINIC", "I noted: knee, pain 7 of 10.", [], False),
    ],
)
def test_a_reply_that_contradicts_the_session_is_found(
    example: str, reply: str, runs: list[Any], is_pending: bool
) -> None:
    assert len(find(example, reply, runs, is_pending)) == 1


@pytest.mark.parametrize(
    ("example", "reply", "runs"),
    [
        ("REFUNDS", "Your order A-100 has been refunded.", REFUNDED),
        ("REFUNDS", "It has not been refunded yet. It will be paid back once a colleague agrees.", []),
        ("REFUNDS", "Was it refunded?", []),
        ("REFUNDS", "A-200 costs 480 euros.", []),
        ("ONBOARDING", "I can\u2019t say whether the account was opened.", []),
        ("ONBOARDING", "Is it a personal or a business account?", []),
        ("ONBOARDING", "I noted 17 May 2002. A date such as 1990-12-31 helps.", []),
        ("FLIGHT", "I changed the flight from Rome to Oslo for three passengers, on 1 December.", []),
        ("FLIGHT", "Welcome to Wanda. Shall I book it?", []),
        ("CLINIC", "How strong is the pain, from 0 (none) to 10?", []),
    ],
)
def test_a_reply_that_may_be_true_is_no_contradiction(example: str, reply: str, runs: list[Any]) -> None:
    assert find(example, reply, runs) == []


def find(example: str, reply: str, runs: list[Any], is_pending: bool = False) -> list[str]:
    data = {
        "REFUNDS": {"order": "A-200", "reason": "late"},
        "ONBOARDING": {"name": "Maya", "kind": "business", "birthday": date(2002, 5, 17)},
        "FLIGHT": {"destination": "Oslo", "departure": date(2026, 12, 1), "passengers": 3},
        "CLINIC": {"complaint": "knee", "pain": 8},
    }[example]
    found: list[str] = flow_quality.find_contradictions(
        getattr(dialogues, example),
        reply,
        data,
        replaced={"destination": {"Rome"}},
        runs=runs,
        is_pending=is_pending,
        sources="A-100, A-200: 12, 480",
    )
    return found


async def test_the_table_can_be_printed_from_the_details(tmp_path: Path) -> None:
    records = await play("clinic_intake")
    details = tmp_path / "details.jsonl"
    details.write_text("".join(json.dumps(asdict(each)) + "\n" for each in records))
    table = flow_quality.format_table(flow_quality.read_records(details))
    assert table == flow_quality.format_table(records)
    assert table.splitlines()[-1].split()[:3] == ["all", "10", "10"]
