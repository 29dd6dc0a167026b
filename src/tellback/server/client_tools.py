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
"""Limit on the total size of all tool schemas of a request."""

MAX_LOOKBACK = 500
"""The number of recent messages in which an already answered call is searched."""


def validate_schemas(named_schemas: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise for invalid schemas, or schemas that are too large together. Their patterns are not compiled."""
    schemas = dict(named_schemas)
    try:
        for _ in iter_values(schemas, MAX_SCHEMA_NODES):
            pass
    except RequestTooLargeError:
        raise RequestTooLargeError(
            f"The parameters of all tools have more than {MAX_SCHEMA_NODES} values, which is the limit."
        ) from None
    size = len(json.dumps(schemas))
    if size > MAX_SCHEMA_CHARACTERS:
        raise RequestTooLargeError(
            f"The parameters of all tools have {size} characters; at most {MAX_SCHEMA_CHARACTERS} are allowed."
        )
    for name, schema in schemas.items():
        error = find_schema_error(schema)
        if error is not None:
            raise InvalidArgumentError(f"The parameters of tool {name!r} are not a valid JSON schema: {error}.")


def build_client_tools(descriptions: Sequence[ToolIn], results: Mapping[str, ToolResult] | None = None) -> list[Tool]:
    """Build tools that return the results that the client has posted.

    The arguments of calls are not validated, because the client runs the calls. The schemas are validated within size
    limits. Patterns in them are not compiled, because a client could send a pattern that takes too long.
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
    """Parse posted tool results, by the ids of their calls."""
    results: dict[str, ToolResult] = {}
    for each in inputs:
        if each.tool_use_id in results:
            raise InvalidArgumentError(f"toolResults has two results for call {each.tool_use_id!r}: send one.")
        block = {"type": "tool_result", "tool_use_id": each.tool_use_id, "content": each.content}
        message = chat_messages("tool", validation.parse_content([{**block, "is_error": each.is_error}]))[0]
        parts = message.parts
        results[each.tool_use_id] = ToolResult(each.tool_use_id, str(message.content), each.is_error, parts=parts)
    return results


class TurnContinuation:
    """The input that resumes a turn: results of tool calls, and decisions on them."""

    def __init__(self, body: BaseTurnInput) -> None:
        self._tools = body.tools or []
        self._results = parse_tool_results(body.tool_results or ())
        self._decisions = as_approvals(
            {id: each if isinstance(each, bool) else each.arguments() for id, each in (body.approvals or {}).items()}
        )
        both = self._results.keys() & self._decisions.keys()
        if both:
            raise InvalidArgumentError(f"Call {min(both)!r} has both a result and a decision: send only one of them.")
        self.is_present = bool(self._results or self._decisions)

    @property
    def tools(self) -> list[Tool] | None:
        return build_client_tools(self._tools, self._results) or None

    @property
    def approvals(self) -> dict[str, Any] | None:
        """The decisions for `run_turn`. Calls with a result are approved, and running them returns it."""
        return {**self._decisions, **dict.fromkeys(self._results, True)} if self.is_present else None

    async def validate(self, user: User, conversation_id: str) -> None:
        """Raise for results and decisions that do not match a call. Run this before anything is stored."""
        if not self.is_present:
            return
        calls_by_id = {call.id: call for call in await user.conversations.pending(conversation_id)}
        ids = {*self._results, *self._decisions}
        if not ids <= calls_by_id.keys():
            calls_by_id = await find_answered_calls(user, conversation_id, ids - calls_by_id.keys()) | calls_by_id
        await _reject_agent_calls(user, conversation_id, ids)
        for id, decision in self._decisions.items():
            if decision.approved:
                raise InvalidArgumentError(f"Call {id!r} is run by the client: send its result in toolResults.")
        tool_names = {tool.name for tool in self._tools}
        for id in self._results:
            name = calls_by_id[id].name
            if name not in tool_names:
                raise InvalidArgumentError(
                    f"Call {id!r} is for tool {name!r}, which is not in `tools`: send the same tools as before."
                )


async def _reject_agent_calls(user: User, conversation_id: str, ids: set[str]) -> None:
    """Raise if a call was made by an agent: the server runs an agent's tools, so clients must not supply results."""
    agents: dict[str, str | None] = {}
    pending: set[str] = set()
    for message in await user.conversations.messages(conversation_id, MAX_LOOKBACK, include_internal=True):
        agent = (message.metadata or {}).get("agent")
        # A reused id means the newest call, unless an agent still waits for the older one.
        requested = ids & {call.id for call in message.tool_calls} - pending
        agents.update(dict.fromkeys(requested, agent))
        pending |= requested if agent is not None else set()
        pending -= {block.tool_use_id for block in message.content if isinstance(block, ToolResultBlock)}
    for id, agent in agents.items():
        if agent is not None:
            raise InvalidArgumentError(
                f"Agent {agent!r:.80} made call {id!r} and runs it itself: approve or deny it through that agent."
            )


async def validate_appended(user: User, conversation_id: str, *contents: Any) -> None:
    """Raise for content that contains results of an agent's calls, which would look like its tools' output."""
    ids = {id for content in contents for id in _tool_result_ids(content)}
    if ids:
        await _reject_agent_calls(user, conversation_id, ids)


def _tool_result_ids(content: str | Sequence[Mapping[str, Any]] | None) -> set[str]:
    """Return the ids of the calls that the content has results for."""
    if content is None or isinstance(content, str) or all(each.get("type") != "tool_result" for each in content):
        return set()
    return {block.tool_use_id for block in validation.parse_content(content) if isinstance(block, ToolResultBlock)}


async def validate_decisions(user: User, conversation_id: str | None, ids: set[str]) -> None:
    """Raise for decisions on calls that are unknown or already decided."""
    if not ids:
        return
    if conversation_id is None:
        raise InvalidArgumentError("approvals continue a conversation: send its conversationId.")
    pending = {call.id for call in await user.conversations.pending(conversation_id)}
    if not ids <= pending:
        await find_answered_calls(user, conversation_id, ids - pending)


async def find_answered_calls(user: User, conversation_id: str, ids: set[str]) -> dict[str, ToolCall]:
    """Return calls that are no longer pending. Those of the last reply may be sent again after an interrupted turn."""
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
        raise InvalidArgumentError(f"The conversation has no call {min(unknown)!r}: use the ids of `pending`.")
    if not ids <= last:
        raise AlreadyDecidedError(conversation_id, sorted(ids))
    return found
