"""The agent examples run without configuration, and with a provider's key."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.testing import FlowModel, SimulatedUser, simulate
from tests.integration.chat.providers.vendors import Anthropic
from tests.integration.test_examples import EXAMPLES, run, run_in_subprocess
from tests.support.fake_http_server import FakeHttpServer, Reply, Request

KINDS = st.lists(st.sampled_from(["personal", "business"]), min_size=1, max_size=4)
ORDERS = st.lists(st.sampled_from(["A-100", "A-200", "A-999"]), min_size=1, max_size=4)
EMPTY_READING = json.dumps({"routes": [], "data": [], "forget": [], "conditions": []})


async def test_a_flight_is_booked_with_a_correction_and_a_detour() -> None:
    code, output = await run("flight_booking.py")
    assert code == 0, output
    assert "stand-in" in output
    for line in (
        "> I want to fly to Rome\nWhen do you fly to Rome, and how many are you?",
        "I found: TP1 to Oslo on 2026-12-01 at 124 euros",
        "[Book a flight: Offer the flights found; ran search_flights; model calls: 2]\n> How is the weather",
        "In Oslo it is 18 degrees and clear.",
        "[Book a flight: Offer the flights found; model calls: 2]",
        "Booked: 2 seats to Oslo, code R2D2.",
        "flowchart TD",
    ):
        assert line in output
    assert output.count("ran book_flight") == 1


async def test_a_large_refund_waits_for_approval() -> None:
    code, output = await run("support_refunds.py")
    assert code == 0, output
    assert "Traceback" not in output
    for line in (
        "[Refund an order: completed; ran look_up; ran pay_back; model calls: 2]",
        "I cannot find A-999.",
        "> Any news?\nA colleague has to agree to 480 euros.",
        "[a person approves pay_back_much{'order': 'A-200', 'amount': 480, 'reason': 'broken'}]\nYour refund of 480",
        "I am sorry: the refund for A-200 was denied.",
    ):
        assert line in output


async def test_a_corrected_answer_changes_the_branch() -> None:
    code, output = await run("onboarding.py")
    assert code == 0, output
    assert "> Wait, it should be personal\nWhen were you born, Maya?" in output
    assert output.rstrip().endswith("personal account of Maya opened for Maya")


async def test_a_strict_clinic_sends_only_canned_responses() -> None:
    code, output = await run("clinic_intake.py")
    assert code == 0, output
    assert "You are in good hands, Maya Lima. What brings you here?" in output
    assert output.count("How strong is the pain, from 0 (none) to 10?") == 2
    assert "Thank you, Maya Lima. The doctor will call you." in output
    assert output.rstrip().splitlines()[-2].startswith("Please go to the emergency room at once")
    assert "model calls: 2" not in output


async def test_a_session_continues_in_the_next_process_until_it_is_completed(tmp_path: Path) -> None:
    path = str(tmp_path / "sessions.db")
    code, first = await run("sessions.py", path)
    assert code == 0, first
    assert "0 turns so far]\n> I want to send a parcel to Lisbon\nTo Lisbon: how heavy is it, and when" in first
    assert "[stored: version 1, active, 2 messages, gathered {'city': 'Lisbon'}]" in first
    code, second = await run("sessions.py", path)
    assert code == 0, second
    assert "1 turns so far]\n> 3 kilos" in second
    assert "Please write LIS-03-1201 on it. It is fetched on 2026-12-01." in second
    assert "[stored: version 2, completed, 4 messages" in second
    assert second.rstrip().endswith(
        "4 agent: Please write LIS-03-1201 on it. It is fetched on 2026-12-01. [ran print_label]"
    )
    code, third = await run("sessions.py", path)
    assert code == 0, third
    assert "0 turns so far]" in third
    assert "[stored: version 1, active" in third
    code, output = await run("sessions.py", str(tmp_path / "missing" / "sessions.db"))
    assert code == 1
    assert "StoreUnavailableError" in output
    assert "Traceback" not in output


async def test_an_order_is_changed_after_it_was_placed() -> None:
    code, output = await run("restaurant_order.py")
    assert code == 0, output
    assert "stand-in" in output
    for line in (
        "So far: 3 large margherita; 2 normal cola; anything else?\n",
        "> Is all of it vegetarian?\nSo far: 3 large margherita; 2 normal cola; anything else?\n",
        "3 large margherita, 2 cola: 42 euros, ready for pickup at 19:00:00. Is that right?",
        "[Order food: completed; ran place_order; model calls: 2]\n> How long does it usually take?\n",
        "> Could you make it 19:30?\n3 large margherita, 2 cola: 42 euros, ready for pickup at 19:30:00.",
        "[Reserve a table: completed; ran reserve_table; model calls: 2]",
    ):
        assert line in output
    assert output.count("ran place_order") == 2
    assert output.count("'number': 'P-1'") == 2


@pytest.mark.parametrize(("program", "turns"), [("flight_booking.py", 6), ("restaurant_order.py", 11)])
async def test_with_a_key_the_provider_understands_and_replies(program: str, turns: int) -> None:
    def answer(request: Request) -> Reply:
        return Anthropic().response(EMPTY_READING if "output_config" in request.body else "All is well.")

    async with FakeHttpServer(answer) as wire:
        code, output = await run_in_subprocess(program, ANTHROPIC_API_KEY="key", ANTHROPIC_BASE_URL=wire.url)
    assert code == 0, output
    assert "claude-sonnet-5" in output
    assert output.count("All is well.") == turns
    assert ["output_config" in request.body for request in wire.requests] == [True, False] * turns


@pytest.fixture(scope="module")
def examples_on_path() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


def drop_repeats(values: list[Any]) -> list[Any]:
    """Remove values that repeat the previous one."""
    return [value for value, _ in groupby(values)]


@pytest.mark.usefixtures("examples_on_path")
@given(kinds=KINDS, eager=st.integers(0, 5), facts=st.permutations(["name", "kind", "company", "birthday", "phone"]))
@settings(max_examples=40, deadline=None)
def test_an_account_is_opened_with_the_last_stated_kind(kinds: list[str], eager: int, facts: list[str]) -> None:
    onboarding = importlib.import_module("onboarding")
    first, *later = drop_repeats(kinds)
    known = {"name": "Maya", "kind": first, "company": "Tascas", "birthday": "2001-05-17", "phone": "1234"}
    user = SimulatedUser("Hello", {name: known[name] for name in facts}, changes={"kind": later}, eager=eager)
    simulation = asyncio.run(simulate(onboarding.build().with_model(FlowModel()), user))
    assert simulation.outcome == "completed", str(simulation)
    [tool_run] = simulation.session.progress.runs.values()
    assert tool_run.arguments == onboarding.account_arguments({**known, "kind": kinds[-1]}), str(simulation)


@pytest.mark.usefixtures("examples_on_path")
@given(orders=ORDERS, eager=st.integers(0, 2), approve=st.sampled_from([True, False, None]))
@settings(max_examples=40, deadline=None)
def test_corrections_never_cause_a_second_payment(orders: list[str], eager: int, approve: bool | None) -> None:
    refunds = importlib.import_module("support_refunds")
    first, *later = drop_repeats(orders)
    user = SimulatedUser("A refund", {"order": first, "reason": "broken"}, changes={"order": later}, eager=eager)
    simulation = asyncio.run(simulate(refunds.build().with_model(FlowModel()), user, approve=approve))
    tool_calls = [call for each in simulation.exchanges for call in each.response.tool_calls if not call.is_error]
    payments = [call for call in tool_calls if call.name.startswith("pay_back")]
    assert len(payments) <= 1, str(simulation)
    assert all(approve for call in payments if call.name == "pay_back_much"), str(simulation)
    assert all(call.arguments["amount"] == refunds.ORDERS[call.arguments["order"]] for call in payments)
