"""What each tool may be called with."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tellback.conversations.checks import NAME_LENGTH
from tellback.mcp.schemas import Asked, Nothing
from tellback.memory.memory import DEFAULT_SPACE
from tellback.memory.tools.inputs import FORMAT, MOST_HITS

QUESTION_LENGTH = 2_000
REMEMBERED_LENGTH = 2_000
DATE_LENGTH = 40
ID_LENGTH = 200
MOST_LISTED = 50

Question = Annotated[str, Field(min_length=1, max_length=QUESTION_LENGTH)]
Date = Annotated[str, Field(min_length=4, max_length=DATE_LENGTH)]
Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
Seq = Annotated[int, Field(ge=0, le=2**53)]
Importance = Annotated[int, Field(ge=1, le=5)]
Space = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH)]


Kind = Literal["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]
"""What sort of thing may be remembered: every kind but patterns, which are found."""

Type = Literal["PERSON", "ORGANIZATION", "PLACE", "OBJECT", "CONCEPT", "EVENT", "AGREEMENT"]
"""What an entity may be."""


class RecallAsked(Asked):
    """A question to the memory."""

    query: Question = Field(description="What to look for: a question, or the words it would be told in.")
    limit: int = Field(default=5, ge=1, le=MOST_HITS, description="How many memories to give at most.")
    space: Space = Field(default=DEFAULT_SPACE, description="The name of the part of the memory to look in.")
    valid_at: Date | Nothing = Field(default=None, description=f"Give what was true at that time: {FORMAT}.")


class TimelineAsked(Asked):
    """A look at how things changed."""

    query: Question | Nothing = Field(default=None, description="The topic, if there is one.")
    entity: Annotated[str, Field(min_length=1, max_length=500)] | Nothing = Field(
        default=None, description="The person or thing it is about, by name, or by an id that starts with ent_."
    )
    from_: Date | Nothing = Field(default=None, alias="from", description=f"Where the period begins: {FORMAT}.")
    to: Date | Nothing = Field(default=None, description=f"Where it ends: {FORMAT}. A day alone is in it to its end.")
    limit: int = Field(default=10, ge=1, le=MOST_LISTED, description="How many memories to give at most.")
    space: Space = Field(default=DEFAULT_SPACE, description="The name of the part of the memory to look in.")


class EntitiesAsked(Asked):
    """A search for what memories are about."""

    query: Question | Nothing = Field(
        default=None, description="A name or a description; without it, those most spoken of."
    )
    type: Type | Nothing = Field(default=None, description="Only entities of this type.")
    limit: int = Field(default=20, ge=1, le=MOST_LISTED, description="How many entities to give at most.")
    space: Space = Field(default=DEFAULT_SPACE, description="The name of the part of the memory to look in.")


class ConversationsAsked(Asked):
    """A look at the list of conversations, or into one."""

    conversation_id: Id | Nothing = Field(
        default=None, description="The conversation to read; without it, the conversations are listed."
    )
    limit: int = Field(
        default=20, ge=1, le=MOST_LISTED, description="How many conversations or messages to give at most."
    )
    namespace: Space | Nothing = Field(default=None, description="List only conversations of this kind.")
    before: Id | Nothing = Field(
        default=None, description="List what is older than the conversation of this id: `nextBefore`."
    )
    before_seq: Seq | Nothing = Field(default=None, description="Read the messages before this number: `earlierSeq`.")
    after_seq: Seq | Nothing = Field(default=None, description="Read the messages after this number: `laterSeq`.")


class RememberAsked(Asked):
    """Something to keep."""

    text: Annotated[str, Field(min_length=1, max_length=REMEMBERED_LENGTH)] = Field(
        description="One thing, in a short sentence that can be understood by itself, such as 'Maya is vegetarian.'"
    )
    category: Kind | Nothing = Field(default=None, description="What sort of thing it is: FACT, if left out.")
    importance: Importance | Nothing = Field(
        default=None, description="From 1 (a detail) to 5 (vital): 3, if left out."
    )
    valid_from: Date | Nothing = Field(default=None, description=f"Since when it is true: {FORMAT}. Now, if left out.")
    replaces: Id | Nothing = Field(
        default=None, description="The id of the memory that it corrects or updates, if any."
    )
    space: Space = Field(
        default=DEFAULT_SPACE, description="The part of the memory to keep it in; made if it is missing."
    )


class ForgetAsked(Asked):
    """Something to forget."""

    atom_id: Id = Field(description="The id of the memory, as recall or timeline gave it.")
