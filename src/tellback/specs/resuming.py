"""A person's decision holds for the agent that asked, and for what it was invoked with; for nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tellback.errors import InvalidArgumentError

if TYPE_CHECKING:
    from tellback.conversations import Conversations

LOOK_BACK = 100
"""How many messages a reply, the decisions on its calls and their results may take at the end of a log."""


def invocation(agent: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """What every reply of an invocation carries as metadata: the agent's name, and a digest of its arguments.

    >>> invocation("support", {"a": 1, "b": 2}) == invocation("support", {"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return {"agent": agent, "arguments_digest": hashlib.sha256(canonical.encode()).hexdigest()}


async def check_resumed(
    conversations: Conversations, id: str, decided: Collection[str], now: Mapping[str, str]
) -> None:
    """That the reply whose calls are decided is of the same invocation; `InvalidArgumentError` if it is not."""
    for message in reversed(await conversations.raw_turns(id, LOOK_BACK)):
        if not any(call.id in decided for call in message.tool_calls):
            continue
        then = message.metadata or {}
        if then.get("agent") != now["agent"]:
            asked = f"agent {then['agent']!r:.80}" if "agent" in then else "a turn without an agent"
            raise InvalidArgumentError(f"{asked} asked for this decision, not agent {now['agent']!r}: go on with that.")
        if then.get("arguments_digest") != now["arguments_digest"]:
            raise InvalidArgumentError(
                f"agent {now['agent']!r} asked for this decision with other arguments: invoke it with the same ones"
                " (the message may be left out)."
            )
        return
