"""Types of arguments, output models of the tools, JSON schemas, and the size limit of an output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, SkipJsonSchema
from pydantic_core import core_schema

from tellback.memory.templates import truncate_text
from tellback.memory.tools import (
    MAX_INPUT_TEXT,
    MAX_RESULT_TEXT,
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


def parse_arguments(model: type[ToolInput], arguments: dict[str, Any] | None) -> dict[str, Any]:
    """A tool's arguments by name, checked; `InvalidInput` says what is wrong with them."""
    present = {name: value for name, value in (arguments or {}).items() if value is not None}
    try:
        return dict(model.model_validate(present))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        problems = [problem for problem in found if problem["type"] != "none_required"]
        sentences = [_format_problem(problem["loc"], problem["msg"]) for problem in problems[:MAX_PROBLEMS]]
        if len(problems) > MAX_PROBLEMS:
            sentences.append(f"and {len(problems) - MAX_PROBLEMS} more")
        raise InvalidInput("; ".join(sentences)) from None


def _format_problem(location: tuple[int | str, ...], text: str) -> str:
    name = ascii(str(location[0])[:80])[1:-1] if location else "arguments"  # an argument may have any name
    return f"{name}: {'there is no such argument' if text == 'Extra inputs are not permitted' else text[:300]}"


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

CategoryKindName = Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]
"""What sort of thing may be remembered: every kind but patterns, which are found."""

EntityTypeName = Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"]
"""What an entity may be."""


def optional(description: str, alias: str | None = None) -> Any:
    """A field that may be left out."""
    return Field(default=None, description=description, alias=alias)


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
        until = "" if self.valid_to is None else f" until {_format_date(self.valid_to)}"
        facts = [f"since {_format_date(self.valid_from)}{until}", self.category.name, f"importance {self.importance}"]
        if self.standing is not None:
            successor = "" if self.superseded_by is None else f" by {self.superseded_by}"
            facts.append(f"{self.standing}{successor}")
        return f"[{self.id}] {_to_one_line(self.text)} ({', '.join(facts)}{self._format_source()})"

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
        aliases = f", also {', '.join(map(_to_one_line, self.aliases))}" if self.aliases else ""
        description = "" if self.description is None else f": {_to_one_line(self.description)}"
        last_seen = "" if self.last_seen_at is None else f", last on {_format_date(self.last_seen_at)}"
        name = _to_one_line(self.canonical_name)
        return f"[{self.id}] {name} ({self.type}{aliases}; {self.atom_count} memories{last_seen}){description}"


class EntityListOutput(ToolOutput):
    """Entities that were found."""

    entities: list[EntityItem]
    left_out: LeftOutCount = 0
    note: str | OmittedNone = None

    def to_text(self) -> str:
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
        title = f" {_to_one_line(self.title)}" if self.title else ""
        summary = f": {_to_one_line(self.rolling_summary)}" if self.rolling_summary else ""
        facts = f"{self.namespace}, {self.status}, {self.last_seq} messages, last on {_format_date(self.updated_at)}"
        return f"[{self.id}]{title} ({_to_one_line(facts)}){summary}"


class MessageItem(ToolOutput):
    """A message of a conversation."""

    id: str
    seq: int
    role: str
    text: Annotated[str, BeforeValidator(replace_surrogates)]
    created_at: Timestamp

    @classmethod
    def of(cls, value: StoredMessage, **more: Any) -> Self:
        """A message: its words, and which tools it calls."""
        calls = [f"(calls {call.name[:MAX_TOOL_NAME_LENGTH]})" for call in value.tool_calls[:MAX_NAMES_LISTED]]
        text = truncate_text(value.text, MAX_MESSAGE_LENGTH)
        return super().of(value, text=replace_surrogates("\n".join(filter(None, [text, *calls]))), **more)

    def to_text(self) -> str:
        """Who said what, the lines after the first one indented."""
        text = "\n    ".join(self.text.splitlines())
        return f"{self.seq}. [{self.id}] {self.role}, {_format_minute(self.created_at)}: {text}"


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
        lines = [each.to_text() for each in (*self.conversations, *(self.messages or ()))]
        cursors = (
            ("older ones", "before", self.next_before),
            ("earlier messages", "before_seq", self.earlier_seq),
            ("later messages", "after_seq", self.later_seq),
        )
        lines += [f"There are {what}: {name}={cursor}" for what, name, cursor in cursors if cursor is not None]
        return "\n".join([*lines, *filter(None, [self.note])])


class RememberOutput(ToolOutput):
    """What came of remembering."""

    status: str = Field(description="remembered, or known already.")
    memory: MemoryItem
    space: str
    replaced: str | OmittedNone = None

    def to_text(self) -> str:
        outcome = {"remembered": "Remembered"}.get(self.status, "This was known already")
        replacement = "" if self.replaced is None else f" in the place of {self.replaced}"
        return f"{outcome}{replacement}: {self.memory.to_text()}"


class ForgetOutput(ToolOutput):
    """What came of forgetting."""

    status: str = Field(description="forgotten, or forgotten already.")
    id: str

    def to_text(self) -> str:
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


def _to_one_line(text: str) -> str:
    return " ".join(text.split())


def _format_date(timestamp: str) -> str:
    return timestamp[:10]


def _format_minute(timestamp: str) -> str:
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
