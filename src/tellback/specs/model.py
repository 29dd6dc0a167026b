"""The model of an agent spec: its fields, its tools, and its `$name` parameters."""

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
"""Text in the parameter syntax of other template languages: `${x}`, `$a-b`, `$a.b`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A placeholder in a spec for the argument of that name.

    >>> str(Parameter("userMessage"))
    '$userMessage'
    """

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


def parse_parameter(text: str, path: str = "") -> str | Parameter:
    """Return the parameter if the whole text is `$name`, otherwise the text itself.

    `$$` at the beginning is an escaped `$`. A malformed parameter raises `AgentSpecError`.

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
            f"{text!r:.60} is not a valid parameter: write '$name', with letters, digits and '_', or"
            f" {'$' + text!r:.60} for that exact text.",
        )
    return text


def _parse_leaf(value: Any, path: str) -> Any:
    return parse_parameter(value, path) if isinstance(value, str) else value


def escape_text(text: str) -> str:
    """Escape a text for a spec; the inverse of `parse_parameter`."""
    return f"${text}" if text.startswith("$") else text


OMITTED = object()


def map_tree(value: Any, convert: Callable[[Any, str], Any], path: str = "") -> Any:
    """Copy a JSON value and convert each leaf with its path; leaves converted to `OMITTED` are removed."""
    if isinstance(value, Mapping):
        pairs = ((key, map_tree(each, convert, f"{path}.{key}" if path else str(key))) for key, each in value.items())
        return {key: each for key, each in pairs if each is not OMITTED}
    if isinstance(value, list | tuple):
        items = (map_tree(each, convert, f"{path}[{index}]") for index, each in enumerate(value))
        return [each for each in items if each is not OMITTED]
    return convert(value, path)


def find_parameters(value: Any) -> list[tuple[str, Parameter]]:
    """Return every parameter in a tree with its path."""
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
"""The model options allowed in a spec. Other provider options, such as URLs and API keys, can only be set in code."""


def _or_parameter(value: Any, validate: Any) -> Any:
    return value if isinstance(value, Parameter) else validate(value)


def _identity(value: Any) -> Any:
    return value


T = TypeVar("T")
Bindable = Annotated[T, WrapValidator(_or_parameter), PlainSerializer(_identity)]
"""A field whose value can be a `Parameter` in an `AgentSpec`, but never in a `BoundSpec`."""

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
    """A part of a spec. Keys may be in camelCase or snake_case; unknown keys are rejected."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True
    )


class ArgumentSpec(SpecNode):
    """The declaration of an argument. An argument with a default is optional."""

    type: ArgumentType | None = None
    required: Flag = True
    default: Any = None
    description: Text | None = None

    @property
    def has_default(self) -> bool:
        """Whether a default is declared, even if it is null."""
        return "default" in self.model_fields_set

    @property
    def may_be_null(self) -> bool:
        """Whether null is allowed: it is the default and the argument is not required."""
        return self.has_default and self.default is None and not self.required

    @model_serializer(mode="wrap")
    def _serialize(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return written if self.has_default else {key: each for key, each in written.items() if key != "default"}


class ToolSpec(SpecNode):
    """The common fields of all tools."""

    type: str
    name: ToolName
    description: Bindable[Text | None] = None
    timeout: Bindable[Seconds | None] = None


class MemoryToolSpec(ToolSpec):
    """A tool that uses a memory space."""

    memory_space_id: Bindable[Name]


class RecallToolSpec(MemoryToolSpec):
    """A tool that recalls memories."""

    limit: Bindable[Hits | None] = None
    category_names: Bindable[Categories | None] = None


class RecallByTopicSpec(RecallToolSpec):
    """Recall memories about a topic."""

    type: Literal["RECALL_BY_TOPIC"]
    min_score: Bindable[UnitFraction | None] = None


class RecallByEntitySpec(RecallToolSpec):
    """Recall memories about a person or a thing."""

    type: Literal["RECALL_BY_ENTITY"]


class RecallTimelineSpec(RecallToolSpec):
    """Recall memories in the order of time."""

    type: Literal["RECALL_TIMELINE"]


class RememberSpec(MemoryToolSpec):
    """Store a memory."""

    type: Literal["REMEMBER"]
    requires_approval: Flag = False


class ForgetSpec(MemoryToolSpec):
    """Archive memories."""

    type: Literal["FORGET"]
    requires_approval: Flag = False


class FunctionSpec(ToolSpec):
    """A Python function registered with the spec, by its tool name."""

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
    """An agent spec; `load_spec` creates it from JSON, YAML, a file or a mapping.

    A text that was only `$name` is a `Parameter`, which `bind` replaces with the argument's value. `load_spec` can
    read the output of `model_dump(by_alias=True)` and `model_dump_json(by_alias=True)`.

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
    """An agent spec with all parameters replaced by arguments, for one invocation; `bind` creates it.

    >>> from tellback.specs import bind, load_spec
    >>> spec = load_spec({"name": "support", "systemPrompt": "$tone"})
    >>> bound = bind(spec, {"tone": "Be kind.", "userMessage": "Hi!"})
    >>> isinstance(bound, BoundSpec), bound.system, bound.user_message
    (True, 'Be kind.', 'Hi!')
    """

    user_message: MessageText | None = None


def _to_written(value: Any, excluded: tuple[str, ...] = ()) -> Any:
    """Copy a value with parameters written as `$name`, and with texts that begin with `$` escaped."""
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
    """Convert a spec to a tree with JSON keys, without its argument declarations."""
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
