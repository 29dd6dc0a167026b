"""`/ai-memory` and `/ai-working-context`: what memory operations check, and the two ways to list entities."""

from __future__ import annotations

from fastapi import Response

from tellback import validation
from tellback.errors import InvalidArgumentError, NotFoundError
from tellback.server.responses import invalid_cursor_error, parse_position
from tellback.server.routes.endpoint import Call, check, handle

MAX_OFFSET = 10**9 - 1
MAX_CITED = 1_000
"""How many messages one request may cite: each is looked up."""


@check("add_atom", "add_atoms", "supersede_atom")
async def validate_sources(call: Call) -> None:
    """Refuse atoms that cite a conversation or a message which is not the user's, or not of that conversation."""
    user = call.caller.user
    conversations: set[str] = set()
    messages: dict[str, set[str | None]] = {}
    for atom in call.arguments.get("atoms", [call.arguments]):
        source = atom.get("source_conversation_id")
        if source is not None:
            conversations.add(source)
        for id in atom.get("source_message_ids") or ():
            messages.setdefault(id, set()).add(source)
    if len(messages) > MAX_CITED:
        raise InvalidArgumentError(f"{len(messages)} messages are cited; {MAX_CITED} in one request is the limit.")
    for id in conversations:
        if await user.conversations.get(id) is None:
            raise NotFoundError("conversation", id)
    for id, sources in messages.items():
        message = await user.conversations.message(id)
        if message is None or sources - {None, message.conversation_id}:
            raise NotFoundError("message", id)


@check("remember_conversation")
async def require_space(call: Call) -> None:
    """Refuse a space that is not there, also if nothing is added to it."""
    space_id = call.arguments["space_id"]
    if await call.caller.user.memory.get_space(space_id) is None:
        raise NotFoundError("space", space_id)


@handle("search_entities")
async def search_entities(call: Call) -> Response:
    """All entities or, with a query, those that match; ranked ones have their place in the list as their cursor."""
    memory, arguments, size = call.caller.user.memory, call.arguments, call.page_size
    if arguments["query"] is None:
        after = validation.validate_optional_text("cursor", call.position, validation.KEY_LENGTH)
        return call.page(await memory.list_entities(arguments["space_id"], arguments["type"], size + 1, after=after))
    offset = parse_position(call.position) or 0
    if offset > MAX_OFFSET:
        raise invalid_cursor_error()
    ranked = await memory.search_entities(**arguments, limit=offset + size + 1)
    return call.page(ranked[offset:], str(offset + size))


@check("build_working_context")
async def allow_no_conversation(call: Call) -> None:
    """A conversation that is yet to begin has no id."""
    call.arguments.setdefault("conversation_id", None)
