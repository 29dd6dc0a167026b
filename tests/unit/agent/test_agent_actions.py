"""Actions of a flow: each confirmation leads to one action, and a prompt reports only what was done."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tellback.agent import END_ROUTE, Agent, Route
from tellback.errors import ChatError
from tellback.testing import Dialogue, raises, says, understands
from tellback.tools import tool


@dataclass
class Clinic:
    """An agent that books days, and the days that were really booked."""

    agent: Agent = field(default_factory=lambda: Agent("Clinic"))
    booked: list[str] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def find_slots(day: str) -> list[str]:
            """Find free slots."""
            self.looked_up.append(day)
            return [f"{day} 9:00"]

        def book(day: str) -> str:
            """Book a day."""
            self.booked.append(day)
            return f"R{len(self.booked)}"

        self.route = self.agent.create_route(
            "Book a visit",
            conditions=["the user wants a visit"],
            gather_schema={
                "type": "object",
                "properties": {"day": {"type": "string"}, "slots": {}, "ref": {"type": "string"}},
                "required": ["day"],
            },
        )
        (
            self.route.initial_state.transition_to(chat_state="Ask for the day", gather=["day"])
            .transition_to(tool_state=find_slots, save_as="slots")
            .transition_to(chat_state="Ask to confirm")
            .transition_to(tool_state=book, save_as="ref", repeat=False)
            .transition_to(chat_state="Tell the reference")
            .transition_to(state=END_ROUTE)
        )
        weather = self.agent.create_route("Tell the weather", conditions=["the user asks about the weather"])
        weather.initial_state.transition_to(chat_state="Tell the weather")

    async def book_monday(self) -> Dialogue:
        """Return a dialogue in which Monday has been booked."""
        dialogue = Dialogue(self.agent)
        await dialogue.says("Monday, please", understands(route=self.route, day="Monday"), says("Monday 9:00?"))
        assert self.booked == []
        await dialogue.says("Yes", understands(answered=True), says("Booked: R1"))
        dialogue.expect(state="Tell the reference", tools=["book"])
        assert self.booked == ["Monday"]
        return dialogue


def last_prompt(dialogue: Dialogue) -> str:
    """Return the prompt of the last reply."""
    return dialogue.last.trace.prompts[-1]


async def test_a_second_booking_needs_its_own_confirmation_and_is_really_made() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Another one on Friday", understands(route=clinic.route, day="Friday"), says("Friday 9:00?"))
    dialogue.expect(state="Ask to confirm", data={"day": "Friday", "ref": None})
    assert clinic.booked == ["Monday"]
    assert '"ref"' not in last_prompt(dialogue)
    assert "returned: R1" not in last_prompt(dialogue)
    await dialogue.says("Yes", understands(answered=True), says("Booked: R2"))
    assert clinic.booked == ["Monday", "Friday"]
    dialogue.expect(state="Tell the reference", data={"day": "Friday", "ref": "R2"})
    assert 'book({"day":"Friday"}) returned: R2' in last_prompt(dialogue)


async def test_a_corrected_booking_is_confirmed_again_and_its_old_result_is_marked() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Make it Tuesday", understands(day="Tuesday"), says("Tuesday 9:00?"))
    dialogue.expect(state="Ask to confirm", data={"day": "Tuesday", "ref": None})
    assert 'book({"day":"Monday"}) was done, and stays done' in last_prompt(dialogue)
    await dialogue.says("No, leave it", understands(answered=False), says("Monday stays"))
    assert clinic.booked == ["Monday"]
    await dialogue.says("Fine, Tuesday then: yes", understands(answered=True), says("R2"))
    assert clinic.booked == ["Monday", "Tuesday"]
    dialogue.expect(data={"day": "Tuesday", "ref": "R2"})


async def test_a_booking_after_leaving_the_route_is_made_anew() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says(
        "How is the weather?", understands(scores={"Tell the weather": 95, clinic.route: 0}), says("Sunny")
    )
    await dialogue.says(
        "Book Friday, too", understands(scores={clinic.route: 95}, data={"day": "Friday"}), says("Friday 9:00?")
    )
    dialogue.expect(state="Ask to confirm", data={"day": "Friday", "ref": None})
    await dialogue.says("Yes", understands(answered=True), says("R2"))
    assert clinic.booked == ["Monday", "Friday"]


@pytest.mark.parametrize("text", ["No, thanks", "Nope", "nein danke", "No, don't book it, please"])
async def test_a_refusal_books_nothing_even_if_it_is_read_as_an_answer(text: str) -> None:
    clinic = Clinic()
    dialogue = Dialogue(clinic.agent)
    await dialogue.says("Monday, please", understands(route=clinic.route, day="Monday"), says("Monday 9:00?"))
    await dialogue.says(text, understands(answered=True), says("Not booked"))
    assert clinic.booked == []
    dialogue.expect(state="Ask to confirm")
    assert "Agreement starts: book" in str(dialogue.last.trace.calls[0].messages[0].content)
    await dialogue.says("No problem, that is fine", understands(answered=True), says("R1"))
    assert clinic.booked == ["Monday"]


async def test_after_the_report_of_an_action_another_route_completes_this_one() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    weather = understands(scores={"Tell the weather": 95, clinic.route: 0})
    await dialogue.says("How is the weather?", weather, says("Sunny"))
    assert [each.title for each in dialogue.last.completed_routes] == ["Book a visit"]
    assert "Left unfinished" not in last_prompt(dialogue)


async def test_changing_back_to_a_booked_day_books_nothing() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Make it Tuesday", understands(day="Tuesday"), says("Tuesday 9:00?"))
    await dialogue.says("No, Monday was right", understands(day="Monday"), says("Then it stays Monday"))
    assert clinic.booked == ["Monday"]
    assert 'book({"day":"Monday"}) returned: R1' in last_prompt(dialogue)
    dialogue.expect(data={"day": "Monday", "ref": "R1"})


async def test_a_question_about_a_completed_action_does_not_run_it_again() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Thanks, bye", understands(answered=True), says("Bye"))
    dialogue.expect(completed=True)
    for words in ("How long", ""):
        reading = understands(route=clinic.route, day="Monday", words={"day": words})
        await dialogue.says("How long does it take?", reading, says("An hour"))
        assert dialogue.last.route is None
    await dialogue.says("Ok, great", understands(scores={clinic.route: 60}), says("See you"))
    assert clinic.booked == ["Monday"]


async def test_after_completion_a_correction_reopens_the_route_with_its_data() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Thanks, bye", understands(answered=True), says("Bye"))
    dialogue.expect(completed=True)
    await dialogue.says("Hm, is all set?", understands(scores={}), says("Yes: Monday, R1"))
    assert "returned: R1" in last_prompt(dialogue)
    assert '"day":"Monday"' in last_prompt(dialogue)
    await dialogue.says("Make it Tuesday", understands(scores={}, data={"day": "Tuesday"}), says("Tuesday 9:00?"))
    dialogue.expect(route=clinic.route, state="Ask to confirm", data={"day": "Tuesday"})
    assert clinic.booked == ["Monday"]
    await dialogue.says("Yes", understands(answered=True), says("R2"))
    assert clinic.booked == ["Monday", "Tuesday"]


@dataclass
class PaymentDesk:
    """An agent that pays bills after an approval, and the bills that were really paid."""

    agent: Agent = field(default_factory=lambda: Agent("Desk"))
    paid: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        @tool(requires_approval=True)
        def pay(bill: str) -> str:
            """Pay a bill."""
            self.paid.append(bill)
            return "paid"

        self.route: Route = self.agent.create_route(
            "Pay a bill", gather_schema={"type": "object", "properties": {"bill": {"type": "string"}}}
        )
        paying = (
            self.route.initial_state.transition_to(chat_state="Ask which bill", gather=["bill"])
            .transition_to(chat_state="Ask to confirm")
            .transition_to(tool_state=pay, repeat=False)
        )
        paying.transition_to(chat_state="Say it is paid").transition_to(state=END_ROUTE)
        paying.transition_to(chat_state="Say it was refused", on_error=True).transition_to(state=END_ROUTE)

    async def wait_for_approval(self) -> Dialogue:
        dialogue = Dialogue(self.agent)
        await dialogue.says("Pay B7", understands(bill="B7"), says("Really?"))
        await dialogue.says("Yes", understands(answered=True), says("A colleague must agree"))
        dialogue.expect(pending=["pay"])
        return dialogue


@pytest.mark.parametrize(("approved", "state"), [(True, "Say it is paid"), (False, "Say it was refused")])
async def test_after_a_decision_the_flow_goes_on_and_not_back(approved: bool, state: str) -> None:
    desk = PaymentDesk()
    dialogue = await desk.wait_for_approval()
    await dialogue.decides(approved, says("Done"))
    dialogue.expect(state=state)
    assert desk.paid == (["B7"] if approved else [])
    await dialogue.says("Great, thanks", understands(answered=True), says("Bye"))
    dialogue.expect(completed=True)
    assert dialogue.last.trace.went_back == ""
    assert desk.paid == (["B7"] if approved else [])


async def test_a_message_before_a_late_decision_does_not_pay_twice() -> None:
    desk = PaymentDesk()
    dialogue = await desk.wait_for_approval()
    await dialogue.says("Yes! Pay it", understands(bill="B7", answered=True), says("Still waiting"))
    dialogue.expect(pending=["pay"])
    await dialogue.decides(True, says("Paid"))
    await dialogue.says("Is it paid?", understands(answered=False), says("Yes"))
    assert desk.paid == ["B7"]
    assert 'pay({"bill":"B7"}) returned: paid' in last_prompt(dialogue)
    dialogue.expect(state="Say it is paid")


async def book_and_fail(clinic: Clinic) -> Dialogue:
    """Return a dialogue in which Monday was booked in a turn whose reply failed."""
    dialogue = Dialogue(clinic.agent)
    await dialogue.says("Monday, please", understands(route=clinic.route, day="Monday"), says("Monday 9:00?"))
    with pytest.raises(ChatError):
        await dialogue.says("Yes", understands(answered=True), raises(ChatError("the line is dead")))
    assert clinic.booked == ["Monday"]
    return dialogue


async def test_an_action_of_a_failed_turn_is_not_repeated_after_another_message() -> None:
    clinic = Clinic()
    dialogue = await book_and_fail(clinic)
    await dialogue.says("Is it booked now?", understands(answered=False), says("Yes"))
    assert 'book({"day":"Monday"}) was done, and stays done' in last_prompt(dialogue)
    assert "never say that it was: book" not in last_prompt(dialogue)
    await dialogue.says("Then yes", understands(answered=True), says("R1"))
    assert clinic.booked == ["Monday"]
    dialogue.expect(state="Tell the reference", data={"day": "Monday", "ref": "R1"})


async def test_an_action_of_a_failed_turn_stays_done_if_the_values_change() -> None:
    clinic = Clinic()
    dialogue = await book_and_fail(clinic)
    await dialogue.says("Make it Tuesday", understands(day="Tuesday"), says("Tuesday?"))
    assert 'book({"day":"Monday"}) was done, and stays done' in last_prompt(dialogue)
    await dialogue.says("Yes", understands(answered=True), says("R2"))
    assert clinic.booked == ["Monday", "Tuesday"]


async def test_a_second_request_does_not_read_the_values_of_the_first_one() -> None:
    paid: list[str] = []

    def pay_back(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid"

    agent = Agent("Desk")
    fields = {"order": {"type": "string"}, "reason": {"type": "string"}}
    route = agent.create_route(
        "Pay back", conditions=["the user wants money back"], gather_schema={"properties": fields}
    )
    route.initial_state.transition_to(chat_state="Ask for the order", gather=[*fields]).transition_to(
        tool_state=pay_back, repeat=False
    ).transition_to(state=END_ROUTE)
    dialogue = Dialogue(agent)
    words = {"order": "A-100", "reason": "it was broken"}
    await dialogue.says(
        "A refund for A-100, it was broken", understands(route=route, data=words, words=words), says("Paid")
    )
    await dialogue.says(
        "And I need another refund please", understands(route=route, score=95, words={}), says("Which?")
    )
    dialogue.expect(asks=["order", "reason"])
    reading = understands(
        data={"order": "A-100", "reason": "it came too late"}, words={"order": "A-100", "reason": "It came too late"}
    )
    await dialogue.says("It came too late", reading, says("Which order?"))
    assert paid == ["A-100"]
    dialogue.expect(asks=["order"])


@pytest.mark.parametrize(
    "text",
    [
        "Great, thanks! Has the money been sent?",
        "Thanks!",
        "ok great",
        "how long does it take",
        "How long does it take?",
    ],
)
async def test_no_remark_repeats_an_action_without_questions(text: str) -> None:
    paid: list[str] = []

    def pay_back(order: str) -> str:
        """Pay back."""
        paid.append(order)
        return "paid"

    agent = Agent("Desk")
    fields = {"order": {"type": "string"}}
    route = agent.create_route(
        "Pay back",
        conditions=["the user wants money back"],
        gather_schema={"properties": fields},
        initial_data={"order": "A1"},
    )
    route.initial_state.transition_to(tool_state=pay_back, repeat=False).transition_to(state=END_ROUTE)
    dialogue = Dialogue(agent)
    await dialogue.says("My money back, please", understands(route=route), says("Paid"))
    await dialogue.says(text, understands(route=route, score=95, words={}), says("Welcome"))
    assert paid == ["A1"]


async def test_a_failed_action_can_be_tried_again_from_the_state_that_reports_the_failure() -> None:
    tried: list[str] = []

    def book(day: str) -> str:
        """Book."""
        tried.append(day)
        if len(tried) == 1:
            raise ValueError("the server is down")
        return "R1"

    agent = Agent("Clinic")
    route = agent.create_route("Book", gather_schema={"properties": {"day": {"type": "string"}}})
    confirm = route.initial_state.transition_to(chat_state="Ask", gather=["day"]).transition_to(chat_state="Confirm")
    booking = confirm.transition_to(tool_state=book, repeat=False)
    booking.transition_to(chat_state="Tell it")
    booking.transition_to(chat_state="Say that it failed", on_error=True)
    dialogue = Dialogue(agent)
    await dialogue.says("Monday", understands(day="Monday"), says("Shall I?"))
    await dialogue.says("Yes", understands(answered=True), says("It failed"))
    dialogue.expect(state="Say that it failed")
    again = understands(holds=["the user wants to try this again: book"])
    await dialogue.says("Please try again", again, says("R1"))
    dialogue.expect(state="Tell it")
    assert tried == ["Monday", "Monday"]


async def test_a_completed_route_that_is_changed_in_another_one_is_announced_and_continued() -> None:
    clinic = Clinic()
    dialogue = await clinic.book_monday()
    await dialogue.says("Thanks, bye", understands(answered=True), says("Bye"))
    survey = clinic.agent.create_route(
        "Take part in a survey", conditions=["a survey"], gather_schema={"properties": {"mark": {"type": "integer"}}}
    )
    survey.initial_state.transition_to(chat_state="Ask for a mark", gather=["mark"]).transition_to(state=END_ROUTE)
    dialogue = Dialogue(clinic.agent, dialogue.last.session)
    await dialogue.says("The survey", understands(scores={survey: 95}), says("Your mark?"))
    reading = understands(scores={survey: 90}, data={"day": "Tuesday"})
    await dialogue.says("And make the visit Tuesday", reading, says("Your mark? Then Tuesday"))
    assert "The user also wants: Book a visit" in last_prompt(dialogue)
    await dialogue.says("Nine", understands(mark=9), says("Thanks. Tuesday 9:00?"))
    dialogue.expect(route=clinic.route, state="Ask to confirm", data={"day": "Tuesday", "ref": None})
    assert 'book({"day":"Monday"}) was done, and stays done' in last_prompt(dialogue)
    assert clinic.booked == ["Monday"]
