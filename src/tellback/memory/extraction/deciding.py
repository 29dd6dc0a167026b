"""Facts and what is known as a model reads them, and its judgements read back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tellback.chat.output import InvalidOutput
from tellback.memory.extraction.schema import Judged, Judgement
from tellback.memory.extraction.transcript import quoted, shortened
from tellback.memory.extraction.values import Change, Decision, Question, Verdict
from tellback.memory.neutral import neutral
from tellback.types.memory import Atom, CategoryKind

SHOWN = 2_000
"""How many characters of a text are shown."""

_CHANGES = {Change.NONE: "", Change.CHANGED: " (the user says it changed)", Change.CORRECTED: " (a correction)"}


def questionnaire(questions: Sequence[Question]) -> str:
    """The questions as data for a model: facts and candidates, each with a number and on a line of its own."""
    lines = ["<questions>"]
    for number, question in enumerate(questions, 1):
        fact = question.fact
        lines.append(f"fact {number} | {_since(question)}{_CHANGES[fact.change]} | {_quoted(fact.text)}")
        lines.extend(
            f"  candidate {place} | {_stretch(atom)} | {_quoted(atom.text)}"
            for place, atom in enumerate(question.candidates, 1)
        )
    return "\n".join([*lines, "</questions>"])


def read_decisions(judged: Judged, questions: Sequence[Question]) -> tuple[Decision, ...]:
    """A decision for each question; raises `InvalidOutput` with what the model has to mend."""
    by_fact: dict[int, Decision] = {}
    for judgement in judged.decisions:
        if not 1 <= judgement.fact <= len(questions):
            raise InvalidOutput(f"there is no fact {judgement.fact}; facts are numbered from 1 to {len(questions)}")
        if judgement.fact in by_fact:
            raise InvalidOutput(f"fact {judgement.fact} is judged twice")
        by_fact[judgement.fact] = _decision(judgement, questions[judgement.fact - 1].candidates)
    missing = [str(number) for number in range(1, len(questions) + 1) if number not in by_fact]
    if missing:
        raise InvalidOutput(f"no decision is given for fact {', '.join(missing)}")
    return tuple(by_fact[number] for number in range(1, len(questions) + 1))


def _decision(judgement: Judgement, candidates: Sequence[Atom]) -> Decision:
    verdict = Verdict(judgement.verdict)
    if verdict is Verdict.NEW:
        return Decision(verdict)
    if judgement.candidate is None or not 1 <= judgement.candidate <= len(candidates):
        raise InvalidOutput(
            f"fact {judgement.fact} has no candidate {judgement.candidate}: with {verdict.value!r}, give a number"
            f" from 1 to {len(candidates)}, or say 'new'"
        )
    return Decision(verdict, candidates[judgement.candidate - 1].id)


def _since(question: Question) -> str:
    if question.fact.valid_from is not None:
        return _date(question.fact.valid_from)
    return "not said" if question.begins is None else f"told on {_date(question.begins)}"


def _stretch(atom: Atom) -> str:
    if atom.category.kind is CategoryKind.EPISODE and atom.valid_to is None:
        return f"on {_date(atom.valid_from)}"
    return f"from {_date(atom.valid_from)}" + (f" to {_date(atom.valid_to)}" if atom.valid_to else " until now")


def _date(moment: datetime | None) -> str:
    return moment.isoformat()[:10] if moment else ""


def _quoted(text: str) -> str:
    return quoted(shortened(neutral(text), SHOWN))
