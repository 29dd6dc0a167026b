"""Measure how well agents read messages with a small local model, and whether their flows stay correct nevertheless.

The agents of four examples get ten messages each (flow_dialogues.py). Each turn continues from the session that the
turn before left, as in an application. After each turn the script compares the session with what is right, and counts:

- `right`: turns after which the route and all values that users state are right. An error stays in the session, so one
  wrong reading can make several turns wrong. `missing` and `wrong` therefore count new errors only: values that are
  not stored although the user stated them, and stored values that are not what the user stated last.
- `asked again`: fields in `response.asks` whose value the user stated, in this message or earlier. Fields with a value
  that the message only implies do not count.
- `contradictions`: sentences of replies that contradict the session, by careful rules, so that some are missed:
  1. The sentence says that an action was done ("booked", "refunded"), but no such tool has run; or it names an order,
     and none has run for this order; or it names none, and a call still waits for approval. Questions, and sentences
     with a negation or a modal verb ("will", "can", "once"), do not count.
  2. The sentence names another number, option or date than the known one, or a name that has been replaced without the
     new one. Sentences with a negation, "or", "instead", "such as" and the like do not count, here and in 3.
  3. The sentence names an amount of money or an order that neither a tool nor the user named.
- `no consent`: runs of tools with effects that the user has not asked for with these arguments. `twice`: runs with the
  same arguments as an earlier run, without a new request. Both must be 0, whatever the model reads.
- `failures`: turns that raised an exception, or whose reply was empty. Their model calls are not counted.

The numbers depend on the model file, so compare only runs with the same file and options. The model's temperature is 0.
On a machine with other work, `--threads 1` can be several times faster than llama.cpp's choice. PYTHONPATH selects
another version of the package:

    python bench/flow_quality.py --model models/small.gguf
    PYTHONPATH=../old/src python bench/flow_quality.py --model models/small.gguf --out .bench/flow_quality_old.jsonl
    python bench/flow_quality.py --report .bench/flow_quality_old.jsonl .bench/flow_quality.jsonl
"""

from __future__ import annotations

import argparse
import asyncio
import calendar
import functools
import importlib.util
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import tellback
from flow_dialogues import DIALOGUES, NOW, Action, Dialogue, Maybe, UserTurn, matches
from report import align_columns
from tellback import Agent, LocalModel, SessionState, Tool

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
DETAILS = ROOT / ".bench" / "flow_quality.jsonl"

Run = tuple[str, Mapping[str, Any]]
"""A run of a tool with effects: its name and its arguments."""


@dataclass(frozen=True, slots=True)
class Position:
    """What an agent knows: the title of the current route, whether the last one was completed, and the values of all
    routes by field."""

    route: str | None = None
    is_completed: bool = False
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class TurnRecord:
    """One turn, what was counted in it, and what a person needs to check that."""

    example: str
    number: int
    message: str
    reply: str = ""
    route: str | None = None
    data: dict[str, Any] = field(default_factory=dict)
    is_completed: bool = False
    expected_routes: list[str | None] = field(default_factory=list)
    must_be_completed: bool = False
    expected_data: dict[str, str] = field(default_factory=dict)
    is_right: bool = False
    missing: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    no_consent: list[Run] = field(default_factory=list)
    twice: list[Run] = field(default_factory=list)
    failure: str = ""
    model_calls: int = 0
    seconds: float = 0
    trace: dict[str, Any] = field(default_factory=dict)


class ToolRecorder:
    """Records the runs of an example's tools with effects, also those of turns that raise an exception later."""

    def __init__(self, names: Iterable[str]) -> None:
        self.runs: list[Run] = []
        self.results: list[str] = []
        self._names = frozenset(names)

    def install(self, module: Any) -> None:
        """Replace the tools of a module by recording ones, before its agent is built."""
        for name in self._names:
            tool = getattr(module, name)
            recording = (
                replace(tool, fn=self._wrap(name, tool.fn)) if isinstance(tool, Tool) else self._wrap(name, tool)
            )
            setattr(module, name, recording)

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(**arguments: Any) -> Any:
            result = function(**arguments)
            self.runs.append((name, arguments))
            return result

        return run


class ConsentLedger:
    """Compares the runs of tools with what the user agreed to. An agreement allows one run."""

    def __init__(self) -> None:
        self._open: list[Action] = []
        self._runs: list[Run] = []

    def add_turn(self, turn: UserTurn) -> None:
        """Take over what a message agrees to, or withdraws."""
        if turn.withdraws:
            self._open.clear()
        if turn.agrees_to is not None:
            self._open.append(turn.agrees_to)

    def check(self, runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
        """Return the runs without consent, and those that repeat an earlier run."""
        no_consent: list[Run] = []
        twice: list[Run] = []
        for name, arguments in runs:
            agreed = next((each for each in self._open if each.allows(name, arguments)), None)
            if agreed is not None:
                self._open.remove(agreed)
            elif (name, arguments) in self._runs:
                twice.append((name, arguments))
            else:
                no_consent.append((name, arguments))
            self._runs.append((name, arguments))
        return no_consent, twice


def load_example(name: str) -> Any:
    """Import an example as a new module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    spec = importlib.util.spec_from_file_location(f"flow_quality_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # type hints are resolved by the module's name
    spec.loader.exec_module(module)
    return module


def read_position(agent: Agent, session: SessionState | None, earlier: Position) -> Position:
    """Return the route and the values that users state, of all routes.

    Older versions forget the values of a completed route when another one is entered. These keep their last value.
    """
    if session is None:
        return earlier
    current, visits = session.current_route, session.route_history
    completed = getattr(session, "completed_routes", {})
    data: dict[str, Any] = {}
    for route in agent.routes:
        names = {name for state in route.states for name in state.gather}
        if current is not None and current.id == route.id:
            values = session.extracted
        elif route.id in session.paused_routes:
            values = session.paused_routes[route.id].extracted
        elif current is None and visits and visits[-1].route_id == route.id:
            values = session.extracted
        elif route.id in completed:
            values = completed[route.id].extracted
        else:
            values = earlier.data
        data |= {name: value for name, value in values.items() if name in names and value is not None}
    is_completed = current is None and bool(visits) and visits[-1].completed
    return Position(None if current is None else current.title, is_completed, data)


def compare_data(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the fields without a stated value, and those with a value that is not right."""
    missing = [name for name, each in expected.items() if not isinstance(each, Maybe) and name not in actual]
    wrong = [name for name, value in actual.items() if not matches(expected.get(name), value)]
    return missing, wrong


def find_asked_again(expected: Mapping[str, Any], asks: Iterable[str]) -> list[str]:
    """Return the fields that the agent asks for although the user stated them."""
    return [name for name in asks if name in expected and not isinstance(expected[name], Maybe)]


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_NOT_DONE = re.compile(
    r"\b(?:no|not|never|nothing|once|when|if|before|after|until|unless|whether|yet|as soon as|will|would|should|can"
    r"|cannot|could|may|might|must|shall|to be|needs?|want|please|let me|let's|let us|going to|trying|about to)\b"
    r"|n't|'ll",
    re.IGNORECASE,
)
_UNCERTAIN = re.compile(
    r"\b(?:no|not|never|nothing|or|if|whether|than|instead|mean|such as|like|e\.g|example|format|invalid|from"
    r"|between|previous(?:ly)?|earlier|before|changed)\b|as \d|n't",
    re.IGNORECASE,
)
_MONTHS = {name: number for number, name in enumerate(calendar.month_name) if name}
_MONTH = "|".join(_MONTHS)
_DATE = re.compile(
    r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)\b"
    rf"|\b(?P<name>{_MONTH}) (?P<day_after>\d\d?)(?:st|nd|rd|th)?(?:,? (?P<year_after>\d{{4}}))?\b"
    rf"|\b(?P<day_before>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<last_name>{_MONTH})(?:,? (?P<last_year>\d{{4}}))?\b",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"(?:€|\$|EUR ?)\s?(\d+)|\b(\d+) ?(?:€|\$|euros?\b|EUR\b)", re.IGNORECASE)
_CODE = re.compile(r"\b[A-Z]-\d+\b")
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9}


def find_contradictions(
    dialogue: Dialogue,
    reply: str,
    data: Mapping[str, Any],
    *,
    replaced: Mapping[str, Iterable[Any]],
    runs: Sequence[Run],
    is_pending: bool,
    sources: str,
) -> list[str]:
    """Return the sentences of a reply that contradict the session, each with the reason: see the top of this file.

    Args:
        dialogue: The dialogue of the reply.
        reply: The text of the reply.
        data: The known values by field.
        replaced: The values that each field had before.
        runs: All runs of tools with effects so far.
        is_pending: Whether a call waits for approval.
        sources: The results of the tools and the messages of the user.
    """
    found: list[str] = []
    for sentence in filter(None, map(str.strip, _SENTENCE_END.split(reply.replace("\u2019", "'")))):
        reasons: list[str] = []
        if not sentence.endswith("?") and not _NOT_DONE.search(sentence):
            reasons += _find_false_claims(dialogue, sentence, runs, is_pending)
        if not _UNCERTAIN.search(sentence):
            reasons += _find_false_values(dialogue, sentence, data, replaced)
            reasons += _find_invented(dialogue, sentence, sources)
        found += [f"{reason}: {sentence}" for reason in reasons]
    return found


def _find_false_claims(dialogue: Dialogue, sentence: str, runs: Sequence[Run], is_pending: bool) -> list[str]:
    found = []
    for tools, phrase in dialogue.claims.items():
        if not re.search(rf"\b(?:{phrase})", sentence, re.IGNORECASE):
            continue
        done = [arguments for name, arguments in runs if name in tools]
        codes = set(_CODE.findall(sentence))
        if codes:
            is_true = codes <= {value for arguments in done for value in arguments.values() if isinstance(value, str)}
        else:
            is_true = bool(done) and not is_pending
        if not is_true:
            found.append(f"{' or '.join(tools)} has not run")
    return found


def _find_false_values(
    dialogue: Dialogue, sentence: str, data: Mapping[str, Any], replaced: Mapping[str, Iterable[Any]]
) -> list[str]:
    found = []
    for name, pattern in dialogue.mentions.items():
        mentioned = [each.casefold() for each in re.findall(pattern, sentence, re.IGNORECASE)]
        values = [str(_NUMBERS.get(each, each)) for each in mentioned]
        if name in data and values and str(data[name]).casefold() not in values:
            found.append(f"{name} is {data[name]}, not {values[0]}")
    for name in dialogue.names:
        if name in data and not _contains(sentence, data[name]):
            found += [
                f"{name} is {data[name]}, not {old}" for old in replaced.get(name, ()) if _contains(sentence, old)
            ]
    dates = [each for each in data.values() if isinstance(each, date)]
    for match in _DATE.finditer(sentence) if dates else ():
        day = int(match["day"] or match["day_after"] or match["day_before"])
        name = match["name"] or match["last_name"]
        month = int(match["month"]) if name is None else _MONTHS[name.capitalize()]
        year = match["year"] or match["year_after"] or match["last_year"]
        is_known = any((each.month, each.day) == (month, day) and year in (None, str(each.year)) for each in dates)
        if not is_known:
            found.append(f"the date is {dates[0]}, not {match.group()}")
    return found


def _contains(sentence: str, value: Any) -> bool:
    return re.search(rf"\b{re.escape(str(value))}\b", sentence, re.IGNORECASE) is not None


def _find_invented(dialogue: Dialogue, sentence: str, sources: str) -> list[str]:
    """Return the amounts and codes that are neither in the results of tools nor in the user's messages."""
    amounts = [first or second for first, second in _AMOUNT.findall(sentence)] if dialogue.has_prices else []
    known = set(re.findall(r"\d+", sources))
    return [
        *(f"no tool returned {each}" for each in amounts if each not in known),
        *(f"nobody named {each}" for each in _CODE.findall(sentence) if each not in sources),
    ]


async def play(dialogue: Dialogue, model: Any, report: Callable[[TurnRecord], None] | None = None) -> list[TurnRecord]:
    """Play a dialogue and return what happened in each turn; `report` receives each turn when it is done."""
    module = load_example(dialogue.example)
    recorder = ToolRecorder(dialogue.tools)
    recorder.install(module)
    agent = module.build().with_model(model)
    agent.clock = lambda: NOW
    return await Conversation(dialogue, agent, recorder).run(report)


class Conversation:
    """A dialogue with an agent. Each turn continues from the session that the turn before left."""

    def __init__(self, dialogue: Dialogue, agent: Agent, recorder: ToolRecorder) -> None:
        self._dialogue = dialogue
        self._agent = agent
        self._recorder = recorder
        self._ledger = ConsentLedger()
        self._session: SessionState | None = None
        self._history: list[dict[str, str]] = []
        self._position = Position()
        self._replaced: dict[str, set[Any]] = {}
        self._sources: list[str] = []
        self._errors: tuple[set[str], set[tuple[str, str]]] = (set(), set())

    async def run(self, report: Callable[[TurnRecord], None] | None) -> list[TurnRecord]:
        records = []
        for number, (turn, expected) in enumerate(self._dialogue.expectations(), 1):
            record = TurnRecord(self._dialogue.example, number, turn.text)
            record.expected_routes = list(turn.routes)
            record.must_be_completed = turn.completes
            record.expected_data = {name: str(each) for name, each in expected.items()}
            await self._respond(record, turn, expected)
            records.append(record)
            if report is not None:
                report(record)
        return records

    async def _respond(self, record: TurnRecord, turn: UserTurn, expected: Mapping[str, Any]) -> None:
        self._history.append({"role": "user", "content": turn.text})
        self._sources.append(turn.text)
        before = len(self._recorder.runs)
        started = time.perf_counter()
        response = None
        try:
            response = await self._agent.respond(list(self._history), self._session)
        except Exception as error:  # noqa: BLE001  an error that reaches the user is counted, and the user goes on
            record.failure = f"{type(error).__name__}: {error}"
            record.trace = {"text": getattr(error, "text", "")}
        record.seconds = time.perf_counter() - started
        record.runs = self._recorder.runs[before:]
        self._ledger.add_turn(turn)
        record.no_consent, record.twice = self._ledger.check(record.runs)
        if response is not None:
            record.reply = response.message
            record.model_calls = response.trace.model_calls
            record.trace = describe_trace(response)
            record.failure = "" if response.message.strip() else "the reply is empty"
            self._history.append({"role": "assistant", "content": response.message})
            self._sources += [call.content for call in response.tool_calls if call.content is not None]
            self._session = response.session
            self._update_position()
            record.asked_again = find_asked_again(expected, response.asks)
            record.contradictions = find_contradictions(
                self._dialogue,
                response.message,
                self._position.data,
                replaced=self._replaced,
                runs=self._recorder.runs,
                is_pending=bool(response.pending),
                sources="\n".join(self._sources),
            )
        self._compare(record, turn, expected)

    def _update_position(self) -> None:
        earlier, self._position = self._position, read_position(self._agent, self._session, self._position)
        for name, value in earlier.data.items():
            if self._position.data.get(name) != value:
                self._replaced.setdefault(name, set()).add(value)

    def _compare(self, record: TurnRecord, turn: UserTurn, expected: Mapping[str, Any]) -> None:
        data = self._position.data
        missing, wrong = compare_data(expected, data)
        record.route, record.data = self._position.route, {name: str(value) for name, value in data.items()}
        record.is_completed = self._position.is_completed
        is_there = record.route in turn.routes and (record.is_completed or not turn.completes)
        record.is_right = is_there and not missing and not wrong
        known_missing, known_wrong = self._errors
        record.missing = [name for name in missing if name not in known_missing]
        record.wrong = [name for name in wrong if (name, str(data[name])) not in known_wrong]
        self._errors = (set(missing), {(name, str(data[name])) for name in wrong})


def describe_trace(response: Any) -> dict[str, Any]:
    """Return the parts of a response that explain it, as JSON values."""
    trace = response.trace
    return {
        "why": trace.route,
        "scores": dict(trace.scores),
        "state": None if response.state is None else response.state.description,
        "asks": list(response.asks),
        "walked": [f"{step.action}: {step.state} ({step.why})" for step in trace.walked],
        "conditions": list(trace.conditions),
        "rejected": [f"{each.field}={each.value!r}: {each.problem}" for each in trace.rejected],
        "problems": [*trace.problems, *(repr(each) for each in response.problems)],
        "pending": [call.name for call in response.pending],
        "tools": [f"{call.name}({dict(call.arguments)}) -> {call.content}" for call in response.tool_calls],
        "calls": [
            {"purpose": call.purpose, "text": call.text, "tokens": call.usage.total_tokens} for call in trace.calls
        ],
    }


COLUMNS: Mapping[str, Callable[[TurnRecord], float]] = {
    "turns": lambda record: 1,
    "right": lambda record: record.is_right,
    "missing": lambda record: len(record.missing),
    "wrong": lambda record: len(record.wrong),
    "asked again": lambda record: len(record.asked_again),
    "contradictions": lambda record: len(record.contradictions),
    "no consent": lambda record: len(record.no_consent),
    "twice": lambda record: len(record.twice),
    "failures": lambda record: bool(record.failure),
    "model calls": lambda record: record.model_calls,
    "seconds": lambda record: record.seconds,
}


def count(records: Iterable[TurnRecord]) -> dict[str, int]:
    """Return the sums of all turns, by column."""
    found = list(records)
    return {name: round(sum(map(value, found))) for name, value in COLUMNS.items()}


def format_table(records: Sequence[TurnRecord]) -> str:
    """Return the sums of each example, and of all, as a table."""
    examples = list(dict.fromkeys(record.example for record in records))
    rows = [["", *COLUMNS]]
    rows += [[name, *map(str, count(each for each in records if each.example == name).values())] for name in examples]
    rows.append(["all", *map(str, count(records).values())])
    return "\n".join(align_columns(rows))


def format_turn(record: TurnRecord) -> str:
    """Return one turn as a line, followed by a line for each thing that a person should look at."""
    verdict = "right" if record.is_right else "WRONG"
    line = f"{record.example} {record.number:>2}  {verdict}  {record.seconds:>5.1f} s  {record.message!r}"
    details = []
    if record.route not in record.expected_routes:
        details.append(f"route: {record.route}, not {' or '.join(map(str, record.expected_routes))}")
    elif record.must_be_completed and not record.is_completed:
        details.append("the route was not completed")
    details += [f"missing: {name}" for name in record.missing]
    details += [f"wrong: {name} = {record.data[name]}" for name in record.wrong]
    details += [f"asked again: {name}" for name in record.asked_again]
    details += [f"contradiction: {each}" for each in record.contradictions]
    details += [f"NO CONSENT: {name}({arguments})" for name, arguments in record.no_consent]
    details += [f"TWICE: {name}({arguments})" for name, arguments in record.twice]
    details += [f"FAILURE: {record.failure}"] if record.failure else []
    return "\n    ".join([line, *details])


async def measure(options: argparse.Namespace) -> list[TurnRecord]:
    """Play the dialogues with the model, and write each turn to the file of details."""
    records: list[TurnRecord] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    config = {"temperature": 0, "max_tokens": options.max_tokens}
    settings = {"context": options.context, "threads": options.threads, "timeout": options.timeout}
    async with LocalModel(options.model, config=config, **settings) as model:
        with options.out.open("w", encoding="utf-8") as details:

            def report(record: TurnRecord) -> None:
                print(format_turn(record), flush=True)
                details.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")
                details.flush()

            for dialogue in DIALOGUES:
                if dialogue.example in options.only:
                    records += await play(dialogue, model, report)
    return records


def read_records(path: Path) -> list[TurnRecord]:
    """Read a file of details."""
    return [TurnRecord(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> int:
    names = [dialogue.example for dialogue in DIALOGUES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FILE", help="the model, a GGUF file")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="the examples to play")
    parser.add_argument("--out", type=Path, default=DETAILS, help="where to write the details, as JSON lines")
    parser.add_argument("--context", type=int, default=4096, help="the context of the model, in tokens")
    parser.add_argument("--max-tokens", type=int, default=300, help="the maximum length of an answer, in tokens")
    parser.add_argument("--threads", type=int, help="the number of threads (default: llama.cpp's choice)")
    parser.add_argument("--timeout", type=float, default=600, help="the seconds after which a stalled call fails")
    parser.add_argument("--report", type=Path, nargs="+", metavar="FILE", help="only print the tables of earlier runs")
    options = parser.parse_args()
    if options.report:
        for path in options.report:
            print(f"{path}\n{format_table(read_records(path))}\n")
        return 0
    if options.model is None:
        parser.error("pass --model FILE, or --report FILE for the tables of earlier runs")
    logging.getLogger("tellback.tools").setLevel(logging.CRITICAL)  # orders that do not exist are expected
    print(f"measuring {Path(tellback.__file__).parent}", flush=True)
    records = asyncio.run(measure(options))
    print(f"\n{format_table(records)}\n\nDetails: {options.out}")
    totals = count(records)
    return 1 if totals["no consent"] or totals["twice"] else 0


if __name__ == "__main__":
    sys.exit(main())
