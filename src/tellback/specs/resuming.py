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


def build_invocation_metadata(agent: str, arguments: Mapping[str, Any]) -> dict[str, str]:
    """What every reply of an invocation carries as metadata: the agent's name, and a digest of its arguments.

    >>> build_invocation_metadata("support", {"a": 1, "b": 2}) == build_invocation_metadata("support", {"b": 2, "a": 1})
    True
    """
    canonical = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    return {"agent": agent, "arguments_digest": hashlib.sha256(canonical.encode()).hexdigest()}


async def validate_resumed(
    conversations: Conversations, id: str, call_ids: Collection[str], current: Mapping[str, str]
) -> None:
    """That the reply whose calls are decided is of the same invocation; `InvalidArgumentError` if it is not."""
    for message in reversed(await conversations.raw_turns(id, LOOK_BACK)):
        if not any(call.id in call_ids for call in message.tool_calls):
            continue
        previous = message.metadata or {}
        if previous.get("agent") != current["agent"]:
            asker = f"agent {previous['agent']!r:.80}" if "agent" in previous else "a turn without an agent"
            raise InvalidArgumentError(
                f"{asker} asked for this decision, not agent {current['agent']!r}: go on with that."
            )
        if previous.get("arguments_digest") != current["arguments_digest"]:
            raise InvalidArgumentError(
                f"agent {current['agent']!r} asked for this decision with other arguments: invoke it with the same ones"
                " (the message may be left out)."
            )
        return
