"""Input and output models of the tools, their JSON schemas, and the size limit of an output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema
from pydantic_core import core_schema

from tellback.memory.memory import DEFAULT_SPACE_NAME
from tellback.memory.templates import truncate_text
from tellback.memory.tools import (
    BEGIN_FIELD,
    CATEGORY_FIELD,
    DATE_FORMAT,
    MAX_HITS,
    MAX_INPUT_TEXT,
    MAX_RESULT_TEXT,
    TOPIC_FIELD,
    VALID_FROM_FIELD,
    format_moment,
    render_source,
)
from tellback.tools.schema import InvalidInput
from tellback.types.conversations import StoredMessage
from tellback.types.memory import Atom
from tellback.validation import NAME_LENGTH

MAX_PROBLEMS = 5
MAX_DATE_LENGTH = 40
MAX_ID_LENGTH = 200
MAX_LISTED = 50
MAX_ATOM_LENGTH = 2_000
MAX_MESSAGE_LENGTH = 6_000
MAX_NAMES_LISTED = 10
MAX_TOOL_NAME_LENGTH = 100
MAX_OUTPUT_CHARACTERS = 30_000
"""What the parts of one answer take as JSON, at most. Its text takes about as much again."""

OmittedNone = SkipJsonSchema[None]
"""None that schemas do not speak of: some models write null for what they leave out, and answers leave it out."""


def replace_surrogates(text: str) -> str:
    """A text that can be sent: what people said may hold half a character."""
    return text.encode(errors="replace").decode()


def _shorten(text: Any) -> Any:
    return replace_surrogates(truncate_text(text, MAX_RESULT_TEXT)) if isinstance(text, str) else text


def _format_timestamp(moment: Any) -> Any:
    return format_moment(moment).replace("+00:00", "Z") if isinstance(moment, datetime) else moment


ShortText = Annotated[str, BeforeValidator(_shorten)]
Timestamp = Annotated[str, BeforeValidator(_format_timestamp)]


class ToolInput(BaseModel):
    """What a tool is called with. Names that it does not know are refused, null is the same as leaving it out."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolOutput(BaseModel):
    """What a tool gives: structured, in camelCase, and as a text to read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    @classmethod
    def of(cls, value: Any, **more: Any) -> Self:
        """A value as it is shown, by its fields of the same names, and `more` that it does not know itself."""
        return cls.model_validate(value, from_attributes=True).model_copy(update=more)

    def to_text(self) -> str:
        """The answer as a text."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """The answer as JSON; what is not known is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def build_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model, without what a reader learns nothing from."""
    schema = model.model_json_schema(schema_generator=_PlainJsonSchema)
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def parse_arguments(model: type[ToolInput], arguments: dict[str, Any] | None) -> ToolInput:
    """A tool's arguments, checked; `InvalidInput` says what is wrong with them."""
    present = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        return model.model_validate(present)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [problem for problem in found if problem["type"] != "none_required"]
        sentences = [
            f"{_argument_name(problem['loc'])}: {_problem_text(problem['msg'])}" for problem in problems[:MAX_PROBLEMS]
        ]
        if len(problems) > MAX_PROBLEMS:
            sentences.append(f"and {len(problems) - MAX_PROBLEMS} more")
        raise InvalidInput("; ".join(sentences)) from None


def _argument_name(location: tuple[int | str, ...]) -> str:
    """The argument it is about, which may have any name."""
    return ascii(str(location[0])[:80])[1:-1] if location else "arguments"


def _problem_text(text: str) -> str:
    if text == "Extra inputs are not permitted":
        return "there is no such argument"
    return text[:300]


class _PlainJsonSchema(GenerateJsonSchema):
    """Schemas as a person would write them: no titles made of names, no defaults that are null."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", ...) is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_INPUT_TEXT)]
DateText = Annotated[str, Field(min_length=4, max_length=MAX_DATE_LENGTH)]
IdText = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]
SequenceNumber = Annotated[int, Field(ge=0, le=2**53)]
ImportanceLevel = Annotated[int, Field(ge=1, le=5)]
SpaceName = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]
SearchedSpace = Annotated[SpaceName, Field(description="The name of the part of the memory to look in.")]
LeftOutCount = Annotated[int, Field(description="How many were found and not given, for the answer would be too long.")]


def optional(description: str, alias: str | None = None) -> Any:
    """A field that may be left out."""
    return Field(default=None, description=description, alias=alias)


CategoryKindName = Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]
"""What sort of thing may be remembered: every kind but patterns, which are found."""

EntityTypeName = Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"]
"""What an entity may be."""


class RecallInput(ToolInput):
    """A question to the memory."""

    query: QuestionText = Field(description="What to look for: a question, or the words it would be told in.")
    limit: int = Field(default=5, ge=1, le=MAX_HITS, description="How many memories to give at most.")
    space: SearchedSpace = DEFAULT_SPACE_NAME
    valid_at: DateText | OmittedNone = optional(f"Give what was true at that time: {DATE_FORMAT}.")


class TimelineInput(ToolInput):
    """A look at how things changed."""

    query: QuestionText | OmittedNone = optional(TOPIC_FIELD)
    entity: Annotated[str, Field(min_length=1, max_length=500)] | OmittedNone = optional(
        "The person or thing it is about, by name, or by an id that starts with ent_."
    )
    from_: DateText | OmittedNone = optional(BEGIN_FIELD, "from")
    to: DateText | OmittedNone = optional(f"Where it ends: {DATE_FORMAT}. A day alone is in it to its end.")
    limit: int = Field(default=10, ge=1, le=MAX_LISTED, description="How many memories to give at most.")
    space: SearchedSpace = DEFAULT_SPACE_NAME


class EntitiesInput(ToolInput):
    """A search for what memories are about."""

    query: QuestionText | OmittedNone = optional("A name or a description; without it, those most spoken of.")
    type: EntityTypeName | OmittedNone = optional("Only entities of this type.")
    limit: int = Field(default=20, ge=1, le=MAX_LISTED, description="How many entities to give at most.")
    space: SearchedSpace = DEFAULT_SPACE_NAME


class ConversationsInput(ToolInput):
    """A look at the list of conversations, or into one."""

    conversation_id: IdText | OmittedNone = optional(
        "The conversation to read; without it, the conversations are listed."
    )
    limit: int = Field(
        default=20, ge=1, le=MAX_LISTED, description="How many conversations or messages to give at most."
    )
    namespace: SpaceName | OmittedNone = optional("List only conversations of this kind.")
    before: IdText | OmittedNone = optional("List what is older than the conversation of this id: `nextBefore`.")
    before_seq: SequenceNumber | OmittedNone = optional("Read the messages before this number: `earlierSeq`.")
    after_seq: SequenceNumber | OmittedNone = optional("Read the messages after this number: `laterSeq`.")


class RememberInput(ToolInput):
    """Something to keep."""

    text: QuestionText = Field(
        description="One thing, in a short sentence that can be understood by itself, such as 'Maya is vegetarian.'"
    )
    category: CategoryKindName | OmittedNone = optional(CATEGORY_FIELD)
    importance: ImportanceLevel | OmittedNone = optional("From 1 (a detail) to 5 (vital): 3, if left out.")
    valid_from: DateText | OmittedNone = optional(VALID_FROM_FIELD)
    replaces: IdText | OmittedNone = optional("The id of the memory that it corrects or updates, if any.")
    space: SpaceName = Field(
        default=DEFAULT_SPACE_NAME, description="The part of the memory to keep it in; made if it is missing."
    )


class ForgetInput(ToolInput):
    """Something to forget."""

    atom_id: IdText = Field(description="The id of the memory, as recall or timeline gave it.")


class CategoryItem(ToolOutput):
    """What sort of memory it is: its name, and its kind."""

    name: str
    kind: str


class MemoryItem(ToolOutput):
    """A memory: what it says, since when, and where it was said."""

    id: str
    text: Annotated[str, BeforeValidator(lambda text: truncate_text(text, MAX_ATOM_LENGTH))]
    category: CategoryItem
    importance: int
    valid_from: Timestamp
    valid_to: Timestamp | OmittedNone = None
    score: float | OmittedNone = optional("How well it answers, from 0 to 1.")
    standing: str | OmittedNone = optional("current, over, superseded or upcoming.")
    superseded_by: str | OmittedNone = None
    source_conversation_id: str | OmittedNone = None
    source_message_ids: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, value: Atom, **more: Any) -> Self:
        """An atom, with the place where it was first said."""
        source = render_source(value) or {"conversation_id": None, "message_ids": []}
        return super().of(value, **{f"source_{name}": each for name, each in source.items()}, **more)

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
    left_out: LeftOutCount = 0
    note: str | OmittedNone = None

    def to_text(self) -> str:
        """One memory a line."""
        return format_listing(self.memories, "memory", "memories", self.left_out, self.note)


class EntityItem(ToolOutput):
    """A person, a place or another thing that memories are about."""

    id: str
    type: str
    canonical_name: str
    description: ShortText | OmittedNone = None
    aliases: Annotated[list[str], BeforeValidator(lambda names: list(names[:MAX_NAMES_LISTED]))] = Field(
        default_factory=list
    )
    atom_count: int = Field(default=0, description="How many memories are about it.")
    last_seen_at: Timestamp | OmittedNone = None

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
    left_out: LeftOutCount = 0
    note: str | OmittedNone = None

    def to_text(self) -> str:
        """One entity a line."""
        return format_listing(self.entities, "entity", "entities", self.left_out, self.note)


class ConversationItem(ToolOutput):
    """A conversation, without what was said in it."""

    id: str
    namespace: str
    status: str
    title: ShortText | OmittedNone = None
    created_at: Timestamp
    updated_at: Timestamp
    last_seq: int = Field(default=0, description="The number of its newest message.")
    rolling_summary: ShortText | OmittedNone = None

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
            created_at=_format_timestamp(message.created_at),
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
    messages: list[MessageItem] | OmittedNone = optional("The messages of the conversation, the oldest first.")
    next_before: str | OmittedNone = optional("Pass it as `before` to list older conversations.")
    earlier_seq: int | OmittedNone = optional("Pass it as `before_seq` to read earlier messages.")
    later_seq: int | OmittedNone = optional("Pass it as `after_seq` to read later messages.")
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


def format_date(timestamp: str) -> str:
    """The day of a moment."""
    return timestamp[:10]


def format_minute(timestamp: str) -> str:
    """The day and time of a moment, in UTC."""
    return timestamp[:16].replace("T", " ")


Item = TypeVar("Item", bound=ToolOutput)


def take_fitting(items: Iterable[Item], max_characters: int = MAX_OUTPUT_CHARACTERS) -> list[Item]:
    """The first parts of an answer, as many as fit; always one, if there is any."""
    taken: list[Item] = []
    for item in items:
        max_characters -= len(item.model_dump_json(by_alias=True, exclude_none=True))
        if max_characters < 0 and taken:
            break
        taken.append(item)
    return taken
