"""`ChatOptions`: the options of the loop, and the token budget."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from tellback.chat.model import Model, ToolEntry
from tellback.errors import BudgetExceededError, ConfigurationError
from tellback.tools import as_tool, tools_by_name
from tellback.types import Message
from tellback.types.jsontext import dump_json

if TYPE_CHECKING:
    from tellback.chat.registry import ProviderRegistration

CountTokens = Callable[[Sequence[Message], str], int]


class ChatOptionsDict(TypedDict, total=False):
    """The fields of `ChatOptions`, for functions that accept them as keywords or as a mapping."""

    model: str | Model
    system: str | None
    tools: Sequence[ToolEntry] | None
    skills: Sequence[Any] | None
    skill_resolver: Any
    skill_context: Mapping[str, Any] | None
    open_skills: Sequence[str]
    providers: Sequence[ProviderRegistration] | None
    chat_fn: Callable[..., Any] | None
    chat_stream_fn: Callable[..., Any] | None
    max_iterations: int
    max_context_tokens: int | None
    max_output_tokens: int | None
    warn_context_pct: float | None
    emit_steps: bool
    step_data_type: str
    emit_stream_deltas: bool
    delta_data_type: str
    count_tokens_fn: CountTokens | None
    model_context_window: int | None
    tool_choice: str | None
    output_type: Any
    output_retries: int
    on_max_iterations: Literal["raise", "answer"]
    empty_reply_text: str | None
    config: Mapping[str, Any]


ChatOptionsLike: TypeAlias = "ChatOptions | ChatOptionsDict"
"""`ChatOptions`, or a mapping with some of its fields."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to run a conversation with a model.

    `model` is a name that a registered provider recognises, "auto" for the first available model, or a model object.
    `chat_fn` and `chat_stream_fn` replace the provider. `tools` are `Tool`s or plain functions.

    Budgets are in tokens. A prompt larger than `max_context_tokens` (or than `model_context_window` minus
    `max_output_tokens`) raises `BudgetExceededError` before it is sent. A prompt larger than `warn_context_pct` of that
    limit logs a warning. `max_output_tokens` is also sent to the provider.

    `output_type` makes the answer a validated value (`LoopResult.output`); an invalid answer is sent back with the
    error up to `output_retries` times. With `on_max_iterations="answer"`, the model gets one last call without tools
    instead of an error. A `tool_choice` other than "auto" and "none" applies to the first round only; otherwise the
    model could never answer. `config` is sent to the provider unchanged, such as `{"temperature": 0}`.

    With `empty_reply_text`, a final reply without text is asked for once more, and replaced by this text if it is empty
    again.

    >>> ChatOptions(model="claude-sonnet-5", system="Be brief.").max_iterations
    10
    """

    model: str | Model = ""
    system: str | None = None
    tools: Sequence[ToolEntry] | None = None
    skills: Sequence[Any] | None = None
    skill_resolver: Any = None
    skill_context: Mapping[str, Any] | None = None
    open_skills: Sequence[str] = ()
    providers: Sequence[ProviderRegistration] | None = None
    chat_fn: Callable[..., Any] | None = None
    chat_stream_fn: Callable[..., Any] | None = None
    max_iterations: int = 10
    max_context_tokens: int | None = None
    max_output_tokens: int | None = None
    warn_context_pct: float | None = None
    emit_steps: bool = False
    step_data_type: str = "ai:chat:step"
    emit_stream_deltas: bool = False
    delta_data_type: str = "ai:chat:delta"
    count_tokens_fn: CountTokens | None = None
    model_context_window: int | None = None
    tool_choice: str | None = None
    output_type: Any = None
    output_retries: int = 2
    on_max_iterations: Literal["raise", "answer"] = "raise"
    empty_reply_text: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", "")
        elif isinstance(self.model, type) or not (isinstance(self.model, str) or hasattr(self.model, "complete")):
            raise ConfigurationError(f"model must be a name or a model object, got {self.model!r}.")
        elif isinstance(self.model, str) and self.model.lower() == "auto":
            from tellback.chat.discovery import choose_model  # loaded only for "auto"

            object.__setattr__(self, "model", choose_model().name)
        if self.tools is not None:
            if callable(self.tools) or isinstance(self.tools, str):
                raise ConfigurationError(
                    f"tools must be a list of functions, got {self.tools!r:.80}: write tools=[...]."
                )
            # Convert functions to tools here: local types in their hints are still visible, and errors appear early.
            object.__setattr__(self, "tools", tuple(tools_by_name(self.tools).values()))
        if self.skills is not None or self.skill_resolver is not None:
            self._validate_skills()
        if self.max_iterations is None:
            object.__setattr__(self, "max_iterations", 10)
        if not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise ConfigurationError(f"max_iterations must be an integer of at least 1, got {self.max_iterations!r}.")
        if self.on_max_iterations not in ("raise", "answer"):
            raise ConfigurationError(f"on_max_iterations must be 'raise' or 'answer', got {self.on_max_iterations!r}.")

    def _validate_skills(self) -> None:
        from tellback.skills import SkillResolver, skills_for  # loaded only if there are skills
        from tellback.skills.toolset import BUILTIN_NAMES

        if self.skills is not None:
            if isinstance(self.skills, str | Mapping) or not isinstance(self.skills, Iterable):
                raise ConfigurationError(
                    f"skills must be a list of skills, got {self.skills!r:.80}: write skills=[...]."
                )
            object.__setattr__(self, "skills", tuple(skills_for(self.skills)))
        if not isinstance(self.skill_resolver, SkillResolver | None):
            raise ConfigurationError(f"skill_resolver must be a SkillResolver, got {self.skill_resolver!r:.80}.")
        conflicts = set(BUILTIN_NAMES) & {tool.name for tool in map(as_tool, self.tools or ())}
        if conflicts and (self.skills or self.skill_resolver is not None):
            raise ConfigurationError(f"The tool name {min(conflicts)!r} is reserved for skills: rename the tool.")

    @property
    def model_name(self) -> str:
        """The model's name, whether `model` is a name or an object."""
        return self.model if isinstance(self.model, str) else self.model.model


log = logging.getLogger("tellback.chat")

CHARS_PER_TOKEN = 4
MESSAGE_OVERHEAD_CHARS = 16
"""The role and the separators of a message cost three to five tokens with every provider."""
TOOL_OVERHEAD_TOKENS = 10
MEDIA_TOKENS = {"image": 1_100, "audio": 1_000, "file": 2_000}
"""Rough estimates: the real cost depends on pixels, seconds and pages, not on bytes."""


def check_budget(
    opts: ChatOptions, messages: Sequence[Message], tools: Sequence[ToolEntry] | None = None
) -> Mapping[str, int] | None:
    """Estimate a request's tokens; raise `BudgetExceededError` if it is too large, and log a warning if it is close.

    Returns the estimate of each part, or None if no limit is set.

    >>> from tellback.chat import ChatOptions
    >>> from tellback.types import user_message
    >>> check_budget(ChatOptions(max_context_tokens=100), [user_message("Hello there!")])
    {'messages': 7, 'system': 0, 'tools': 0}
    """
    limit = _resolve_limit(opts)
    if limit is None:
        return None
    model = opts.model_name
    count = opts.count_tokens_fn or count_tokens_heuristic
    breakdown = {
        "messages": count(messages, model),
        "system": estimate_system_tokens(opts.system),
        "tools": estimate_tools_tokens(tools),
    }
    total = sum(breakdown.values())
    if total > limit:
        raise BudgetExceededError(breakdown, total, limit)
    if opts.warn_context_pct is not None:
        threshold = opts.warn_context_pct / 100 if opts.warn_context_pct > 1 else opts.warn_context_pct
        if total > threshold * limit:
            log.warning("The context is almost full: %s", format_budget_breakdown(breakdown, total, limit))
    return breakdown


def count_tokens_heuristic(messages: Sequence[Message], model: str = "") -> int:
    """Estimate tokens as four characters each: within 10% for English prose, too low for code and other scripts.

    >>> from tellback.types import user_message
    >>> count_tokens_heuristic([user_message("x" * 384)], "any-model")
    100
    """
    chars = 0
    media = 0
    for message in messages:
        chars += MESSAGE_OVERHEAD_CHARS
        if message.parts:
            for part in message.parts:
                chars += len(part.text or "")
                media += MEDIA_TOKENS.get(part.kind, 0)
        elif isinstance(message.content, str):
            chars += len(message.content)
        elif message.content is not None:
            chars += len(json.dumps(message.content, default=str))
        for call in message.tool_calls:
            chars += len(call.name) + len(dump_json(call.input))
    return _chars_to_tokens(chars) + media


def estimate_system_tokens(system: str | None) -> int:
    """Estimate the tokens of the system prompt.

    >>> estimate_system_tokens("Be brief.")
    3
    """
    return _chars_to_tokens(len(system)) if system else 0


def estimate_tools_tokens(tools: Sequence[ToolEntry] | None) -> int:
    """Estimate the tokens of the tool definitions: their JSON, plus some overhead for each.

    >>> estimate_tools_tokens(None)
    0
    """
    if not tools:
        return 0
    return sum(
        TOOL_OVERHEAD_TOKENS
        + _chars_to_tokens(len(tool.name) + len(tool.description) + len(dump_json(tool.parameters)))
        for tool in map(as_tool, tools)
    )


def format_budget_breakdown(parts: Mapping[str, int], total: int, limit: int) -> str:
    """Format an estimate for people.

    >>> format_budget_breakdown({"messages": 60, "system": 20}, 80, 100)
    'about 80 of 100 tokens (80%): messages 60, system 20'
    """
    items = ", ".join(f"{name} {count}" for name, count in parts.items())
    return f"about {total} of {limit} tokens ({100 * total / limit:.0f}%): {items}"


def _resolve_limit(opts: ChatOptions) -> int | None:
    window = opts.model_context_window
    if window is not None and opts.max_output_tokens is not None:
        window = max(window - opts.max_output_tokens, 0)
    limits = [limit for limit in (opts.max_context_tokens, window) if limit is not None]
    return min(limits) if limits else None


def _chars_to_tokens(chars: int) -> int:
    return -(-chars // CHARS_PER_TOKEN)
