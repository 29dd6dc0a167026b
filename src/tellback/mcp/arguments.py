"""What each tool may be called with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tellback.conversations.checks import NAME_LENGTH
from tellback.mcp.schemas import OmittedNone, ToolInput
from tellback.memory.memory import DEFAULT_SPACE_NAME
from tellback.memory.tools.inputs import DATE_FORMAT, MAX_HITS

MAX_QUESTION_LENGTH = 2_000
MAX_REMEMBERED_LENGTH = 2_000
MAX_DATE_LENGTH = 40
MAX_ID_LENGTH = 200
MAX_LISTED = 50

QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_LENGTH)]
DateText = Annotated[str, Field(min_length=4, max_length=MAX_DATE_LENGTH)]
IdText = Annotated[str, Field(min_length=1, max_length=MAX_ID_LENGTH)]
SequenceNumber = Annotated[int, Field(ge=0, le=2**53)]
ImportanceLevel = Annotated[int, Field(ge=1, le=5)]
SpaceName = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]


CategoryKindName = Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]
"""What sort of thing may be remembered: every kind but patterns, which are found."""

EntityTypeName = Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"]
"""What an entity may be."""


class RecallInput(ToolInput):
    """A question to the memory."""

    query: QuestionText = Field(description="What to look for: a question, or the words it would be told in.")
    limit: int = Field(default=5, ge=1, le=MAX_HITS, description="How many memories to give at most.")
    space: SpaceName = Field(default=DEFAULT_SPACE_NAME, description="The name of the part of the memory to look in.")
    valid_at: DateText | OmittedNone = Field(
        default=None, description=f"Give what was true at that time: {DATE_FORMAT}."
    )


class TimelineInput(ToolInput):
    """A look at how things changed."""

    query: QuestionText | OmittedNone = Field(default=None, description="The topic, if there is one.")
    entity: Annotated[str, Field(min_length=1, max_length=500)] | OmittedNone = Field(
        default=None, description="The person or thing it is about, by name, or by an id that starts with ent_."
    )
    from_: DateText | OmittedNone = Field(
        default=None, alias="from", description=f"Where the period begins: {DATE_FORMAT}."
    )
    to: DateText | OmittedNone = Field(
        default=None, description=f"Where it ends: {DATE_FORMAT}. A day alone is in it to its end."
    )
    limit: int = Field(default=10, ge=1, le=MAX_LISTED, description="How many memories to give at most.")
    space: SpaceName = Field(default=DEFAULT_SPACE_NAME, description="The name of the part of the memory to look in.")


class EntitiesInput(ToolInput):
    """A search for what memories are about."""

    query: QuestionText | OmittedNone = Field(
        default=None, description="A name or a description; without it, those most spoken of."
    )
    type: EntityTypeName | OmittedNone = Field(default=None, description="Only entities of this type.")
    limit: int = Field(default=20, ge=1, le=MAX_LISTED, description="How many entities to give at most.")
    space: SpaceName = Field(default=DEFAULT_SPACE_NAME, description="The name of the part of the memory to look in.")


class ConversationsInput(ToolInput):
    """A look at the list of conversations, or into one."""

    conversation_id: IdText | OmittedNone = Field(
        default=None, description="The conversation to read; without it, the conversations are listed."
    )
    limit: int = Field(
        default=20, ge=1, le=MAX_LISTED, description="How many conversations or messages to give at most."
    )
    namespace: SpaceName | OmittedNone = Field(default=None, description="List only conversations of this kind.")
    before: IdText | OmittedNone = Field(
        default=None, description="List what is older than the conversation of this id: `nextBefore`."
    )
    before_seq: SequenceNumber | OmittedNone = Field(
        default=None, description="Read the messages before this number: `earlierSeq`."
    )
    after_seq: SequenceNumber | OmittedNone = Field(
        default=None, description="Read the messages after this number: `laterSeq`."
    )


class RememberInput(ToolInput):
    """Something to keep."""

    text: Annotated[str, Field(min_length=1, max_length=MAX_REMEMBERED_LENGTH)] = Field(
        description="One thing, in a short sentence that can be understood by itself, such as 'Maya is vegetarian.'"
    )
    category: CategoryKindName | OmittedNone = Field(
        default=None, description="What sort of thing it is: FACT, if left out."
    )
    importance: ImportanceLevel | OmittedNone = Field(
        default=None, description="From 1 (a detail) to 5 (vital): 3, if left out."
    )
    valid_from: DateText | OmittedNone = Field(
        default=None, description=f"Since when it is true: {DATE_FORMAT}. Now, if left out."
    )
    replaces: IdText | OmittedNone = Field(
        default=None, description="The id of the memory that it corrects or updates, if any."
    )
    space: SpaceName = Field(
        default=DEFAULT_SPACE_NAME, description="The part of the memory to keep it in; made if it is missing."
    )


class ForgetInput(ToolInput):
    """Something to forget."""

    atom_id: IdText = Field(description="The id of the memory, as recall or timeline gave it.")
