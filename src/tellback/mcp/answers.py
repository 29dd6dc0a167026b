"""What each tool gives: values with the names that the REST interface uses, and a text that says the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from tellback.mcp.schemas import OmittedNone, ToolOutput
from tellback.memory.tools.results import MAX_CITED_MESSAGES, timeline_status, truncate_text
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.memory import Atom, Entity

MAX_ATOM_LENGTH = 2_000
MAX_MESSAGE_LENGTH = 6_000
MAX_NAMES_LISTED = 10
MAX_TOOL_NAME_LENGTH = 100


class CategoryItem(ToolOutput):
    """What sort of memory it is: its name, and its kind."""

    name: str
    kind: str


class MemoryItem(ToolOutput):
    """A memory: what it says, since when, and where it was said."""

    id: str
    text: str
    category: CategoryItem
    importance: int
    valid_from: str
    valid_to: str | OmittedNone = None
    score: float | OmittedNone = Field(default=None, description="How well it answers, from 0 to 1.")
    standing: str | OmittedNone = Field(default=None, description="current, over, superseded or upcoming.")
    superseded_by: str | OmittedNone = None
    source_conversation_id: str | OmittedNone = None
    source_message_ids: list[str] = Field(default_factory=list)

    @classmethod
    def from_atom(cls, atom: Atom, *, score: float | None = None, now: datetime | None = None) -> MemoryItem:
        """An atom as it is shown; with `now`, where it stands in time."""
        citation = atom.citations[0] if atom.citations else None
        return cls(
            id=atom.id,
            text=truncate_text(atom.text, MAX_ATOM_LENGTH),
            category=CategoryItem(name=atom.category.name, kind=atom.category.kind),
            importance=atom.importance,
            valid_from=format_timestamp(atom.valid_from),
            valid_to=None if atom.valid_to is None else format_timestamp(atom.valid_to),
            score=None if score is None else round(score, 3),
            source_conversation_id=None if citation is None else citation.conversation_id,
            source_message_ids=[] if citation is None else list(citation.message_ids[:MAX_CITED_MESSAGES]),
            standing=None if now is None else timeline_status(atom, now)["status"],
            superseded_by=atom.superseded_by,
        )

    def to_text(self) -> str:
        """On one line: memories may hold line breaks, and must not look like several."""
        until = "" if self.valid_to is None else f" until {format_date(self.valid_to)}"
        facts = [f"since {format_date(self.valid_from)}{until}", self.category.name, f"importance {self.importance}"]
        if self.standing is not None:
            successor = "" if self.superseded_by is None else f" by {self.superseded_by}"
            facts.append(f"{self.standing}{successor}")
        return f"[{self.id}] {to_one_line(self.text)} ({', '.join(facts)}{self._format_source()})"

    def _format_source(self) -> str:
        if self.source_conversation_id is None:
            return ""
        messages = f", {', '.join(self.source_message_ids)}" if self.source_message_ids else ""
        return f"; said in {self.source_conversation_id}{messages}"


class MemoryListOutput(ToolOutput):
    """Memories that were found."""

    memories: list[MemoryItem]
    left_out: int = Field(default=0, description="How many were found and not given, for the answer would be too long.")
    note: str | OmittedNone = None

    def to_text(self) -> str:
        """One memory a line."""
        return format_listing(self.memories, "memory", "memories", self.left_out, self.note)


class EntityItem(ToolOutput):
    """A person, a place or another thing that memories are about."""

    id: str
    type: str
    canonical_name: str
    description: str | OmittedNone = None
    aliases: list[str] = Field(default_factory=list)
    atom_count: int = Field(default=0, description="How many memories are about it.")
    last_seen_at: str | OmittedNone = None

    @classmethod
    def from_entity(cls, entity: Entity) -> EntityItem:
        """An entity as it is shown."""
        return cls(
            id=entity.id,
            type=entity.type,
            canonical_name=entity.canonical_name,
            description=None if entity.description is None else truncate_text(entity.description),
            aliases=list(entity.aliases[:MAX_NAMES_LISTED]),
            atom_count=entity.atom_count,
            last_seen_at=None if entity.last_seen_at is None else format_timestamp(entity.last_seen_at),
        )

    def to_text(self) -> str:
        """On one line."""
        aliases = f", also {', '.join(map(to_one_line, self.aliases))}" if self.aliases else ""
        description = "" if self.description is None else f": {to_one_line(self.description)}"
        last_seen = "" if self.last_seen_at is None else f", last on {format_date(self.last_seen_at)}"
        name = to_one_line(self.canonical_name)
        return f"[{self.id}] {name} ({self.type}{aliases}; {self.atom_count} memories{last_seen}){description}"


class EntityListOutput(ToolOutput):
    """Entities that were found."""

    entities: list[EntityItem]
    left_out: int = Field(default=0, description="How many were found and not given, for the answer would be too long.")
    note: str | OmittedNone = None

    def to_text(self) -> str:
        """One entity a line."""
        return format_listing(self.entities, "entity", "entities", self.left_out, self.note)


class ConversationItem(ToolOutput):
    """A conversation, without what was said in it."""

    id: str
    namespace: str
    status: str
    title: str | OmittedNone = None
    created_at: str
    updated_at: str
    last_seq: int = Field(default=0, description="The number of its newest message.")
    rolling_summary: str | OmittedNone = None

    @classmethod
    def from_conversation(cls, conversation: Conversation) -> ConversationItem:
        """A conversation as it is shown."""
        return cls(
            id=conversation.id,
            namespace=conversation.namespace,
            status=conversation.status,
            title=None if conversation.title is None else truncate_text(conversation.title),
            created_at=format_timestamp(conversation.created_at),
            updated_at=format_timestamp(conversation.updated_at),
            last_seq=conversation.last_seq,
            rolling_summary=None
            if conversation.rolling_summary is None
            else replace_surrogates(truncate_text(conversation.rolling_summary)),
        )

    def to_text(self) -> str:
        """On one line."""
        title = f" {to_one_line(self.title)}" if self.title else ""
        summary = f": {to_one_line(self.rolling_summary)}" if self.rolling_summary else ""
        facts = f"{self.namespace}, {self.status}, {self.last_seq} messages, last on {format_date(self.updated_at)}"
        return f"[{self.id}]{title} ({to_one_line(facts)}){summary}"


class MessageItem(ToolOutput):
    """A message of a conversation."""

    id: str
    seq: int
    role: str
    text: str
    created_at: str

    @classmethod
    def from_message(cls, message: StoredMessage) -> MessageItem:
        """A message as it is shown: its words, and which tools it calls."""
        calls = [f"(calls {call.name[:MAX_TOOL_NAME_LENGTH]})" for call in message.tool_calls[:MAX_NAMES_LISTED]]
        text = truncate_text(message.text, MAX_MESSAGE_LENGTH)
        return cls(
            id=message.id,
            seq=message.seq,
            role=message.role,
            text=replace_surrogates("\n".join(filter(None, [text, *calls]))),
            created_at=format_timestamp(message.created_at),
        )

    def to_text(self) -> str:
        """Who said what, the lines after the first one indented."""
        text = "\n    ".join(self.text.splitlines())
        return f"{self.seq}. [{self.id}] {self.role}, {format_minute(self.created_at)}: {text}"


class ConversationsOutput(ToolOutput):
    """The list of conversations, or one with its messages."""

    conversations: list[ConversationItem] = Field(
        description="The newest first; only one, where its messages are given."
    )
    messages: list[MessageItem] | OmittedNone = Field(
        default=None, description="The messages of the conversation, the oldest first."
    )
    next_before: str | OmittedNone = Field(default=None, description="Pass it as `before` to list older conversations.")
    earlier_seq: int | OmittedNone = Field(
        default=None, description="Pass it as `before_seq` to read earlier messages."
    )
    later_seq: int | OmittedNone = Field(default=None, description="Pass it as `after_seq` to read later messages.")
    note: str | OmittedNone = None

    def to_text(self) -> str:
        """The list, or who said what."""
        lines = [each.to_text() for each in (*self.conversations, *(self.messages or ()))]
        if self.next_before is not None:
            lines.append(f"There are older ones: before={self.next_before}")
        if self.earlier_seq is not None:
            lines.append(f"There are earlier messages: before_seq={self.earlier_seq}")
        if self.later_seq is not None:
            lines.append(f"There are later messages: after_seq={self.later_seq}")
        return "\n".join([*lines, *filter(None, [self.note])])


class RememberOutput(ToolOutput):
    """What came of remembering."""

    status: str = Field(description="remembered, or known already.")
    memory: MemoryItem
    space: str
    replaced: str | OmittedNone = None

    def to_text(self) -> str:
        """What was done, and the memory."""
        outcome = {"remembered": "Remembered"}.get(self.status, "This was known already")
        replacement = "" if self.replaced is None else f" in the place of {self.replaced}"
        return f"{outcome}{replacement}: {self.memory.to_text()}"


class ForgetOutput(ToolOutput):
    """What came of forgetting."""

    status: str = Field(description="forgotten, or forgotten already.")
    id: str

    def to_text(self) -> str:
        """What was done."""
        if self.status == "forgotten":
            return f"Forgotten: {self.id} is not recalled any more."
        return f"{self.id} was forgotten before."


def format_listing(items: Sequence[ToolOutput], singular: str, plural: str, left_out: int, note: str | None) -> str:
    """Lines with what was found, how many that is, and what was not given."""
    lines = [each.to_text() for each in items]
    if lines:
        lines.insert(0, f"{len(lines)} {singular if len(lines) == 1 else plural}:")
    if left_out:
        lines.append(f"{left_out} more were left out, for this would be too long: ask for less, or more precisely.")
    return "\n".join([*lines, *filter(None, [note])])


def to_one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def replace_surrogates(text: str) -> str:
    """A text that can be sent: what people said may hold half a character."""
    return text.encode(errors="replace").decode()


def format_timestamp(value: datetime) -> str:
    """A moment as it is given to programs."""
    return value.isoformat(timespec="seconds").replace("+00:00", "Z")


def format_date(timestamp: str) -> str:
    """The day of a moment."""
    return timestamp[:10]


def format_minute(timestamp: str) -> str:
    """The day and time of a moment, in UTC."""
    return timestamp[:16].replace("T", " ")
