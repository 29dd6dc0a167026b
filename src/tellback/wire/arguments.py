"""Arguments of the handles' methods in JSON: types, bounds, examples, and how a client encodes them.

`KINDS` has the type and encoder of each annotation, `ARGUMENTS` adds bounds and examples by argument name. An entry of
`wire.operations` can override them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import quote

from pydantic import Field

from tellback import validation
from tellback.chat import Model
from tellback.chat.usage import make_usage, parse_usage
from tellback.errors import InvalidArgumentError
from tellback.memory.bindings import PolicyLike, ScopeLike
from tellback.types.blocks import Content, message_blocks
from tellback.types.conversations import AssistantTurn, Visibility
from tellback.types.ids import utc_now
from tellback.types.jobs import ConversationScope, JobStatus
from tellback.types.memory import Category
from tellback.types.messages import ChatUsage, Message
from tellback.validation import CategoryLike
from tellback.wire.base import (
    CategoryKindIn,
    CountIn,
    DatetimeIn,
    EntityTypeIn,
    FractionIn,
    IdIn,
    InputModel,
    NameIn,
    QueryIn,
    camel,
)
from tellback.wire.messages import ContentIn, encode_block

MAX_IDS = 200
"""The maximum number of ids in a field."""
MAX_ATOMS = 500
"""The maximum number of atoms that one request adds."""
MAX_IMPORTED_MESSAGES = 1_000
"""The maximum number of messages that one request imports."""
MAX_CATEGORIES = 100
MAX_SCOPES = 100
MAX_SPACES = 50
MAX_TURNS = 1_000
MAX_RECALLED = 200
MAX_RATE_LIMIT = 1_000_000
MAX_WAIT_SECONDS = 30.0
"""The maximum seconds that one request waits for jobs."""

MAX_AGE_SECONDS = 365_000 * 86_400
"""The maximum of all durations."""
BatchLimitIn = Annotated[int, Field(ge=1, le=1_000)]

ID_PREFIXES = {
    "space": "ms",
    "atom": "atom",
    "entity": "ent",
    "conversation": "conv",
    "message": "msg",
    "job": "job",
    "binding": "bind",
    "API key": "key",
}
"""The prefixes of ids by kind. Ids of other kinds are names chosen by callers."""

_SERVER_ID = re.compile(r"[a-z]+_[0-9a-z]+")

UNSET: Any = object()
REQUIRED: Any = ...


def text(max_length: int, min_length: int = 0) -> Any:
    """Return the type of a string with a maximum length."""
    return Annotated[str, Field(min_length=min_length or None, max_length=max_length)]


def several(each: Any, max_length: int, min_length: int = 0) -> Any:
    """Return the type of a list with a maximum length."""
    return Annotated[list[each], Field(min_length=min_length or None, max_length=max_length)]


@dataclass(frozen=True, slots=True)
class Argument:
    """How an argument in JSON differs from the method's argument: its type with bounds, its description, an example.

    `name` is its JSON name (in snake case), if it differs. `default` replaces the method's default; REQUIRED means that
    the argument is required in JSON, although the method has a default.
    """

    type: Any = None
    description: str | None = None
    example: Any = UNSET
    name: str | None = None
    default: Any = UNSET


class CategoryIn(InputModel):
    """A category of memories: your own name for it, and its kind. The kind PATTERN is reserved for the platform."""

    name: str = Field(max_length=200, examples=["preference"])
    kind: CategoryKindIn = Field(examples=["PREFERENCE"])


class ConversationScopeIn(InputModel):
    """Conversations of a namespace and a user; `*` (the default) matches any."""

    namespace: str = Field(default="*", max_length=200, examples=["daily-checkin"])
    user_id: str = Field(default="*", max_length=200, examples=["*"])


class ExtractionPolicyIn(InputModel):
    """When to extract; by default when a conversation closes."""

    extraction_version: str = Field(default="v1", max_length=100)
    on_conversation_closed: bool = True
    windowed: bool = Field(default=False, description="Also extract every `windowTurns` turns.")
    window_turns: CountIn = 0


class UsageIn(InputModel):
    """Tokens, cost and latency of a model call."""

    input_tokens: CountIn | None = None
    output_tokens: CountIn | None = None
    total_tokens: CountIn | None = None
    cost_usd: float | None = Field(default=None, ge=0)
    latency_ms: CountIn | None = None
    provider: NameIn | None = Field(
        default=None, examples=["anthropic"], description="By default, the provider of the message."
    )
    model: NameIn | None = Field(default=None, description="By default, the model of the message.")
    cached_tokens: CountIn | None = None
    cache_write_tokens: CountIn | None = None
    reasoning_tokens: CountIn | None = None

    def arguments(self) -> Any:
        """Return the numbers as a mapping, or as a usage value if a provider or a model is set."""
        arguments = super().arguments()
        if self.provider is None and self.model is None:
            return arguments
        return make_usage(arguments, self.provider, self.model)


class ImportedMessageIn(InputModel):
    """A message of an imported chat."""

    drops_null = True

    role: Literal["user", "assistant", "tool", "system"] = Field(examples=["user"])
    content: ContentIn = Field(examples=["Hi, where's my refund?"])
    visibility: Visibility | None = Field(
        default=None, description="Default: 'user', or 'internal' for system messages."
    )
    created_at: DatetimeIn | None = None
    stop_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: UsageIn | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None


class RecallIn(InputModel):
    """Options of recall and the working context. Null means the default."""

    drops_null = True

    memory_space_id: IdIn | None = None
    recall_query: QueryIn | None = Field(default=None, description="The user's last message by default.")
    recent_turns: Annotated[int, Field(ge=0, le=MAX_TURNS)] | None = Field(default=None, examples=[10])
    recall_limit: Annotated[int, Field(ge=0, le=MAX_RECALLED)] | None = Field(default=None, examples=[8])
    token_budget: CountIn | None = Field(default=None, examples=[8_000])
    include_rolling_summary: bool | None = None
    always_on_category_names: list[NameIn] | None = Field(
        default=None, max_length=MAX_CATEGORIES, examples=[["identity", "preference"]]
    )
    template_id: str | None = Field(default=None, max_length=200, examples=["default"])
    min_score: FractionIn | None = None
    now: DatetimeIn | None = None


class BuildWorkingContext(RecallIn):
    """Options of the working context. Null means the default."""

    conversation_id: IdIn | None = Field(default=None, description="Null for a conversation that has not started.")
    memory_space_id: IdIn | None = Field(default=None, description="The space to recall from; null recalls nothing.")


class CloseEveryonesStale(InputModel):
    """Close inactive conversations of all users."""

    older_than: float = Field(ge=0, le=MAX_AGE_SECONDS, examples=[3600], description="Seconds without activity.")
    limit: BatchLimitIn = Field(
        default=200,
        description="The number of conversations to read in this request. Their users' stale conversations are closed.",
    )
    cursor: str | None = Field(default=None, max_length=1_000, description="The nextCursor of the previous response.")


class ReplayConversations(InputModel):
    """Extract conversations of all users again, oldest first."""

    namespace: str | None = Field(default=None, max_length=200, description="All namespaces by default.")
    extraction_version: str | None = Field(default=None, max_length=100)
    limit: BatchLimitIn = Field(default=100, description="The number of conversations to queue in this request.")
    cursor: str | None = Field(default=None, max_length=1_000, description="The nextCursor of the previous response.")


def build_path(*parts: str) -> str:
    """Join parts to a path; each part is percent-encoded.

    >>> build_path("ai-memory", "atoms", "a/b")
    '/ai-memory/atoms/a%2Fb'
    """
    return "/" + "/".join(quote(part, safe="-_.~") if part not in (".", "..") else "%2E" * len(part) for part in parts)


def is_server_id(id: Any) -> bool:
    """Whether the id has the format of server-generated ids.

    >>> is_server_id("conv_018f3c0de0a17b2c4d5e6f708192"), is_server_id("open"), is_server_id("a/b")
    (True, False, False)
    """
    return isinstance(id, str) and _SERVER_ID.fullmatch(id) is not None


def encode_cursor(position: str | None) -> str | None:
    """Encode the cursor that continues after a position."""
    return (
        None
        if position is None
        else base64.urlsafe_b64encode(position.encode(errors="surrogatepass")).decode().rstrip("=")
    )


def encode_arguments(**arguments: Any) -> dict[str, Any]:
    """Encode arguments with JSON names, without those that are None.

    >>> encode_arguments(valid_from=None, min_importance=3)
    {'minImportance': 3}
    """
    return {camel(name): encode_value(value) for name, value in arguments.items() if value is not None}


def encode_content(content: Content) -> Any:
    """Encode a message's content: a string or a list of blocks. Raises for invalid blocks."""
    if isinstance(content, str):
        return content
    return [encode_block(block) for block in validation.parse_content(content)]


def encode_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Validate metadata, which must be a JSON object."""
    return None if metadata is None else validation.validate_metadata(metadata)


def encode_usage(usage: Any, provider: str | None = None, model: str | None = None) -> dict[str, Any] | None:
    """Encode usage numbers. Their names may be ours or those of a provider."""
    counted = parse_usage(usage, provider, model)
    return None if counted is None else encode_value(counted)


def encode_datetime(name: str, value: datetime | str | None) -> str | None:
    """Encode a date with its timezone."""
    return None if value is None else validation.parse_datetime(name, value).isoformat()


def encode_duration(name: str, value: timedelta | float | None) -> float | None:
    """Encode a duration as seconds."""
    return None if value is None else validation.parse_duration(name, value).total_seconds()


def encode_value(value: Any) -> Any:
    """Encode any value: dataclasses become mappings with JSON names, dates become strings.

    Mappings passed by the caller keep their keys.
    """
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    if isinstance(value, datetime):
        return encode_datetime("datetime", value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Mapping):
        return {_validate_key(name): encode_value(each) for name, each in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        fields_by_name = {camel(field.name): getattr(value, field.name) for field in fields(value)}
        return {name: encode_value(each) for name, each in fields_by_name.items() if each is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [encode_value(each) for each in value]
    raise InvalidArgumentError(f"{value!r:.80} cannot be encoded as JSON.")


def encode_mapping(value: Any) -> Any:
    """Encode a value, or a mapping with snake_case or camelCase names."""
    if isinstance(value, Mapping):
        return {camel(_validate_key(name)): encode_value(each) for name, each in value.items()}
    return encode_value(value)


def _validate_key(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgumentError(f"Keys must be strings, got {name!r:.80}.")
    return name


def encode_text(name: str, value: Any) -> str:
    """Return a string; raise for other types, which a URL query would convert to strings."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} must be a string, got {value!r:.80}.")
    return value


def encode_model(model: str | Model | None) -> str | None:
    """Return the name of a model; raise for model objects, which cannot run on a server."""
    if isinstance(model, str | None):
        return model
    raise InvalidArgumentError("Pass the name of a model: a model object cannot be sent to a server.")


def encode_category(category: CategoryLike | None) -> Any:
    """Encode a category: a value, a pair, or a mapping."""
    if isinstance(category, Category):
        return {"name": category.name, "kind": category.kind.value}
    if isinstance(category, tuple | list) and len(category) == 2:
        return {"name": category[0], "kind": category[1]}
    return category


def encode_atom(atom: Mapping[str, Any]) -> dict[str, Any]:
    """Encode one atom of `add_atoms`."""
    body = {str(name): value for name, value in atom.items()}
    body["category"] = encode_category(body.get("category"))
    for name in ("valid_from", "valid_to"):
        body[name] = encode_datetime(name, body.get(name))
    return encode_arguments(**body)


def encode_scopes(scopes: ScopeLike | Iterable[ScopeLike]) -> Any:
    """Encode the scopes of a binding."""
    if isinstance(scopes, ConversationScope | Mapping):
        return encode_mapping(scopes)
    return [encode_mapping(each) for each in scopes]


def encode_expiry(value: datetime | str | timedelta) -> str:
    """Encode an expiry: a date, or a duration from now."""
    end = utc_now() + value if isinstance(value, timedelta) else value
    return validation.parse_datetime("expires_at", end).isoformat()


def encode_assistant_turn(assistant: AssistantTurn | Mapping[str, Any]) -> dict[str, Any]:
    """Encode the assistant's message of a turn, from a value or a mapping."""
    if isinstance(assistant, AssistantTurn):
        return encode_message_fields({field.name: getattr(assistant, field.name) for field in fields(assistant)})
    return encode_message_fields(assistant)


def encode_imported(message: Message | Mapping[str, Any]) -> dict[str, Any]:
    """Encode a message of an imported chat."""
    if isinstance(message, Message):
        return {"role": message.role, "content": [encode_block(block) for block in message_blocks(message)]}
    return encode_message_fields(message)


def encode_message_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Encode the fields of a message."""
    body = {camel(str(name)): value for name, value in message.items() if value is not None}
    if "usage" in body:
        body["usage"] = encode_usage(body["usage"], body.get("provider"), body.get("model"))
    for name, encode in _MESSAGE_FIELDS.items():
        if name in body:
            body[name] = encode(body[name])
    return encode_arguments(**body)


_MESSAGE_FIELDS: dict[str, Callable[[Any], Any]] = {
    "content": encode_content,
    "metadata": encode_metadata,
    "createdAt": lambda value: encode_datetime("created_at", value),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """An annotation's JSON type, and the function that encodes an argument, called with its name and value."""

    type: Any
    encode: Callable[[str, Any], Any] = lambda _, value: encode_value(value)


def _members(hint: Any) -> frozenset[Any]:
    """Return the types of an annotation, without None."""
    found = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return frozenset(found) - {NoneType}


KINDS: dict[frozenset[Any], Kind] = {
    _members(hint): kind
    for hint, kind in (
        (str, Kind(str, encode_text)),
        (bool, Kind(bool)),
        (int, Kind(CountIn)),
        (float, Kind(float)),
        (datetime | str, Kind(DatetimeIn, encode_datetime)),
        (datetime | str | timedelta, Kind(DatetimeIn, lambda _, value: encode_expiry(value))),
        (timedelta | float, Kind(Annotated[float, Field(ge=0)], encode_duration)),
        (Mapping[str, Any], Kind(dict[str, Any], lambda _, value: encode_metadata(value))),
        (Iterable[str], Kind(list[str])),
        (Content, Kind(ContentIn, lambda _, value: encode_content(value))),
        (CategoryLike, Kind(CategoryIn, lambda _, value: encode_category(value))),
        (Sequence[Mapping[str, Any]], Kind(None, lambda _, value: [encode_atom(each) for each in value])),
        (
            ScopeLike | Iterable[ScopeLike],
            Kind(ConversationScopeIn | several(ConversationScopeIn, MAX_SCOPES), lambda _, value: encode_scopes(value)),
        ),
        (PolicyLike, Kind(ExtractionPolicyIn, lambda _, value: encode_mapping(value))),
        (str | Model, Kind(str, lambda _, value: encode_model(value))),
        (ChatUsage | Mapping[str, Any], Kind(UsageIn)),
        (AssistantTurn | Mapping[str, Any], Kind(None, lambda _, value: encode_assistant_turn(value))),
        (
            Sequence[Message | Mapping[str, Any]],
            Kind(
                several(ImportedMessageIn, MAX_IMPORTED_MESSAGES, 1),
                lambda _, value: [encode_imported(each) for each in value],
            ),
        ),
        (JobStatus | str, Kind(JobStatus)),
    )
}

ARGUMENTS: dict[str, Argument] = {
    "alias_id": Argument(IdIn, example="ent_018f3c0de0a17b2c4d5e6f708192"),
    "aliases": Argument(several(NameIn, MAX_IDS), example=["Ana"]),
    "canonical_name": Argument(text(500), example="Ana Silva"),
    "category_names": Argument(several(NameIn, MAX_CATEGORIES)),
    "close_after": Argument(description="Seconds without a new message after which the conversation closes."),
    "confidence": Argument(FractionIn),
    "conversation_id": Argument(IdIn),
    "entity_id_or_name": Argument(NameIn, example="Ana Silva"),
    "entity_ids": Argument(several(IdIn, MAX_IDS)),
    "extraction_version": Argument(text(100), example="v2"),
    "idempotency_key": Argument(description="Alternative to the header Idempotency-Key."),
    "importance": Argument(Annotated[int, Field(ge=1, le=5)]),
    "known_at": Argument(description="Return what was known at this time."),
    "limit": Argument(CountIn, "The maximum number of results; the server has a limit."),
    "memory_space_ids": Argument(several(IdIn, MAX_SPACES), "Ids of this user's spaces."),
    "metadata": Argument(example={"source": "web", "priority": "normal"}),
    "min_importance": Argument(Annotated[int, Field(ge=0, le=5)]),
    "min_score": Argument(FractionIn),
    "namespace": Argument(text(200), example="daily-checkin"),
    "neighbours": Argument(CountIn, "The number of turns to return before and after each hit."),
    "now": Argument(description="The time that relative dates and ages refer to; now by default."),
    "older_than": Argument(description="Seconds without activity.", example=3600),
    "query": Argument(QueryIn, example="When does the user like to meet?"),
    "session_id": Argument(text(500)),
    "source_conversation_id": Argument(IdIn),
    "source_message_ids": Argument(several(IdIn, MAX_IDS)),
    "stop_reason": Argument(example="end_turn"),
    "title": Argument(example="Refund question"),
    "tool_use_id": Argument(example="tu_1"),
    "type": Argument(EntityTypeIn, example="PERSON"),
    "user_visibility": Argument(Visibility),
    "valid_at": Argument(description="Return facts valid at this time."),
    "visibility": Argument(Visibility),
}
"""Types, descriptions and examples by argument name, unless an operation overrides them."""


def argument_kind(hint: Any) -> Kind:
    """Return the JSON type and encoder of an annotation."""
    return KINDS.get(_members(hint)) or Kind(hint)


def allows_none(hint: Any) -> bool:
    """Whether an annotation allows None."""
    return NoneType in get_args(hint)
