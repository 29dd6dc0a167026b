"""Input and output of an extractor: windows, extracted facts and entities, questions and decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom, Category, EntityType
from tellback.types.messages import ChatUsage

FIRST_YEAR = 1000
"""Earlier dates are rejected as errors, because no user was alive then."""


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a conversation to extract from.

    `before` are the last messages before it, as context; nothing is extracted from them. Both contain only messages
    that the user saw: no system messages, no tool results, nothing internal.

    An extractor of your own receives a window:

    >>> class Shouting:
    ...     async def extract(self, window: Window) -> Extraction:
    ...         loud = [each for each in window.messages if each.text.isupper()]
    ...         category = Category("shout", "EPISODE")
    ...         return Extraction(tuple(ExtractedFact(each.text, category, (each.id,)) for each in loud))
    """

    conversation: Conversation
    messages: tuple[StoredMessage, ...]
    before: tuple[StoredMessage, ...] = ()
    version: str = "v1"


class Change(StrEnum):
    """How a fact relates to earlier facts: no relation stated, a change, or a correction of something that was never
    true.

    >>> moved = ExtractedFact("Maya lives in Porto.", Category("home", "FACT"), ("msg_1",), change=Change.CHANGED)
    >>> moved.change.value
    'changed'
    """

    NONE = "none"
    CHANGED = "changed"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class ExtractedEntity:
    """An entity that facts are about.

    >>> ExtractedEntity("Ana", EntityType.PERSON, aliases=("Anita",)).aliases
    ('Anita',)
    """

    name: str
    type: EntityType
    aliases: tuple[str, ...] = ()
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """A fact to remember.

    `message_ids` cite the window's messages. `valid_from` is when it became true, if stated, and `valid_to` when it
    ended. `entities` are names of the extraction's entities. `subject` and `attribute` name the slot ("user", "home
    city"), and `value` its value ("Lisbon"). `single` means that the slot has one value at a time. `change` is how the
    fact relates to earlier ones.

    >>> fact = ExtractedFact(
    ...     "The user lives in Lisbon.",
    ...     Category("home", "FACT"),
    ...     ("msg_1",),
    ...     subject="user",
    ...     attribute="home city",
    ...     value="Lisbon",
    ...     single=True,
    ... )
    >>> fact.confidence
    0.8
    """

    text: str
    category: Category
    message_ids: tuple[str, ...]
    importance: int = 3
    confidence: float = 0.8
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    entities: tuple[str, ...] = ()
    subject: str | None = None
    attribute: str | None = None
    value: str | None = None
    single: bool = False
    change: Change = Change.NONE


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A fact in the model's output that is not stored, and why.

    >>> extraction = Extraction(left_out=(LeftOut("Maya likes tea.", "only the assistant said it"),))
    >>> [each.why for each in extraction.left_out]
    ['only the assistant said it']
    """

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts and entities of a window. `usage` has an entry for each model call.

    >>> Extraction((ExtractedFact("The user keeps bees.", Category("hobby", "FACT"), ("msg_1",)),)).entities
    ()
    """

    facts: tuple[ExtractedFact, ...] = ()
    entities: tuple[ExtractedEntity, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    usage: tuple[ChatUsage, ...] = ()


class Verdict(StrEnum):
    """How a fact relates to a known atom.

    >>> Decision(Verdict.REPLACES, "atom_1").verdict.value
    'replaces'
    """

    SAME = "same"
    REPLACES = "replaces"
    CORRECTS = "corrects"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Question:
    """A fact that is true from `valid_from` on, and the known atoms that it may repeat or replace.

    >>> def judge(question: Question) -> Decision:
    ...     for atom in question.candidates:
    ...         if atom.text == question.fact.text:
    ...             return Decision(Verdict.SAME, atom.id)
    ...     return Decision(Verdict.NEW)
    >>> judge(Question(ExtractedFact("Maya keeps bees.", Category("hobby", "FACT"), ("msg_1",)), candidates=()))
    Decision(verdict=<Verdict.NEW: 'new'>, atom_id=None)
    """

    fact: ExtractedFact
    candidates: tuple[Atom, ...]
    valid_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a fact: how it relates to the candidate with the id `atom_id`, or that it is new.

    >>> Decision(Verdict.NEW).atom_id is None, Decision(Verdict.REPLACES, "atom_1").atom_id
    (True, 'atom_1')
    """

    verdict: Verdict
    atom_id: str | None = None


@dataclass(frozen=True, slots=True)
class FactDecisions:
    """One decision for each question, and the cost of the call.

    >>> found = FactDecisions((Decision(Verdict.NEW), Decision(Verdict.SAME, "atom_1")))
    >>> [decision.verdict.value for decision in found.decisions]
    ['new', 'same']
    """

    decisions: tuple[Decision, ...]
    usage: tuple[ChatUsage, ...] = ()


class Extractor(Protocol):
    """Extracts facts from a window, with at most one model call, not counting corrections of invalid output.

    Raises `ExtractionError` if the model's output is still invalid after the corrections. An extractor that can also
    compare facts with known atoms has `decide`, which takes all questions of a window at once. Without it, facts that
    are not clearly the same are new.

    >>> from tellback import Tellback
    >>> class Hobbies:
    ...     async def extract(self, window: Window) -> Extraction:
    ...         said = [each for each in window.messages if each.role == "user" and "I keep" in each.text]
    ...         return Extraction(tuple(ExtractedFact(m.text, Category("hobby", "FACT"), (m.id,)) for m in said))
    >>> with Tellback(":memory:", extractor=Hobbies()) as tb:
    ...     maya = tb.user("maya")
    ...     reply = maya.chat("I keep bees.")
    ...     run = maya.memory.run_extraction_for_conversation(reply.conversation_id)
    ...     tb.jobs.drain()
    ...     [space] = maya.memory.list_spaces()
    ...     atoms = maya.memory.list_atoms(space.id)
    >>> [atom.text for atom in atoms]
    ['I keep bees.']
    """

    async def extract(self, window: Window) -> Extraction: ...


class Decider(Protocol):
    """Compares facts with known atoms, in one model call.

    An extractor with this method is also a decider:

    >>> import asyncio
    >>> from tellback import Tellback
    >>> class Latest:
    ...     async def decide(self, questions: Sequence[Question]) -> FactDecisions:
    ...         return FactDecisions(tuple(Decision(Verdict.REPLACES, each.candidates[0].id) for each in questions))
    >>> with Tellback(":memory:") as tb:
    ...     memory = tb.user("maya").memory
    ...     known = memory.add_atom(memory.create_space("life").id, "Maya lives in Lisbon.")
    >>> fact = ExtractedFact("Maya lives in Porto.", Category("home", "FACT"), ("msg_1",))
    >>> [decision] = asyncio.run(Latest().decide([Question(fact, (known,))])).decisions
    >>> decision.verdict.value, decision.atom_id == known.id
    ('replaces', True)
    """

    async def decide(self, questions: Sequence[Question]) -> FactDecisions: ...


def as_decider(extractor: Any) -> Decider | None:
    """Return the extractor if it also has `decide`, otherwise None.

    >>> as_decider(object()) is None
    True
    """
    return extractor if hasattr(extractor, "decide") else None
