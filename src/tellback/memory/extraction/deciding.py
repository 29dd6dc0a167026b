"""Facts and what is known as a model reads them, and its judgements read back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tellback.chat.output import InvalidOutput
from tellback.memory.extraction.schema import DecisionOutput, DecisionsOutput
from tellback.memory.extraction.transcript import quote_json, truncate_middle
from tellback.memory.extraction.values import Change, Decision, Question, Verdict
from tellback.memory.neutral import sanitize_text
from tellback.types.memory import Atom, CategoryKind

MAX_QUESTION_TEXT = 2_000
"""How many characters of a text are shown."""

_CHANGE_NOTES = {Change.NONE: "", Change.CHANGED: " (the user says it changed)", Change.CORRECTED: " (a correction)"}


def render_questions(questions: Sequence[Question]) -> str:
    """The questions as data for a model: facts and candidates, each with a number and on a line of its own."""
    lines = ["<questions>"]
    for number, question in enumerate(questions, 1):
        fact = question.fact
        lines.append(
            f"fact {number} | {_format_start(question)}{_CHANGE_NOTES[fact.change]} | {_quote_text(fact.text)}"
        )
        lines.extend(
            f"  candidate {position} | {_format_period(atom)} | {_quote_text(atom.text)}"
            for position, atom in enumerate(question.candidates, 1)
        )
    return "\n".join([*lines, "</questions>"])


def parse_decisions(output: DecisionsOutput, questions: Sequence[Question]) -> tuple[Decision, ...]:
    """A decision for each question; raises `InvalidOutput` with what the model has to mend."""
    by_fact: dict[int, Decision] = {}
    for item in output.decisions:
        if not 1 <= item.fact <= len(questions):
            raise InvalidOutput(f"there is no fact {item.fact}; facts are numbered from 1 to {len(questions)}")
        if item.fact in by_fact:
            raise InvalidOutput(f"fact {item.fact} is judged twice")
        by_fact[item.fact] = _to_decision(item, questions[item.fact - 1].candidates)
    missing = [str(number) for number in range(1, len(questions) + 1) if number not in by_fact]
    if missing:
        raise InvalidOutput(f"no decision is given for fact {', '.join(missing)}")
    return tuple(by_fact[number] for number in range(1, len(questions) + 1))


def _to_decision(item: DecisionOutput, candidates: Sequence[Atom]) -> Decision:
    verdict = Verdict(item.verdict)
    if verdict is Verdict.NEW:
        return Decision(verdict)
    if item.candidate is None or not 1 <= item.candidate <= len(candidates):
        raise InvalidOutput(
            f"fact {item.fact} has no candidate {item.candidate}: with {verdict.value!r}, give a number"
            f" from 1 to {len(candidates)}, or say 'new'"
        )
    return Decision(verdict, candidates[item.candidate - 1].id)


def _format_start(question: Question) -> str:
    if question.fact.valid_from is not None:
        return _format_day(question.fact.valid_from)
    return "not said" if question.begins is None else f"told on {_format_day(question.begins)}"


def _format_period(atom: Atom) -> str:
    if atom.category.kind is CategoryKind.EPISODE and atom.valid_to is None:
        return f"on {_format_day(atom.valid_from)}"
    return f"from {_format_day(atom.valid_from)}" + (
        f" to {_format_day(atom.valid_to)}" if atom.valid_to else " until now"
    )


def _format_day(moment: datetime | None) -> str:
    return moment.isoformat()[:10] if moment else ""


def _quote_text(text: str) -> str:
    return quote_json(truncate_middle(sanitize_text(text), MAX_QUESTION_TEXT))
