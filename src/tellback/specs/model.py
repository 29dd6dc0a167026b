"""The model of an agent description: its fields, its tools, and `$name` parameters in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from tellback.errors import AgentSpecError

PARAMETER_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MALFORMED_PARAMETER = re.compile(r"\$(\{.*\}|[A-Za-z_]\S*)\Z")
"""What looks like an argument to people who know other templates: `${x}`, `$a-b`, `$a.b`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Stands in a description for the argument of that name.

    >>> str(Parameter("userMessage"))
    '$userMessage'
    """

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


def parse_parameter(text: str, path: str = "") -> str | Parameter:
    """A text of a description: the argument it names if it is `$name` and nothing else, or the text itself.

    `$$` at the beginning stands for one `$`. What is meant for an argument and names none raises `AgentSpecError`.

    >>> parse_parameter("$space"), parse_parameter("$$space"), parse_parameter("costs $5"), parse_parameter("$5")
    (Parameter(name='space'), '$space', 'costs $5', '$5')
    """
    if text.startswith("$$"):
        return text[1:]
    if text.startswith("$") and PARAMETER_NAME.match(text[1:]):
        return Parameter(text[1:])
    if _MALFORMED_PARAMETER.match(text):
        raise AgentSpecError(
            path,
            f"{text!r:.60} names no argument: write '$name', with letters, digits and '_', or {'$' + text!r:.60} for"
            " that very text.",
        )
    return text


def _parse_leaf(value: Any, path: str) -> Any:
    return parse_parameter(value, path) if isinstance(value, str) else value


def escape_text(text: str) -> str:
    """A text as a description has it: the inverse of `parse_parameter`."""
    return f"${text}" if text.startswith("$") else text


OMITTED = object()


def map_tree(value: Any, convert: Callable[[Any, str], Any], path: str = "") -> Any:
    """A copy of a JSON value with each leaf converted, given its path; what becomes `OMITTED` is left out."""
    if isinstance(value, Mapping):
        pairs = ((key, map_tree(each, convert, f"{path}.{key}" if path else str(key))) for key, each in value.items())
        return {key: each for key, each in pairs if each is not OMITTED}
    if isinstance(value, list | tuple):
        items = (map_tree(each, convert, f"{path}[{index}]") for index, each in enumerate(value))
        return [each for each in items if each is not OMITTED]
    return convert(value, path)


def find_parameters(value: Any) -> list[tuple[str, Parameter]]:
    """Every parameter in a tree, with its path."""
    found: list[tuple[str, Parameter]] = []

    def collect(leaf: Any, path: str) -> None:
        if isinstance(leaf, Parameter):
            found.append((path, leaf))

    map_tree(value, collect)
    return found


CONFIG_KEYS = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_sequences"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "verbosity"),
    *("reasoning_effort", "reasoning", "thinking", "thinking_config"),
)
"""How a model is to answer. A provider's other options say where a request goes, and with which key: those stay in
code."""


def _or_parameter(value: Any, validate: Any) -> Any:
    return value if isinstance(value, Parameter) else validate(value)


def _identity(value: Any) -> Any:
    return value


T = TypeVar("T")
Bindable = Annotated[T, WrapValidator(_or_parameter), PlainSerializer(_identity)]
"""In an `AgentSpec` such a field may hold a `Parameter` instead; in a `BoundSpec` it never does."""

Text = Annotated[str, Field(strict=True, max_length=100_000)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=200, pattern=r"\S")]
MessageText = Annotated[str, Field(strict=True, pattern=r"\S")]
ToolName = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Whole = Annotated[int, Field(strict=True, ge=1)]
Hits = Annotated[int, Field(strict=True, ge=1, le=50)]
Cycles = Annotated[int, Field(strict=True, ge=1, le=1_000)]
UnitFraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=86_400)]
Flag = Annotated[bool, Field(strict=True)]
Categories = Annotated[tuple[Bindable[Name], ...], Field(min_length=1)]

ArgumentType = Literal["string", "number", "integer", "boolean", "array", "object"]


class SpecNode(BaseModel):
    """A part of a description: keys in camelCase or snake_case, and no others."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class ArgumentSpec(SpecNode):
    """What an argument of an invocation must be. One with a default may be left out."""

    type: ArgumentType | None = None
    required: Flag = True
    default: Any = None
    description: Text | None = None

    @property
    def has_default(self) -> bool:
        """Whether a default was given, even if it is null."""
        return "default" in self.model_fields_set

    @property
    def may_be_null(self) -> bool:
        """Whether null stands for nothing: it is the default of an argument that is not required."""
        return self.has_default and self.default is None and not self.required

    @model_serializer(mode="wrap")
    def _serialize(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return written if self.has_default else {key: each for key, each in written.items() if key != "default"}


class ToolSpec(SpecNode):
    """What all tools of a description have."""

    type: str
    name: ToolName
    description: Bindable[Text | None] = None
    timeout: Bindable[Seconds | None] = None


class MemoryToolSpec(ToolSpec):
    """A tool that works in a memory space."""

    memory_space_id: Bindable[Name]


class RecallToolSpec(MemoryToolSpec):
    """A tool that recalls."""

    limit: Bindable[Hits | None] = None
    category_names: Bindable[Categories | None] = None


class RecallByTopicSpec(RecallToolSpec):
    """What is remembered about a topic."""

    type: Literal["RECALL_BY_TOPIC"]
    min_score: Bindable[UnitFraction | None] = None


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


class _AgentFields(SpecNode):
    name: Name
    description: Bindable[Text | None] = None
    model: Bindable[Name | None] = None
    system: Annotated[
        Bindable[Text | None],
        Field(
            validation_alias=AliasChoices("systemPrompt", "system_prompt", "system"), serialization_alias="systemPrompt"
        ),
    ] = None
    tools: tuple[AnyTool, ...] = ()
    max_cycles: Bindable[Cycles | None] = None
    max_output_tokens: Bindable[Whole | None] = None
    namespace: Bindable[Name | None] = None
    config: Annotated[dict[str, Any], PlainSerializer(_identity)] = Field(default_factory=dict)

    @field_validator("config")
    @classmethod
    def _check_config(cls, config: dict[str, Any]) -> dict[str, Any]:
        for key in config:
            if key not in CONFIG_KEYS:
                raise PydanticCustomError("config_key", "not a key of config", {"key": key})
        return config


class AgentSpec(_AgentFields):
    """An agent as it is described; `load_spec` makes it of JSON, YAML, a file or a mapping.

    Where a text was `$name` and nothing else, there is a `Parameter`, and `bind` puts the argument's value in its
    place. `model_dump(by_alias=True)` and `model_dump_json(by_alias=True)` write it as `load_spec` reads it.

    >>> AgentSpec(name="support", system="$tone").system
    Parameter(name='tone')
    """

    user_message: Bindable[MessageText] = Parameter("userMessage")  # type: ignore[assignment]
    arguments: dict[str, ArgumentSpec] | None = None

    LITERAL_FIELDS: ClassVar = ("arguments",)

    @model_validator(mode="before")
    @classmethod
    def _parse_parameters(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {
            key: each if key in cls.LITERAL_FIELDS else map_tree(each, _parse_leaf, str(key))
            for key, each in value.items()
        }

    @model_serializer(mode="wrap")
    def _serialize(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(_to_written(self, excluded=self.LITERAL_FIELDS))
        return written


class BoundSpec(_AgentFields):
    """An agent with every argument in its place: what one invocation runs. `bind` makes it."""

    user_message: MessageText | None = None


def _to_written(value: Any, excluded: tuple[str, ...] = ()) -> Any:
    """A copy with `$name` where there is a parameter, and with texts that begin with `$` marked as such."""
    if isinstance(value, Parameter):
        return str(value)
    if isinstance(value, str):
        return escape_text(value)
    if isinstance(value, BaseModel):
        names = [name for name in type(value).model_fields if name not in excluded]
        copied = value.model_copy()
        copied.__dict__.update({name: _to_written(getattr(value, name)) for name in names})
        return copied
    if isinstance(value, Mapping):
        return {key: _to_written(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_to_written, value))
    return value


def spec_to_tree(spec: AgentSpec) -> dict[str, Any]:
    """All that a description says, by the keys of JSON, but for the arguments it declares."""
    tree = _node_to_tree(spec, spec.model_fields_set - set(spec.LITERAL_FIELDS))
    return {**tree, "userMessage": spec.user_message}


def _node_to_tree(node: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    return {_json_key(node, name): map_tree(getattr(node, name), _to_plain) for name in names}


def _to_plain(value: Any, path: str) -> Any:
    return _node_to_tree(value, value.model_fields_set) if isinstance(value, BaseModel) else value


def _json_key(node: BaseModel, name: str) -> str:
    if name == "system":
        return "systemPrompt"
    return type(node).model_fields[name].alias or name
