"""Every option of a turn is sent, or has a documented reason not to be."""

from __future__ import annotations

from dataclasses import fields

from tellback import ChatOptions
from tellback.client.turn_loop import UNSUPPORTED_OPTIONS

SENT = {"model", "tools", "max_iterations", "system", "max_context_tokens", "max_output_tokens", "tool_choice"}
IN_PART = {"config", "on_max_iterations"}


def test_every_option_is_sent_or_has_a_reason_why_not() -> None:
    assert SENT | IN_PART | UNSUPPORTED_OPTIONS.keys() == {field.name for field in fields(ChatOptions)}
