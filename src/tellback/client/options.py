"""How a turn is to be run, as a server can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tellback.chat import ChatOptions, Model
from tellback.client.values import encode_arguments
from tellback.conversations import checks
from tellback.conversations.turn_options import ToolHandler, resolve_options
from tellback.errors import InvalidArgumentError

LOCAL_ARGUMENTS = ("sender", "session", "extras")
"""What tools find in `tellback.request` in process: there is nothing to bind on a server."""

SAMPLING_SETTINGS = ("temperature", "top_p")
"""What of `config` a server passes on to its provider."""

_RUNS_LOCALLY = "it would have to run there"
_SKILLS = "give skills to an agent that it serves"
_EVENTS = "its events stay there; stream the turn instead"
_MODEL_SPECIFIC = "it knows its own models; max_context_tokens can be sent"
_TYPED = "it answers in text; ask for JSON, and check reply.text here"
UNSUPPORTED_OPTIONS = {
    "skills": _SKILLS,
    "skill_resolver": _SKILLS,
    "skill_context": _SKILLS,
    "open_skills": _SKILLS,
    "providers": "it chooses who serves a model",
    "chat_fn": _RUNS_LOCALLY,
    "chat_stream_fn": _RUNS_LOCALLY,
    "count_tokens_fn": _RUNS_LOCALLY,
    "warn_context_pct": _MODEL_SPECIFIC,
    "model_context_window": _MODEL_SPECIFIC,
    "emit_steps": _EVENTS,
    "step_data_type": _EVENTS,
    "emit_stream_deltas": _EVENTS,
    "delta_data_type": _EVENTS,
    "output_type": _TYPED,
    "output_retries": _TYPED,
}
"""The options that a server does not take."""
_DEFAULT_OPTIONS = ChatOptions()


def resolve_turn_options(
    options: ChatOptions | Mapping[str, Any] | None,
    model: str | Model | None,
    tools: Any,
    tool_handler: ToolHandler | None = None,
    max_cycles: int | None = None,
) -> ChatOptions:
    """What a caller passed, in one value, as in process. What a server cannot be told is refused."""
    if isinstance(options, Mapping) and options.get("on_max_iterations") == "raise":
        raise InvalidArgumentError("options.on_max_iterations is 'answer' on a server: a turn ends with an answer.")
    resolved = resolve_options(
        options,
        model=model,
        provider=None,
        tools=tools,
        tool_handler=tool_handler,
        max_cycles=None if max_cycles is None else checks.validate_count("max_cycles", max_cycles, 1),
        default_model="",
    )
    for name, why in UNSUPPORTED_OPTIONS.items():
        if getattr(resolved, name) not in (None, getattr(_DEFAULT_OPTIONS, name)):
            raise InvalidArgumentError(f"options.{name} cannot be sent to a server: {why}.")
    return resolved


def encode_options(options: ChatOptions) -> dict[str, Any] | None:
    """The options that are sent as such."""
    encoded = encode_arguments(
        system_prompt=options.system,
        max_context_tokens=options.max_context_tokens,
        max_output_tokens=options.max_output_tokens,
        tool_choice=options.tool_choice,
        **_sampling_settings(options.config),
    )
    return encoded or None


def _sampling_settings(config: Any) -> dict[str, Any]:
    if not isinstance(config, Mapping | None):
        raise InvalidArgumentError(f"options.config is a mapping, not {config!r:.80}.")
    others = [str(name) for name in config or () if name not in SAMPLING_SETTINGS]
    if others:
        raise InvalidArgumentError(
            f"options.config cannot send {', '.join(others)} to a server, which takes {' and '.join(SAMPLING_SETTINGS)}:"
            " its provider's other settings are its own."
        )
    return dict(config or {})


def require_model_name(model: str | Model | None) -> str | None:
    """The name of a model that the server has."""
    if isinstance(model, str | None):
        return model
    raise InvalidArgumentError("a server takes the name of a model: the object would have to run there.")


def reject_local_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse what only means something in the process where the turn runs."""
    local_names = [name for name in LOCAL_ARGUMENTS if arguments.get(name) is not None]
    if local_names:
        raise InvalidArgumentError(
            f"{', '.join(local_names)} cannot be sent to a server: tools of the client run here."
        )
