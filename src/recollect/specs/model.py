"""What an agent's description may say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, WrapValidator, model_validator
from pydantic.alias_generators import to_camel

from recollect.specs.parameters import Parameter, read_tree


def _or_parameter(value: Any, check: Any) -> Any:
    return value if isinstance(value, Parameter) else check(value)


BINDABLE = WrapValidator(_or_parameter)
"""In an `AgentSpec` such a field may hold a `Parameter` instead; in a `BoundSpec` it never does."""

Text = Annotated[str, Field(strict=True, max_length=100_000)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200, pattern=r"\S")]
Message = Annotated[str, Field(strict=True, pattern=r"\S")]
ToolName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Whole = Annotated[int, Field(strict=True, ge=1)]
Hits = Annotated[int, Field(strict=True, ge=1, le=50)]
Cycles = Annotated[int, Field(strict=True, ge=1, le=1_000)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Flag = Annotated[bool, Field(strict=True)]
Categories = tuple[Annotated[Name, BINDABLE], ...]

ArgumentType = Literal["string", "number", "integer", "boolean", "array", "object"]


class Node(BaseModel):
    """A part of a description: keys in camelCase or snake_case, and no others."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class ArgumentSpec(Node):
    """What an argument of an invocation must be. One with a default may be left out."""

    type: ArgumentType | None = None
    required: Flag = True
    default: Any = None
    description: Text | None = None

    @property
    def has_default(self) -> bool:
        """Whether a default was given, even if it is null."""
        return "default" in self.model_fields_set


class ToolSpec(Node):
    """What all tools of a description have."""

    type: str
    name: ToolName
    description: Annotated[Text | None, BINDABLE] = None
    timeout: Annotated[Seconds | None, BINDABLE] = None


class MemoryToolSpec(ToolSpec):
    """A tool that works in a memory space."""

    memory_space_id: Annotated[Name, BINDABLE]


class RecallToolSpec(MemoryToolSpec):
    """A tool that recalls."""

    limit: Annotated[Hits | None, BINDABLE] = None
    category_names: Annotated[Categories | None, BINDABLE] = None


class RecallByTopicSpec(RecallToolSpec):
    """What is remembered about a topic."""

    type: Literal["RECALL_BY_TOPIC"]
    min_score: Annotated[Share | None, BINDABLE] = None


class RecallByEntitySpec(RecallToolSpec):
    """What is remembered about a person or a thing."""

    type: Literal["RECALL_BY_ENTITY"]


class RecallTimelineSpec(RecallToolSpec):
    """How things changed."""

    type: Literal["RECALL_TIMELINE"]


class RememberSpec(MemoryToolSpec):
    """Keep something."""

    type: Literal["REMEMBER"]
    requires_approval: Flag = False


class ForgetSpec(MemoryToolSpec):
    """Put memories aside."""

    type: Literal["FORGET"]
    requires_approval: Flag = False


class FunctionSpec(ToolSpec):
    """A Python function that was registered with the description, by its name as a tool."""

    type: Literal["FUNCTION"]
    requires_approval: Flag = False


AnyTool = Annotated[
    RecallByTopicSpec | RecallByEntitySpec | RecallTimelineSpec | RememberSpec | ForgetSpec | FunctionSpec,
    Field(discriminator="type"),
]
TOOL_TYPES: Mapping[str, type[ToolSpec]] = {
    "RECALL_BY_TOPIC": RecallByTopicSpec,
    "RECALL_BY_ENTITY": RecallByEntitySpec,
    "RECALL_TIMELINE": RecallTimelineSpec,
    "REMEMBER": RememberSpec,
    "FORGET": ForgetSpec,
    "FUNCTION": FunctionSpec,
}


class _Agent(Node):
    name: Name
    description: Annotated[Text | None, BINDABLE] = None
    model: Annotated[Name | None, BINDABLE] = None
    system: Annotated[
        Text | None, Field(validation_alias=AliasChoices("systemPrompt", "system_prompt", "system")), BINDABLE
    ] = None
    tools: tuple[AnyTool, ...] = ()
    max_cycles: Annotated[Cycles | None, BINDABLE] = None
    max_output_tokens: Annotated[Whole | None, BINDABLE] = None
    namespace: Annotated[Name | None, BINDABLE] = None
    config: dict[str, Any] = Field(default_factory=dict)


class AgentSpec(_Agent):
    """An agent as it is described; `load_spec` makes it of JSON, YAML, a file or a mapping.

    Where a text was `$name` and nothing else, there is a `Parameter`, and `bind` puts the argument's value in its
    place.

    >>> AgentSpec(name="support", system="$tone").system
    Parameter(name='tone')
    """

    user_message: Annotated[Message, BINDABLE] = Parameter("userMessage")  # type: ignore[assignment]
    arguments: dict[str, ArgumentSpec] | None = None

    LITERAL: ClassVar = ("arguments",)

    @model_validator(mode="before")
    @classmethod
    def _read_parameters(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {key: each if key in cls.LITERAL else read_tree(each) for key, each in given.items()}


class BoundSpec(_Agent):
    """An agent with every argument in its place: what one invocation runs. `bind` makes it."""

    user_message: Message | None = None
