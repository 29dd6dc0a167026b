"""What each tool gives: values with the names that the REST interface uses, and a text that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from tellback.mcp.schemas import Answer, Nothing
from tellback.memory.tools.results import MESSAGES_CITED, shortened, standing
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom, Entity

ATOM_LENGTH = 2_000
MESSAGE_LENGTH = 6_000
NAMES = 10
NAME_LENGTH = 100


class CategoryOf(Answer):
    """What sort of memory it is: its name, and its kind."""

    name: str
    kind: str


class Memory(Answer):
    """A memory: what it says, since when, and where it was said."""

    id: str
    text: str
    category: CategoryOf
    importance: int
    valid_from: str
    valid_to: str | Nothing = None
    score: float | Nothing = Field(default=None, description="How well it answers, from 0 to 1.")
    standing: str | Nothing = Field(default=None, description="current, over, superseded or upcoming.")
    superseded_by: str | Nothing = None
    source_conversation_id: str | Nothing = None
    source_message_ids: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, atom: Atom, *, score: float | None = None, now: datetime | None = None) -> Memory:
        """An atom as it is shown; with `now`, where it stands in time."""
        cited = atom.citations[0] if atom.citations else None
        return cls(
            id=atom.id,
            text=shortened(atom.text, ATOM_LENGTH),
            category=CategoryOf(name=atom.category.name, kind=atom.category.kind),
            importance=atom.importance,
            valid_from=moment(atom.valid_from),
            valid_to=None if atom.valid_to is None else moment(atom.valid_to),
            score=None if score is None else round(score, 3),
            source_conversation_id=None if cited is None else cited.conversation_id,
            source_message_ids=[] if cited is None else list(cited.message_ids[:MESSAGES_CITED]),
            standing=None if now is None else standing(atom, now)["status"],
            superseded_by=atom.superseded_by,
        )

    def written(self) -> str:
        """On one line: memories may hold line breaks, and must not look like several."""
        until = "" if self.valid_to is None else f" until {day(self.valid_to)}"
        facts = [f"since {day(self.valid_from)}{until}", self.category.name, f"importance {self.importance}"]
        if self.standing is not None:
            by = "" if self.superseded_by is None else f" by {self.superseded_by}"
            facts.append(f"{self.standing}{by}")
        return f"[{self.id}] {one_line(self.text)} ({', '.join(facts)}{self._source()})"

    def _source(self) -> str:
        if self.source_conversation_id is None:
            return ""
        messages = f", {', '.join(self.source_message_ids)}" if self.source_message_ids else ""
        return f"; said in {self.source_conversation_id}{messages}"


class Memories(Answer):
    """Memories that were found."""

    memories: list[Memory]
    left_out: int = Field(default=0, description="How many were found and not given, for the answer would be too long.")
    note: str | Nothing = None

    def written(self) -> str:
        """One memory a line."""
        return listing(self.memories, "memory", "memories", self.left_out, self.note)


class EntityFound(Answer):
    """A person, a place or another thing that memories are about."""

    id: str
    type: str
    canonical_name: str
    description: str | Nothing = None
    aliases: list[str] = Field(default_factory=list)
    atom_count: int = Field(default=0, description="How many memories are about it.")
    last_seen_at: str | Nothing = None

    @classmethod
    def of(cls, entity: Entity) -> EntityFound:
        """An entity as it is shown."""
        return cls(
            id=entity.id,
            type=entity.type,
            canonical_name=entity.canonical_name,
            description=None if entity.description is None else shortened(entity.description),
            aliases=list(entity.aliases[:NAMES]),
            atom_count=entity.atom_count,
            last_seen_at=None if entity.last_seen_at is None else moment(entity.last_seen_at),
        )

    def written(self) -> str:
        """On one line."""
        also = f", also {', '.join(map(one_line, self.aliases))}" if self.aliases else ""
        what = "" if self.description is None else f": {one_line(self.description)}"
        seen = "" if self.last_seen_at is None else f", last on {day(self.last_seen_at)}"
        name = one_line(self.canonical_name)
        return f"[{self.id}] {name} ({self.type}{also}; {self.atom_count} memories{seen}){what}"


class Entities(Answer):
    """Entities that were found."""

    entities: list[EntityFound]
    left_out: int = Field(default=0, description="How many were found and not given, for the answer would be too long.")
    note: str | Nothing = None

    def written(self) -> str:
        """One entity a line."""
        return listing(self.entities, "entity", "entities", self.left_out, self.note)


class Talk(Answer):
    """A conversation, without what was said in it."""

    id: str
    namespace: str
    status: str
    title: str | Nothing = None
    created_at: str
    updated_at: str
    last_seq: int = Field(default=0, description="The number of its newest message.")
    rolling_summary: str | Nothing = None

    @classmethod
    def of(cls, talk: Conversation) -> Talk:
        """A conversation as it is shown."""
        return cls(
            id=talk.id,
            namespace=talk.namespace,
            status=talk.status,
            title=None if talk.title is None else shortened(talk.title),
            created_at=moment(talk.created_at),
            updated_at=moment(talk.updated_at),
            last_seq=talk.last_seq,
            rolling_summary=None if talk.rolling_summary is None else sendable(shortened(talk.rolling_summary)),
        )

    def written(self) -> str:
        """On one line."""
        title = f" {one_line(self.title)}" if self.title else ""
        summary = f": {one_line(self.rolling_summary)}" if self.rolling_summary else ""
        facts = f"{self.namespace}, {self.status}, {self.last_seq} messages, last on {day(self.updated_at)}"
        return f"[{self.id}]{title} ({one_line(facts)}){summary}"


class Said(Answer):
    """A message of a conversation."""

    id: str
    seq: int
    role: str
    text: str
    created_at: str

    @classmethod
    def of(cls, message: StoredMessage) -> Said:
        """A message as it is shown: its words, and which tools it calls."""
        called = [f"(calls {call.name[:NAME_LENGTH]})" for call in message.tool_calls[:NAMES]]
        text = shortened(message.text, MESSAGE_LENGTH)
        return cls(
            id=message.id,
            seq=message.seq,
            role=message.role,
            text=sendable("\n".join(filter(None, [text, *called]))),
            created_at=moment(message.created_at),
        )

    def written(self) -> str:
        """Who said what, the lines after the first one indented."""
        text = "\n    ".join(self.text.splitlines())
        return f"{self.seq}. [{self.id}] {self.role}, {minute(self.created_at)}: {text}"


class Conversations(Answer):
    """The list of conversations, or one with its messages."""

    conversations: list[Talk] = Field(description="The newest first; only one, where its messages are given.")
    messages: list[Said] | Nothing = Field(
        default=None, description="The messages of the conversation, the oldest first."
    )
    next_before: str | Nothing = Field(default=None, description="Pass it as `before` to list older conversations.")
    earlier_seq: int | Nothing = Field(default=None, description="Pass it as `before_seq` to read earlier messages.")
    later_seq: int | Nothing = Field(default=None, description="Pass it as `after_seq` to read later messages.")
    note: str | Nothing = None

    def written(self) -> str:
        """The list, or who said what."""
        lines = [each.written() for each in (*self.conversations, *(self.messages or ()))]
        if self.next_before is not None:
            lines.append(f"There are older ones: before={self.next_before}")
        if self.earlier_seq is not None:
            lines.append(f"There are earlier messages: before_seq={self.earlier_seq}")
        if self.later_seq is not None:
            lines.append(f"There are later messages: after_seq={self.later_seq}")
        return "\n".join([*lines, *filter(None, [self.note])])


class Remembered(Answer):
    """What came of remembering."""

    status: str = Field(description="remembered, or known already.")
    memory: Memory
    space: str
    replaced: str | Nothing = None

    def written(self) -> str:
        """What was done, and the memory."""
        done = {"remembered": "Remembered"}.get(self.status, "This was known already")
        instead = "" if self.replaced is None else f" in the place of {self.replaced}"
        return f"{done}{instead}: {self.memory.written()}"


class Forgotten(Answer):
    """What came of forgetting."""

    status: str = Field(description="forgotten, or forgotten already.")
    id: str

    def written(self) -> str:
        """What was done."""
        if self.status == "forgotten":
            return f"Forgotten: {self.id} is not recalled any more."
        return f"{self.id} was forgotten before."


def listing(found: Sequence[Answer], one: str, many: str, left_out: int, note: str | None) -> str:
    """Lines with what was found, how many that is, and what was not given."""
    lines = [each.written() for each in found]
    if lines:
        lines.insert(0, f"{len(lines)} {one if len(lines) == 1 else many}:")
    if left_out:
        lines.append(f"{left_out} more were left out, for this would be too long: ask for less, or more precisely.")
    return "\n".join([*lines, *filter(None, [note])])


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def sendable(text: str) -> str:
    """A text that can be sent: what people said may hold half a character."""
    return text.encode(errors="replace").decode()


def moment(value: datetime) -> str:
    """A moment as it is given to programs."""
    return value.isoformat(timespec="seconds").replace("+00:00", "Z")


def day(written: str) -> str:
    """The day of a moment."""
    return written[:10]


def minute(written: str) -> str:
    """The day and time of a moment, in UTC."""
    return written[:16].replace("T", " ")
