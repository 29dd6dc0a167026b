"""Build the MCP server: dispatch tool calls to a user's memory and turn errors into tool results."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from mcp.server import Server, ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

import tellback
from tellback.errors import ChatError, ConfigurationError, EmbeddingError, StoreError, TellbackError
from tellback.mcp.schemas import ToolOutput, parse_arguments, replace_surrogates
from tellback.mcp.tools import INSTRUCTIONS, READ_ONLY_INSTRUCTIONS, McpTool, select_tools
from tellback.memory.tools.base import DEFAULT_TIMEOUT
from tellback.tools.schema import InvalidInput
from tellback.user import User

log = logging.getLogger("tellback.mcp")

UserOf: TypeAlias = Callable[[Mapping[str, Any]], User | Awaitable[User]]
"""Gives the handle a call works on, from the ASGI scope of its request; over other transports that is empty."""

INTERNAL_ERRORS = (StoreError, EmbeddingError, ConfigurationError, ChatError)
"""Errors that speak of the machine: they go to the log, and whoever called learns only that it failed."""

CALL_FAILED = "The memory could not do this now. It is not about your arguments: try again in a moment."


def build_server(
    user_of: UserOf,
    *,
    read_only: bool = False,
    name: str = "tellback",
    instructions: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> Server[Any]:
    """An MCP server whose tools work on the memory and the conversations of the user that `user_of` gives.

    `read_only` leaves out the tools that change something. `instructions` are what hosts tell their models of the
    server, in the place of ours. A call that takes longer than `timeout` seconds is stopped.

    >>> from tellback import Tellback
    >>> maya = Tellback(":memory:").user("maya")
    >>> build_server(lambda scope: maya).name
    'tellback'
    """
    return _ToolDispatcher(user_of, select_tools(read_only=read_only), timeout).build(
        name, (READ_ONLY_INSTRUCTIONS if read_only else INSTRUCTIONS) if instructions is None else instructions
    )


class _ToolDispatcher:
    """Answers the two requests that there are: for the list of tools, and for a call."""

    def __init__(self, user_of: UserOf, tools: Mapping[str, McpTool], timeout: float) -> None:
        self._user_of = user_of
        self._tools = tools
        self._timeout = timeout

    def build(self, name: str, instructions: str) -> Server[Any]:
        return Server(
            name,
            version=tellback.__version__,
            title="Tellback",
            instructions=instructions,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.definition.input_schema

    async def _list_tools(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[tool.definition for tool in self._tools.values()])

    async def _call_tool(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS, f"There is no tool {params.name[:80]!a}. There are: {', '.join(self._tools)}."
            )
        scope = {} if context.request is None else context.request.scope
        try:
            async with asyncio.timeout(self._timeout):
                arguments = parse_arguments(tool.input_model, params.arguments)
                return _success_result(await tool.run(await self._resolve_user(scope), arguments))
        except TimeoutError:
            log.warning("%s took longer than %g seconds", tool.name, self._timeout)
            return _error_result(f"This took longer than {self._timeout:g} seconds and was stopped. Ask for less.")
        except INTERNAL_ERRORS:
            log.exception("%s failed", tool.name)
            return _error_result(CALL_FAILED)
        except (InvalidInput, TellbackError) as error:
            return _error_result(str(error))
        except Exception:  # whatever it was, its words may be about the machine or about somebody else
            log.exception("%s failed", tool.name)
            return _error_result(CALL_FAILED)

    async def _resolve_user(self, scope: Mapping[str, Any]) -> User:
        found = self._user_of(scope)
        return await found if inspect.isawaitable(found) else found


def _success_result(output: ToolOutput) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=output.to_text())], structured_content=output.to_json())


def _error_result(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=replace_surrogates(message))], is_error=True)
