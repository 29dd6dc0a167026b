"""The tools that look things up. They change nothing, and make no space."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.errors import NotFoundError
from tellback.mcp import answers
from tellback.mcp.arguments import ConversationsAsked, EntitiesAsked, RecallAsked, TimelineAsked
from tellback.mcp.bounds import fitting
from tellback.mcp.spaces import existing
from tellback.memory.tools.inputs import moment
from tellback.memory.tools.results import NOTHING
from tellback.types.conversations import Conversation
from tellback.user import User

NOT_YET = "Nothing is remembered yet."
NO_ENTITY = "Nothing like this is known."
NO_TALK = "There are no conversations like this."
NO_MESSAGE = "There are no messages here."


async def recall(user: User, asked: RecallAsked) -> answers.Memories:
    """What answers a question best."""
    valid_at = moment("valid_at", asked.valid_at)
    space = await existing(user, asked.space)
    if space is None:
        return answers.Memories(memories=[], note=NOT_YET)
    found = await user.memory.recall_by_topic(space.id, asked.query, asked.limit, valid_at=valid_at)
    return _memories([answers.Memory.of(hit.atom, score=hit.score) for hit in found])


async def timeline(user: User, asked: TimelineAsked) -> answers.Memories:
    """How things changed, the oldest first."""
    begin, end = moment("from", asked.from_), moment("to", asked.to, at_end=True)
    space = await existing(user, asked.space)
    if space is None:
        return answers.Memories(memories=[], note=NOT_YET)
    found = await user.memory.recall_timeline(space.id, asked.entity, asked.query, begin, end, asked.limit)
    now = user.conversations.runtime.clock()
    return _memories([answers.Memory.of(atom, now=now) for atom in found.atoms])


async def entities(user: User, asked: EntitiesAsked) -> answers.Entities:
    """What memories are about."""
    space = await existing(user, asked.space)
    if space is None:
        return answers.Entities(entities=[], note=NOT_YET)
    found = await user.memory.search_entities(space.id, asked.query, asked.type, asked.limit)
    kept = fitting(map(answers.EntityFound.of, found))
    return answers.Entities(entities=kept, left_out=len(found) - len(kept), note=None if found else NO_ENTITY)


async def conversations(user: User, asked: ConversationsAsked) -> answers.Conversations:
    """The newest conversations, or the messages of one."""
    if asked.conversation_id is None:
        return await _listed(user, asked)
    talk = await user.conversations.get(asked.conversation_id)
    if talk is None:
        raise NotFoundError("conversation", asked.conversation_id)
    return await _page(user, talk, asked)


async def _listed(user: User, asked: ConversationsAsked) -> answers.Conversations:
    found = await user.conversations.list(asked.namespace, limit=asked.limit + 1, before=asked.before)
    kept = fitting(map(answers.Talk.of, found[: asked.limit]))
    return answers.Conversations(
        conversations=kept,
        next_before=kept[-1].id if len(kept) < len(found) else None,
        note=None if found else NO_TALK,
    )


async def _page(user: User, talk: Conversation, asked: ConversationsAsked) -> answers.Conversations:
    """The messages that fit: the first ones when reading on, and the last ones otherwise."""
    found = await user.conversations.messages(talk.id, asked.limit, before=asked.before_seq, after=asked.after_seq)
    said = [answers.Said.of(message) for message in found]
    onwards = asked.after_seq is not None and asked.before_seq is None
    kept = fitting(said) if onwards else fitting(reversed(said))[::-1]
    head = [answers.Talk.of(talk)]
    if not kept:
        return answers.Conversations(conversations=head, messages=[], note=NO_MESSAGE)
    first, last = kept[0].seq, kept[-1].seq
    # Internal messages have numbers as well, so that those alone do not tell whether there is more to show.
    is_earlier = first > 1 and bool(await user.conversations.messages(talk.id, 1, before=first))
    is_later = last < talk.last_seq and bool(await user.conversations.messages(talk.id, 1, after=last))
    return answers.Conversations(
        conversations=head,
        messages=kept,
        earlier_seq=first if is_earlier else None,
        later_seq=last if is_later else None,
    )


def _memories(found: Sequence[answers.Memory]) -> answers.Memories:
    kept = fitting(found)
    return answers.Memories(memories=kept, left_out=len(found) - len(kept), note=None if found else NOTHING)
