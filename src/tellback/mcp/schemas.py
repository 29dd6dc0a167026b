"""Argument types and output models of the tools, their JSON schemas, and the size limit of an output."""

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
"""Maximum size of the items of one result as JSON. The result also contains them as text of about the same size."""

OmittedNone = SkipJsonSchema[None]
"""None, but not in the JSON schema: arguments may be null, because some models pass it, and results omit the field."""


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which stored text may contain and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _shorten(text: Any) -> Any:
    return replace_surrogates(truncate_text(text, MAX_RESULT_TEXT)) if isinstance(text, str) else text


def _format_timestamp(moment: Any) -> Any:
    return format_moment(moment).replace("+00:00", "Z") if isinstance(moment, datetime) else moment


ShortText = Annotated[str, BeforeValidator(_shorten)]
Timestamp = Annotated[str, BeforeValidator(_format_timestamp)]


class ToolInput(BaseModel):
    """The arguments of a tool. Unknown names are rejected; null is the same as an omitted argument."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolOutput(BaseModel):
    """The result of a tool, as JSON in camelCase and as readable text."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)

    @classmethod
    def of(cls, value: Any, **more: Any) -> Self:
        """Create the output from a value's attributes of the same names, updated with `more`."""
        return cls.model_validate(value, from_attributes=True).model_copy(update=more)

    def to_text(self) -> str:
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON without fields that are None."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def build_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model, without its title and description."""
    schema = model.model_json_schema(schema_generator=_PlainJsonSchema)
    schema.pop("title", None)
    schema.pop("description", None)
    return schema


def parse_arguments(model: type[ToolInput], arguments: dict[str, Any] | None) -> dict[str, Any]:
    """Validate a tool's arguments and return them by name; raise `InvalidInput` if they are invalid."""
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
    name = ascii(str(location[0])[:80])[1:-1] if location else "arguments"  # the client may send any name
    return f"{name}: {'unknown argument' if text == 'Extra inputs are not permitted' else text[:300]}"


class _PlainJsonSchema(GenerateJsonSchema):
    """Generates concise schemas: without titles derived from names, and without null defaults."""

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
SearchedSpace = Annotated[SpaceName, Field(description="The name of the memory space to search.")]
LeftOutCount = Annotated[int, Field(description="How many results were omitted because the answer would be too long.")]

CategoryKindName = Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]
"""The kinds of memories that a client can add: all except patterns, which are detected."""

EntityTypeName = Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"]
"""The types of entities."""


def optional(description: str, alias: str | None = None) -> Any:
    """Return an optional field with the default None."""
    return Field(default=None, description=description, alias=alias)


class CategoryItem(ToolOutput):
    """The category of a memory: its name and kind."""

    name: str
    kind: str


class MemoryItem(ToolOutput):
    """A memory with its validity and source."""

    id: str
    text: Annotated[str, BeforeValidator(lambda text: truncate_text(text, MAX_ATOM_LENGTH))]
    category: CategoryItem
    importance: int
    valid_from: Timestamp
    valid_to: Timestamp | OmittedNone = None
    score: float | OmittedNone = optional("How relevant it is, from 0 to 1.")
    standing: str | OmittedNone = optional("current, over, superseded or upcoming.")
    superseded_by: str | OmittedNone = None
    source_conversation_id: str | OmittedNone = None
    source_message_ids: list[str] = Field(default_factory=list)

    @classmethod
    def of(cls, value: Atom, **more: Any) -> Self:
        """Convert an atom, with the first source it cites."""
        source = render_source(value) or {"conversation_id": None, "message_ids": []}
        return super().of(value, **{f"source_{name}": each for name, each in source.items()}, **more)

    def to_text(self) -> str:
        """Format the memory on one line: a memory with line breaks must not look like several memories."""
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
        return f"; source: {self.source_conversation_id}{messages}"


class MemoryListOutput(ToolOutput):
    """A list of memories."""

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
    atom_count: int = Field(default=0, description="The number of memories about it.")
    last_seen_at: Timestamp | OmittedNone = None

    def to_text(self) -> str:
        aliases = f", also {', '.join(map(_to_one_line, self.aliases))}" if self.aliases else ""
        description = "" if self.description is None else f": {_to_one_line(self.description)}"
        last_seen = "" if self.last_seen_at is None else f", last on {_format_date(self.last_seen_at)}"
        name = _to_one_line(self.canonical_name)
        return f"[{self.id}] {name} ({self.type}{aliases}; {self.atom_count} memories{last_seen}){description}"


class EntityListOutput(ToolOutput):
    """A list of entities."""

    entities: list[EntityItem]
    left_out: LeftOutCount = 0
    note: str | OmittedNone = None

    def to_text(self) -> str:
        return format_listing(self.entities, "entity", "entities", self.left_out, self.note)


class ConversationItem(ToolOutput):
    """A conversation without its messages."""

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
        """Convert a message: its text and the names of the tools it calls."""
        calls = [f"(calls {call.name[:MAX_TOOL_NAME_LENGTH]})" for call in value.tool_calls[:MAX_NAMES_LISTED]]
        text = truncate_text(value.text, MAX_MESSAGE_LENGTH)
        return super().of(value, text=replace_surrogates("\n".join(filter(None, [text, *calls]))), **more)

    def to_text(self) -> str:
        """Format the message with its role; lines after the first are indented."""
        text = "\n    ".join(self.text.splitlines())
        return f"{self.seq}. [{self.id}] {self.role}, {_format_minute(self.created_at)}: {text}"


class ConversationsOutput(ToolOutput):
    """A list of conversations, or one conversation with its messages."""

    conversations: list[ConversationItem] = Field(
        description="Newest first; only one conversation if its messages are returned."
    )
    messages: list[MessageItem] | OmittedNone = optional("The messages of the conversation, oldest first.")
    next_before: str | OmittedNone = optional("Pass it as `before` to list older conversations.")
    earlier_seq: int | OmittedNone = optional("Pass it as `before_seq` to read earlier messages.")
    later_seq: int | OmittedNone = optional("Pass it as `after_seq` to read later messages.")
    note: str | OmittedNone = None

    def to_text(self) -> str:
        lines = [each.to_text() for each in (*self.conversations, *(self.messages or ()))]
        cursors = (
            ("older conversations", "before", self.next_before),
            ("earlier messages", "before_seq", self.earlier_seq),
            ("later messages", "after_seq", self.later_seq),
        )
        lines += [f"For {what}, pass {name}={cursor}." for what, name, cursor in cursors if cursor is not None]
        return "\n".join([*lines, *filter(None, [self.note])])


class RememberOutput(ToolOutput):
    """The result of `remember`."""

    status: str = Field(description="remembered, or known already.")
    memory: MemoryItem
    space: str
    replaced: str | OmittedNone = None

    def to_text(self) -> str:
        outcome = {"remembered": "Remembered"}.get(self.status, "Already known")
        replacement = "" if self.replaced is None else f", replacing {self.replaced}"
        return f"{outcome}{replacement}: {self.memory.to_text()}"


class ForgetOutput(ToolOutput):
    """The result of `forget`."""

    status: str = Field(description="forgotten, or forgotten already.")
    id: str

    def to_text(self) -> str:
        if self.status == "forgotten":
            return f"Forgotten: {self.id} is no longer recalled."
        return f"{self.id} was already forgotten."


def format_listing(items: Sequence[ToolOutput], singular: str, plural: str, left_out: int, note: str | None) -> str:
    """Format a list of results, with their count and the number of omitted ones."""
    lines = [each.to_text() for each in items]
    if lines:
        lines.insert(0, f"{len(lines)} {singular if len(lines) == 1 else plural}:")
    if left_out:
        lines.append(f"{left_out} more were left out, because the answer would be too long: use a more specific query.")
    return "\n".join([*lines, *filter(None, [note])])


def _to_one_line(text: str) -> str:
    return " ".join(text.split())


def _format_date(timestamp: str) -> str:
    return timestamp[:10]


def _format_minute(timestamp: str) -> str:
    return timestamp[:16].replace("T", " ")


Item = TypeVar("Item", bound=ToolOutput)


def take_fitting(items: Iterable[Item], max_characters: int = MAX_OUTPUT_CHARACTERS) -> list[Item]:
    """Return the first items that fit into the size limit, and at least one."""
    taken: list[Item] = []
    for item in items:
        max_characters -= len(item.model_dump_json(by_alias=True, exclude_none=True))
        if max_characters < 0 and taken:
            break
        taken.append(item)
    return taken
