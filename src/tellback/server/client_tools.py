"""Tools that the client runs: validate their schemas, end a turn with pending calls, and continue it with results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tellback import validation
from tellback.chat.approval import as_approvals
from tellback.errors import AlreadyDecidedError, InvalidArgumentError, NotFoundError, RequestTooLargeError
from tellback.server.requests import iter_values
from tellback.tools import Tool
from tellback.tools.context import current_call
from tellback.tools.json_schema import find_schema_error
from tellback.types import ToolCall, ToolResult
from tellback.types.blocks import ToolResultBlock, chat_messages
from tellback.user import User
from tellback.wire.turns import BaseTurnInput, ToolIn, ToolResultIn

MAX_SCHEMA_NODES = 2_000
MAX_SCHEMA_CHARACTERS = 65_536
"""How large the schemas of all tools of a request may be together."""

MAX_LOOKBACK = 500
"""How far back in a conversation a call is looked for that does not wait any more."""


def validate_schemas(named_schemas: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Refuse schemas that are too large together, and what is no schema. Patterns are taken as texts."""
    schemas = dict(named_schemas)
    try:
        for _ in iter_values(schemas, MAX_SCHEMA_NODES):
            pass
    except RequestTooLargeError:
        raise RequestTooLargeError(
            f"The parameters of all tools have more than {MAX_SCHEMA_NODES} values, which is the limit here."
        ) from None
    size = len(json.dumps(schemas))
    if size > MAX_SCHEMA_CHARACTERS:
        raise RequestTooLargeError(
            f"The parameters of all tools have {size} characters; {MAX_SCHEMA_CHARACTERS} is the limit here."
        )
    for name, schema in schemas.items():
        error = find_schema_error(schema)
        if error is not None:
            raise InvalidArgumentError(f"the parameters of tool {name!r} are no JSON schema: {error}.")


def build_client_tools(descriptions: Sequence[ToolIn], results: Mapping[str, ToolResult] | None = None) -> list[Tool]:
    """Tools for the model to call, which give what clients have posted for the calls.

    Their arguments are not checked here: that is for those who run them. Their schemas are, within bounds and without
    reading the patterns in them, so that a costly one is harmless.
    """
    validate_schemas((tool.name, tool.parameters) for tool in descriptions)
    results_by_call = results or {}

    async def return_result(**_: Any) -> ToolResult:
        call = current_call()
        assert call is not None
        return results_by_call[call.id]

    return [
        Tool(
            tool.name,
            tool.description,
            tool.parameters,
            return_result,
            requires_approval=True,
            bind=lambda values: ([], dict(values)),
        )
        for tool in descriptions
    ]


def parse_tool_results(inputs: Sequence[ToolResultIn]) -> dict[str, ToolResult]:
    """The results that were posted, by the ids of their calls."""
    results: dict[str, ToolResult] = {}
    for each in inputs:
        if each.tool_use_id in results:
            raise InvalidArgumentError(f"toolResults has two results for the call {each.tool_use_id!r}.")
        block = {"type": "tool_result", "tool_use_id": each.tool_use_id, "content": each.content}
        message = chat_messages("tool", validation.parse_content([{**block, "is_error": each.is_error}]))[0]
        parts = message.parts
        results[each.tool_use_id] = ToolResult(each.tool_use_id, str(message.content), each.is_error, parts=parts)
    return results


class TurnContinuation:
    """What goes on with a turn: results of calls, and decisions not to make them."""

    def __init__(self, body: BaseTurnInput) -> None:
        self._tools = body.tools or []
        self._results = parse_tool_results(body.tool_results or ())
        self._decisions = as_approvals(
            {id: each if isinstance(each, bool) else each.arguments() for id, each in (body.approvals or {}).items()}
        )
        both = self._results.keys() & self._decisions.keys()
        if both:
            raise InvalidArgumentError(f"call {min(both)!r} has a result and a decision: pass one of them.")
        self.is_present = bool(self._results or self._decisions)

    @property
    def tools(self) -> list[Tool] | None:
        return build_client_tools(self._tools, self._results) or None

    @property
    def approvals(self) -> dict[str, Any] | None:
        """For `run_turn`: calls that have a result are run, which gives it."""
        return {**self._decisions, **dict.fromkeys(self._results, True)} if self.is_present else None

    async def validate(self, user: User, conversation_id: str) -> None:
        """Refuse what fits no call: nothing is kept of it then."""
        if not self.is_present:
            return
        calls_by_id = {call.id: call for call in await user.conversations.pending(conversation_id)}
        ids = {*self._results, *self._decisions}
        if not ids <= calls_by_id.keys():
            calls_by_id = await find_answered_calls(user, conversation_id, ids - calls_by_id.keys()) | calls_by_id
        await _reject_agent_calls(user, conversation_id, ids)
        for id, decision in self._decisions.items():
            if decision.approved:
                raise InvalidArgumentError(f"call {id!r} is yours to run: post what it gave in toolResults.")
        tool_names = {tool.name for tool in self._tools}
        for id in self._results:
            name = calls_by_id[id].name
            if name not in tool_names:
                raise InvalidArgumentError(
                    f"call {id!r} is of the tool {name!r}, which is not in `tools`: pass the same as before."
                )


async def _reject_agent_calls(user: User, conversation_id: str, ids: set[str]) -> None:
    """Refuse to go on for an agent: its tools are the server's, and what they give is not for callers to say."""
    agents: dict[str, str | None] = {}
    pending: set[str] = set()
    for message in await user.conversations.messages(conversation_id, MAX_LOOKBACK, include_internal=True):
        agent = (message.metadata or {}).get("agent")
        # An id that is used again means the newest call, unless an agent still waits for it.
        requested = ids & {call.id for call in message.tool_calls} - pending
        agents.update(dict.fromkeys(requested, agent))
        pending |= requested if agent is not None else set()
        pending -= {block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)}
    for id, agent in agents.items():
        if agent is not None:
            raise InvalidArgumentError(
                f"agent {agent!r:.80} asked for call {id!r}, and runs it: decide on it by that agent."
            )


async def validate_appended(user: User, conversation_id: str, *contents: Any) -> None:
    """Refuse content with results of an agent's calls, which would pass for what its tools gave."""
    ids = {id for content in contents for id in _tool_result_ids(content)}
    if ids:
        await _reject_agent_calls(user, conversation_id, ids)


def _tool_result_ids(content: str | Sequence[Mapping[str, Any]] | None) -> set[str]:
    """The calls whose results are in a content as callers send it."""
    if content is None or isinstance(content, str) or all(each.get("type") != "tool_result" for each in content):
        return set()
    return {block.tool_use_id for block in validation.parse_content(content) if isinstance(block, ToolResultBlock)}


async def validate_decisions(user: User, conversation_id: str | None, ids: set[str]) -> None:
    """Refuse decisions on calls that the conversation has not, or that were decided."""
    if not ids:
        return
    if conversation_id is None:
        raise InvalidArgumentError("approvals go on with a conversation: pass its conversationId.")
    pending = {call.id for call in await user.conversations.pending(conversation_id)}
    if not ids <= pending:
        await find_answered_calls(user, conversation_id, ids - pending)


async def find_answered_calls(user: User, conversation_id: str, ids: set[str]) -> dict[str, ToolCall]:
    """Calls that do not wait any more; those of the last reply may be posted again, if the turn was cut off."""
    found: dict[str, ToolCall] = {}
    last: frozenset[str] = frozenset()
    if await user.conversations.get(conversation_id) is None:
        raise NotFoundError("conversation", conversation_id)
    for message in await user.conversations.messages(conversation_id, MAX_LOOKBACK, include_internal=True):
        if message.tool_calls:
            found.update((call.id, call) for call in message.tool_calls)
            last = frozenset(call.id for call in message.tool_calls)
    unknown = ids - found.keys()
    if unknown:
        raise InvalidArgumentError(f"no call {min(unknown)!r} is in the conversation: use the ids of `pending`.")
    if not ids <= last:
        raise AlreadyDecidedError(conversation_id, sorted(ids))
    return found
