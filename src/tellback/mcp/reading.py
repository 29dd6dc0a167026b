"""The tools that look things up. They change nothing, and make no space."""

from __future__ import annotations

from collections.abc import Sequence

from tellback.errors import NotFoundError
from tellback.mcp import answers
from tellback.mcp.arguments import ConversationsInput, EntitiesInput, RecallInput, TimelineInput
from tellback.mcp.bounds import take_fitting
from tellback.mcp.spaces import find_space
from tellback.memory.tools.inputs import parse_moment
from tellback.memory.tools.results import NOTHING_FOUND
from tellback.types.conversations import Conversation
from tellback.user import User

NOTHING_REMEMBERED = "Nothing is remembered yet."
NO_ENTITIES = "Nothing like this is known."
NO_CONVERSATIONS = "There are no conversations like this."
NO_MESSAGES = "There are no messages here."


async def run_recall(user: User, arguments: RecallInput) -> answers.MemoryListOutput:
    """What answers a question best."""
    valid_at = parse_moment("valid_at", arguments.valid_at)
    space = await find_space(user, arguments.space)
    if space is None:
        return answers.MemoryListOutput(memories=[], note=NOTHING_REMEMBERED)
    found = await user.memory.recall_by_topic(space.id, arguments.query, arguments.limit, valid_at=valid_at)
    return _memory_output([answers.MemoryItem.from_atom(hit.atom, score=hit.score) for hit in found])


async def run_timeline(user: User, arguments: TimelineInput) -> answers.MemoryListOutput:
    """How things changed, the oldest first."""
    start, end = parse_moment("from", arguments.from_), parse_moment("to", arguments.to, at_end=True)
    space = await find_space(user, arguments.space)
    if space is None:
        return answers.MemoryListOutput(memories=[], note=NOTHING_REMEMBERED)
    found = await user.memory.recall_timeline(space.id, arguments.entity, arguments.query, start, end, arguments.limit)
    now = user.conversations.runtime.clock()
    return _memory_output([answers.MemoryItem.from_atom(atom, now=now) for atom in found.atoms])


async def run_entities(user: User, arguments: EntitiesInput) -> answers.EntityListOutput:
    """What memories are about."""
    space = await find_space(user, arguments.space)
    if space is None:
        return answers.EntityListOutput(entities=[], note=NOTHING_REMEMBERED)
    found = await user.memory.search_entities(space.id, arguments.query, arguments.type, arguments.limit)
    items = take_fitting(map(answers.EntityItem.from_entity, found))
    return answers.EntityListOutput(
        entities=items, left_out=len(found) - len(items), note=None if found else NO_ENTITIES
    )


async def run_conversations(user: User, arguments: ConversationsInput) -> answers.ConversationsOutput:
    """The newest conversations, or the messages of one."""
    if arguments.conversation_id is None:
        return await _list_conversations(user, arguments)
    conversation = await user.conversations.get(arguments.conversation_id)
    if conversation is None:
        raise NotFoundError("conversation", arguments.conversation_id)
    return await _read_messages(user, conversation, arguments)


async def _list_conversations(user: User, arguments: ConversationsInput) -> answers.ConversationsOutput:
    found = await user.conversations.list(arguments.namespace, limit=arguments.limit + 1, before=arguments.before)
    items = take_fitting(map(answers.ConversationItem.from_conversation, found[: arguments.limit]))
    return answers.ConversationsOutput(
        conversations=items,
        next_before=items[-1].id if len(items) < len(found) else None,
        note=None if found else NO_CONVERSATIONS,
    )


async def _read_messages(
    user: User, conversation: Conversation, arguments: ConversationsInput
) -> answers.ConversationsOutput:
    """The messages that fit: the first ones when reading on, and the last ones otherwise."""
    found = await user.conversations.messages(
        conversation.id, arguments.limit, before=arguments.before_seq, after=arguments.after_seq
    )
    messages = [answers.MessageItem.from_message(message) for message in found]
    reads_forward = arguments.after_seq is not None and arguments.before_seq is None
    items = take_fitting(messages) if reads_forward else take_fitting(reversed(messages))[::-1]
    conversation_items = [answers.ConversationItem.from_conversation(conversation)]
    if not items:
        return answers.ConversationsOutput(conversations=conversation_items, messages=[], note=NO_MESSAGES)
    first, last = items[0].seq, items[-1].seq
    # Internal messages have numbers as well, so that those alone do not tell whether there is more to show.
    has_earlier = first > 1 and bool(await user.conversations.messages(conversation.id, 1, before=first))
    has_later = last < conversation.last_seq and bool(await user.conversations.messages(conversation.id, 1, after=last))
    return answers.ConversationsOutput(
        conversations=conversation_items,
        messages=items,
        earlier_seq=first if has_earlier else None,
        later_seq=last if has_later else None,
    )


def _memory_output(memories: Sequence[answers.MemoryItem]) -> answers.MemoryListOutput:
    items = take_fitting(memories)
    return answers.MemoryListOutput(
        memories=items, left_out=len(memories) - len(items), note=None if memories else NOTHING_FOUND
    )
