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
"""What is dated before is no date of anyone's life."""


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a conversation to extract from.

    `before` are the last messages before it, which help to understand it; nothing is extracted from them. Both are as
    the person saw them: no system messages, no tool results, nothing internal.
    """

    conversation: Conversation
    messages: tuple[StoredMessage, ...]
    before: tuple[StoredMessage, ...] = ()
    version: str = "v1"


class Change(StrEnum):
    """How a fact relates to what was so before: it says nothing of that, what was so has changed, or it never was."""

    NONE = "none"
    CHANGED = "changed"
    CORRECTED = "corrected"


@dataclass(frozen=True, slots=True)
class ExtractedEntity:
    """Something that facts are about."""

    name: str
    type: EntityType
    aliases: tuple[str, ...] = ()
    description: str | None = None


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """Something worth remembering.

    `message_ids` cite the window's messages. `valid_from` is when it became true, if that was said, and `valid_to` when
    it ended. `entities` are names of the extraction's entities. `subject` and `attribute` say what it is about ("user",
    "home city") and `value` what that is ("Lisbon"); `single` that there is one such value at a time. `change` says how
    it relates to what was so before.
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
    """A fact that a model gave and that is not remembered, and why."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a window says that is worth remembering. `usage` has an entry for each model call."""

    facts: tuple[ExtractedFact, ...] = ()
    entities: tuple[ExtractedEntity, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    usage: tuple[ChatUsage, ...] = ()


class Verdict(StrEnum):
    """What a fact is to an atom that is known already."""

    SAME = "same"
    REPLACES = "replaces"
    CORRECTS = "corrects"
    NEW = "new"


@dataclass(frozen=True, slots=True)
class Question:
    """A fact that is so from `valid_from` on, and what is known that it may repeat or replace."""

    fact: ExtractedFact
    candidates: tuple[Atom, ...]
    valid_from: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What a fact is: new, or to the candidate of that id the same, a change or a correction."""

    verdict: Verdict
    atom_id: str | None = None


@dataclass(frozen=True, slots=True)
class FactDecisions:
    """One decision for each question, and what the call cost."""

    decisions: tuple[Decision, ...]
    usage: tuple[ChatUsage, ...] = ()


class Extractor(Protocol):
    """Reads facts out of a window, in one model call if it needs one.

    Raises `ExtractionError` if what the model says cannot be read, also after it was told so. An extractor that can
    also judge what a fact is to what is known has `decide`, which takes all questions of a window at once; where it has
    none, facts that are not plainly the same are new.
    """

    async def extract(self, window: Window) -> Extraction: ...


class Decider(Protocol):
    """Judges facts against what is known, in one model call."""

    async def decide(self, questions: Sequence[Question]) -> FactDecisions: ...


def as_decider(extractor: Any) -> Decider | None:
    """The extractor, if it judges as well."""
    return extractor if hasattr(extractor, "decide") else None
