"""The dialogues of bench/flow_quality.py: four examples with ten messages each, and what is right after each message.

The user greets, asks side questions, states several values at once, corrects values, makes typos, does not know, wants
two things in one message, contradicts herself, changes her mind, says thanks and asks about completed actions. The
messages do not depend on the replies. Today is Thursday, 2026-11-19.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

NOW = datetime(2026, 11, 19, 9, 0, tzinfo=UTC)
ABSENT = None
"""The value of a field that must not be stored."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text that contains a match of the pattern, in any case."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Maybe:
    """This value, or none: the message can be read in two ways."""

    value: Any


def matches(expected: Any, value: Any) -> bool:
    """Whether a stored value is an expected one. Letter case does not matter, and a stored None is no value.

    >>> matches(Text("oslo"), "Oslo, Norway"), matches(date(2026, 12, 1), "2026-12-01"), matches(Maybe(2), ABSENT)
    (True, True, True)
    """
    if isinstance(expected, Maybe):
        return value is None or matches(expected.value, value)
    if value is None or expected is None:
        return value is expected
    if isinstance(expected, Text):
        return re.search(expected.pattern, str(value), re.IGNORECASE) is not None
    return value == expected or str(value).strip().casefold() == str(expected).casefold()


@dataclass(frozen=True, slots=True)
class Action:
    """A run of a tool with effects, with the arguments that matter."""

    tool: str
    arguments: Mapping[str, Any]

    def allows(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether a run of the tool is this action."""
        return tool == self.tool and all(matches(each, arguments.get(name)) for name, each in self.arguments.items())


@dataclass(frozen=True, slots=True)
class UserTurn:
    """A message of the user, and what is right after it.

    `route` is the title of the current route, or a tuple if several are right. With `completes` the route that was
    current is completed, and not only left. `states` are the fields that have another value than before the message;
    all other fields keep theirs. `agrees_to` is an action that the agent may run once, from now on; with `withdraws` it
    may no longer run those of earlier messages.
    """

    text: str
    route: str | tuple[str | None, ...] | None
    states: Mapping[str, Any] = field(default_factory=dict)
    agrees_to: Action | None = None
    completes: bool = False
    withdraws: bool = False

    @property
    def routes(self) -> tuple[str | None, ...]:
        """The routes that are right after the message."""
        return self.route if isinstance(self.route, tuple) else (self.route,)


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The messages to the agent of one example.

    `claims` are phrases by which a reply says that an action was done, by tool; the tools of an entry with several
    names do the same. `mentions` are patterns whose first group is the value of a field in a reply; `names` are
    fields with names, which may stand anywhere in a reply. With `has_prices`, amounts of money come only from tools.
    """

    example: str
    turns: tuple[UserTurn, ...]
    claims: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    mentions: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    has_prices: bool = False

    @property
    def tools(self) -> frozenset[str]:
        """The tools with effects."""
        return frozenset(name for names in self.claims for name in names)

    def expectations(self) -> Iterator[tuple[UserTurn, Mapping[str, Any]]]:
        """Yield each turn with all values that are right after it. Fields without a value are left out."""
        known: dict[str, Any] = {}
        for turn in self.turns:
            known = {name: each for name, each in {**known, **turn.states}.items() if each is not ABSENT}
            yield turn, known


_DONE = r"(?:is|are|was|were|been) (?:now |already |all |just |successfully )*"
BOOKED = rf"booked|reserved|(?:booking|reservation|flight|seats?|tickets?) {_DONE}confirmed"
OPENED = rf"opened|created|(?:all|everything|account) {_DONE}(?:set up|ready)"
REFUNDED = (
    rf"refunded|paid back|(?:money|refund|amount|payment|euros)[\w -]* {_DONE}"
    r"(?:sent|issued|processed|approved|completed|on its way)"
)

BOOK, WEATHER = "Book a flight", "Tell the weather"
FLIGHT = Dialogue(
    "flight_booking",
    (
        UserTurn("Hi there!", None),
        UserTurn(
            "I'd like to fly to Rome with my wife, on december 1st",
            BOOK,
            {"destination": Text("rome"), "departure": date(2026, 12, 1), "passengers": Maybe(2)},
        ),
        UserTurn("hmm, do you take cats on board?", BOOK),
        UserTurn("we are 2 of course", BOOK, {"passengers": 2}),
        UserTurn("Actually no, make it Olso instead", BOOK, {"destination": Text("^(oslo|olso)")}),
        UserTurn(
            "I'm not sure yet about the flight. How's the weather there?", WEATHER, {"city": Maybe(Text("oslo|olso"))}
        ),
        UserTurn("In Oslo I mean. Then let's go on with the flight", (BOOK, WEATHER), {"city": Text("oslo")}),
        UserTurn(
            "Yes, I take the cheaper one, please book it!",
            None,
            agrees_to=Action("book_flight", {"destination": Text("^(oslo|olso)"), "passengers": 2}),
            completes=True,
        ),
        UserTurn("Thank you so much! Did it work, is it booked now?", None),
        UserTurn("Oh wait, my sister comes too, so we are 3", BOOK, {"passengers": 3}),
    ),
    {
        (
            "book_flight",
        ): r"booked|reserved|(?:booking|reservation|flight|seats?|tickets?) \W*(?:is|are|has been) confirmed"
    },
    {
        "passengers": r"\b(\d+|one|two|three|four|five) (?:passengers?|people|persons?|seats?|tickets?)\b",
    },
    names=("destination",),
    has_prices=True,
)

ACCOUNT = "Open an account"
ONBOARDING = Dialogue(
    "onboarding",
    (
        UserTurn("hello, what do you need from me?", ACCOUNT),
        UserTurn("I'm Maya and it is for my businness", ACCOUNT, {"name": Text("^maya$"), "kind": "business"}),
        UserTurn("How much does a business account cost?", ACCOUNT),
        UserTurn("not sure yet how we will call it", ACCOUNT),
        UserTurn(
            "ok it's Tascas & Co, and my number is 0151 2345678",
            ACCOUNT,
            {"company": Text("^tascas (&|and) co"), "phone": Text(r"^0151\W?2345678$")},
            Action("create_account", {"name": Text("maya"), "kind": "business", "holder": Text("^tascas")}),
        ),
        UserTurn("Sorry, wrong number, it is 0151 2345679", ACCOUNT, {"phone": Text(r"^0151\W?2345679$")}),
        UserTurn("Did you open it already?", ACCOUNT),
        UserTurn("Wait, I changed my mind, it should be personal", ACCOUNT, {"kind": "personal"}, withdraws=True),
        UserTurn(
            "I was born on 17 May 2001, no sorry, 2002",
            ACCOUNT,
            {"birthday": date(2002, 5, 17)},
            Action("create_account", {"name": Text("maya"), "kind": "personal", "holder": Text("maya")}),
        ),
        UserTurn("Yes that's right, thank you!", None, completes=True),
    ),
    {("create_account",): OPENED},
    {"kind": r"\b(personal|business) account"},
)

INTAKE, EMERGENCY = "Intake", "Emergency"
CLINIC = Dialogue(
    "clinic_intake",
    (
        UserTurn("good morning, I have an appointment at 10", INTAKE),
        UserTurn(
            "Omar Said, born 1st july 1961",
            INTAKE,
            {"name": Text("^omar said$"), "birthday": date(1961, 7, 1)},
        ),
        UserTurn("will it take long? I'm a bit nervous", INTAKE),
        UserTurn("I don't know exactly", INTAKE),
        UserTurn("my left knee hurts since yesterday, pain is a 12!", INTAKE, {"complaint": Text("knee")}),
        UserTurn(
            "no sorry, an 8, and it's the right knee",
            INTAKE,
            {"complaint": Text(r"right.*knee|knee.*right"), "pain": 8},
        ),
        UserTurn("Is that dangerous?", INTAKE),
        UserTurn("My birthday is 2 July, not the 1st", INTAKE, {"birthday": date(1961, 7, 2)}),
        UserTurn("Yes, now it's all right, thanks doctor", None, completes=True),
        UserTurn(
            "Suddenly my chest hurts and I can hardly breathe!!",
            EMERGENCY,
            {"complaint": Text(r"right.*knee|knee.*right|chest|breathe")},
        ),
    ),
    {},
    {"pain": r"\bpain (\d+)\b"},
)

REFUND = "Refund an order"
REFUNDS = Dialogue(
    "support_refunds",
    (
        UserTurn("hello, is anybody there??", None),
        UserTurn("I want my money back", REFUND),
        UserTurn("its order A-101... sorry, A-100", REFUND, {"order": "A-100"}),
        UserTurn("How long does a refund usually take?", REFUND),
        UserTurn(
            "I'm not sure why, it just stopped working after a day",
            None,
            {"reason": Text("stop|work")},
            Action("pay_back", {"order": "A-100", "amount": 12}),
            completes=True,
        ),
        UserTurn("great, thanks! Has the money been sent?", None),
        UserTurn(
            "And a refund for another one, please: A-200 came too late",
            REFUND,
            {"order": "A-200", "reason": Text("late")},
        ),
        UserTurn("Is it refunded already?", REFUND),
        UserTurn(
            "You know what, I keep A-200, I don't want that refund anymore",
            None,
            {"order": Maybe("A-200"), "reason": Maybe(Text("late"))},
            withdraws=True,
        ),
        UserTurn("Which of my orders was refunded now? Thanks, bye!", None),
    ),
    {("pay_back", "pay_back_much"): REFUNDED},
    has_prices=True,
)

DIALOGUES = (FLIGHT, ONBOARDING, CLINIC, REFUNDS)
