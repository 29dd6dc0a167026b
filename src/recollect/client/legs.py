"""A turn whose tools run here: the message, then what tools gave, in as many requests as the model asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from recollect.chat import ChatOptions
from recollect.client.tools import LocalTools
from recollect.conversations import checks
from recollect.errors import InvalidArgumentError
from recollect.turn.values import TurnResult
from recollect.types import ToolCall
from recollect.types.conversations import TurnOutcome

DEFAULT_CYCLES = ChatOptions().max_iterations

Ended = TypeVar("Ended", TurnOutcome, TurnResult)


class Legs:
    """What is sent next, until nothing waits for tools that run here.

    All requests of a turn share its `cycles`, which the server counts too. When they are used up, what the tools gave
    is sent once more, for an answer without tools, as in process.
    """

    def __init__(
        self, local: LocalTools, rest: Mapping[str, Any], first: Mapping[str, Any], *, key: str | None, cycles: int
    ) -> None:
        self._local = local
        self._rest = rest
        self._cycles = cycles
        self._settled = 0
        self._asked: int | None = None
        self.key = key
        self.is_first = True
        self.body: dict[str, Any] | None = {**rest, **first}

    async def resume(self, pending: tuple[ToolCall, ...]) -> None:
        """Begin with what was decided on calls that wait."""
        results, undecidable = await self._local.results(pending), self._local.undecidable()
        assert self.body is not None
        self._settled = 1  # the reply that asked is counted with those that follow
        if results:
            self.body["toolResults"] = results
        if undecidable or not results:
            self.body["approvals"] = undecidable

    async def go_on(self, ended: Ended) -> Ended:
        """Run what waits for its tools, and make ready what came of it; gives how the turn stands."""
        self.key, self.is_first = None, False
        if self._asked is not None:
            self.body = None
            return capped(ended) if ended.model_calls > self._asked else ended  # if not, some wait for a person
        results = await self._local.results(ended.pending)
        if not results:
            self.body = None
            return ended
        self.body = {**self._rest, "toolResults": results}
        if isinstance(ended, TurnResult) and ended.conversation_id is not None:
            self.body["conversationId"] = ended.conversation_id
        if ended.model_calls - self._settled >= self._cycles:
            self._asked = ended.model_calls
            self.body["options"] = {**self._rest.get("options", {}), "toolChoice": "none"}
        return ended


def capped(ended: Ended) -> Ended:
    """A turn that was asked for an answer without tools; calls that it makes all the same are not made."""
    if isinstance(ended, TurnOutcome):
        return replace(ended, status="max_cycles", stop_reason="max_iterations", pending=())
    return replace(ended, ok=True, status="max_cycles", pending=())


def cycles_of(given: int | None, options: ChatOptions | Mapping[str, Any] | None) -> int:
    """How many calls of the model a turn may take, before the one that must answer."""
    if given is not None:
        return checks.count("max_cycles", given, 1)
    if not isinstance(options, ChatOptions | Mapping | None):
        raise InvalidArgumentError(f"options is a ChatOptions or a mapping, not {options!r:.80}.")
    if isinstance(options, Mapping):
        asked = options.get("max_iterations", options.get("maxIterations"))
        return DEFAULT_CYCLES if asked is None else checks.count("max_iterations", asked, 1)
    return DEFAULT_CYCLES if options is None else options.max_iterations


def joined_calls(before: Ended, after: Ended) -> dict[str, Any]:
    """What the parts of a turn have in common, put together."""
    done = {call.id: call for call in (*before.tool_invocations, *after.tool_invocations)}
    return {
        "tool_invocations": tuple(done.values()),
        "context": after.context or before.context,
        "problems": (*before.problems, *after.problems),
        "model_calls": before.model_calls + after.model_calls - 1,  # the call that asked for the tools is in both
    }
