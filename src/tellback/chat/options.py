"""`ChatOptions`: everything the loop needs to know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from tellback.chat.model import Model, ToolEntry
from tellback.errors import ConfigurationError
from tellback.tools import as_tool, tools_by_name
from tellback.types import Message

if TYPE_CHECKING:
    from tellback.chat.registry import ProviderRegistration

CountTokens = Callable[[Sequence[Message], str], int]


class ChatOptionsDict(TypedDict, total=False):
    """The fields of `ChatOptions`, for those that take some of them by keyword or as a mapping."""

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
    config: Mapping[str, Any]


ChatOptionsLike: TypeAlias = "ChatOptions | ChatOptionsDict"
"""Options, or a mapping of some of them."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How to run a conversation with a model.

    `model` is a name that a registered provider recognises, "auto" for the best at hand, or a model object. `chat_fn`
    and `chat_stream_fn` are called instead of the provider when given. `tools` are `Tool`s or plain functions.

    Budgets are in tokens: a call whose prompt would pass `max_context_tokens` (or `model_context_window` less the
    output cap) raises `BudgetExceededError` before anything is sent, and one past `warn_context_pct` of that limit
    logs a warning. `max_output_tokens` goes to the provider.

    `output_type` makes the answer a checked value (`LoopResult.output`); an answer that does not fit is sent back
    with the error up to `output_retries` times. `on_max_iterations="answer"` gives the model one last call without
    tools instead of raising. `tool_choice` other than "auto" and "none" holds for the first round only, or the model
    could never answer. `config` goes to the provider as it is, such as `{"temperature": 0}`.

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
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", "")
        elif isinstance(self.model, type) or not (isinstance(self.model, str) or hasattr(self.model, "complete")):
            raise ConfigurationError(f"model is a name or a model object, not {self.model!r}.")
        elif isinstance(self.model, str) and self.model.lower() == "auto":
            from tellback.chat.discovery import choose_model  # only those who leave it open pay for the search

            object.__setattr__(self, "model", choose_model().name)
        if self.tools is not None:
            if callable(self.tools) or isinstance(self.tools, str):
                raise ConfigurationError(f"tools is a list of functions, not {self.tools!r:.80}: write tools=[...].")
            # Made here, where names local to the caller are still in sight, and a bad one is found at once.
            object.__setattr__(self, "tools", tuple(tools_by_name(self.tools).values()))
        if self.skills is not None or self.skill_resolver is not None:
            self._validate_skills()
        if self.max_iterations is None:
            object.__setattr__(self, "max_iterations", 10)
        if not isinstance(self.max_iterations, int) or self.max_iterations < 1:
            raise ConfigurationError(f"max_iterations is a whole number of at least 1, not {self.max_iterations!r}.")
        if self.on_max_iterations not in ("raise", "answer"):
            raise ConfigurationError(f"on_max_iterations is 'raise' or 'answer', not {self.on_max_iterations!r}.")

    def _validate_skills(self) -> None:
        from tellback.skills import SkillResolver, skills_for  # only those who have skills pay for them
        from tellback.skills.toolset import BUILTIN_NAMES

        if self.skills is not None:
            if isinstance(self.skills, str | Mapping) or not isinstance(self.skills, Iterable):
                raise ConfigurationError(f"skills is a list of skills, not {self.skills!r:.80}: write skills=[...].")
            object.__setattr__(self, "skills", tuple(skills_for(self.skills)))
        if not isinstance(self.skill_resolver, SkillResolver | None):
            raise ConfigurationError(f"skill_resolver is a SkillResolver, not {self.skill_resolver!r:.80}.")
        conflicts = set(BUILTIN_NAMES) & {tool.name for tool in map(as_tool, self.tools or ())}
        if conflicts and (self.skills or self.skill_resolver is not None):
            raise ConfigurationError(
                f"The tool {min(conflicts)!r} has the name of one that comes with skills: rename it."
            )

    @property
    def model_name(self) -> str:
        """The model's name, whether `model` is a name or an object."""
        return self.model if isinstance(self.model, str) else self.model.model
