"""The extractors: `llm` (a model reads the conversation) and `verbatim` (no model).

This module also chooses an extractor, calls models and tracks their usage, and validates the result of any extractor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from os import PathLike
from typing import Any, Protocol, TypeVar

from tellback import validation
from tellback.chat import ChatOptions, Model
from tellback.chat.dispatch import CallRequest, call_settings, resolve_caller
from tellback.chat.output import InvalidOutput, OutputSpec
from tellback.chat.usage import make_usage
from tellback.errors import ConfigurationError, ExtractionError, InvalidArgumentError
from tellback.memory.extraction.prompts import Prompts, as_prompts
from tellback.memory.extraction.transcript import is_extractable, render_questions, render_transcript, speaker_names
from tellback.memory.extraction.values import (
    FIRST_YEAR,
    Change,
    Decision,
    ExtractedEntity,
    ExtractedFact,
    Extraction,
    Extractor,
    FactDecisions,
    Question,
    Verdict,
    Window,
)
from tellback.memory.templates import truncate_text
from tellback.runtime import Runtime
from tellback.stores import AtomDraft
from tellback.types import ChatReply, ChatUsage, Message, user_message
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.ids import new_id
from tellback.types.jobs import Job, UsageRecord
from tellback.types.jsontext import make_storable
from tellback.types.memory import TURN_CATEGORY, Category, EntityType
from tellback.validation import MAX_TEXT_LENGTH, validate_optional_text

_TRACKED_USAGE: ContextVar[list[ChatUsage] | None] = ContextVar("tellback_tracked_usage", default=None)

T = TypeVar("T")

TRUNCATED = "it was cut off because it is too long; return only the most important facts, in fewer words"
REFUSED = "it is a refusal"


@contextmanager
def track_usage() -> Iterator[list[ChatUsage]]:
    """Yield a list that collects the usage of every call inside the block, including its tasks.

    >>> with track_usage() as tracked:
    ...     report_usage(ChatUsage(input_tokens=5))
    >>> tracked[0].input_tokens
    5
    """
    tracked: list[ChatUsage] = []
    token = _TRACKED_USAGE.set(tracked)
    try:
        yield tracked
    finally:
        _TRACKED_USAGE.reset(token)


def report_usage(usage: ChatUsage) -> None:
    """Add the usage of a call to the list of the innermost `track_usage` block, if there is one."""
    tracked = _TRACKED_USAGE.get()
    if tracked is not None:
        tracked.append(usage)


async def ask_model(
    opts: ChatOptions, prompt: str, schema: Mapping[str, Any], parse: Callable[[str], T], retries: int
) -> tuple[T, tuple[ChatUsage, ...]]:
    """Call the model, and return its parsed output and the usage of each call.

    Output that `parse` rejects with `InvalidOutput` goes back to the model with the reason, up to `retries` times; then
    `ExtractionError` is raised, with the last output. Errors of the provider are raised unchanged; `track_usage` has
    the usage of earlier calls.
    """
    caller = resolve_caller(opts)
    settings = {**call_settings(opts), "output_schema": schema}
    messages: list[Message] = [user_message(prompt)]
    usage: list[ChatUsage] = []
    while True:
        reply = await caller.complete(CallRequest(messages, opts.system, (), settings))
        provider = None if isinstance(opts.model, str) else opts.model.provider
        usage.append(make_usage(reply.usage or ChatUsage(), provider, opts.model_name or None))
        report_usage(usage[-1])  # report it now, because the next call may fail
        try:
            return parse(_complete_text(reply)), tuple(usage)
        except InvalidOutput as problem:
            if len(usage) > retries:
                raise ExtractionError(
                    f"The output of {opts.model_name or 'the model'} is invalid after {len(usage)} calls:"
                    f" {problem}. The last output is stored with the job (`raw_output`). Run the extraction"
                    " again, or use another model.",
                    reply.text,
                    usage,
                ) from None
            messages += [
                (replace(reply, tool_calls=(), meta=None) if reply.tool_calls else reply).message,
                user_message(
                    f"Invalid answer: {problem}. Answer again, with the whole corrected JSON and nothing else."
                ),
            ]


def _complete_text(reply: ChatReply) -> str:
    if reply.stop_reason == "max_tokens":
        raise InvalidOutput(TRUNCATED)
    if reply.stop_reason == "refusal":
        raise InvalidOutput(REFUSED)
    return reply.text


class _Metered(Protocol):
    @property
    def usage(self) -> Sequence[ChatUsage]: ...


MeteredT = TypeVar("MeteredT", bound=_Metered)


async def record_usage(
    runtime: Runtime, job: Job, purpose: str, records: list[UsageRecord], call: Awaitable[MeteredT]
) -> MeteredT:
    """Return the result of a call. Its usage is added to `records`, even if it fails or is cancelled."""
    with track_usage() as tracked:
        try:
            result = await call
        except BaseException as error:  # including cancellation: earlier usage must be recorded
            reported = error.usage if isinstance(error, ExtractionError) else ()
            records += _usage_records(runtime, job, purpose, max(tracked, reported, key=len))
            raise
    records += _usage_records(runtime, job, purpose, result.usage)
    return result


def _usage_records(runtime: Runtime, job: Job, purpose: str, usage: Sequence[ChatUsage]) -> list[UsageRecord]:
    now = runtime.clock()
    known = {"conversation_id": job.conversation_id, "job_id": job.id}
    return [UsageRecord.from_usage(each, job.scope, purpose, now, **known) for each in usage]


MAX_SHOWN_NAME = 60

ExtractorLike = Extractor | str | None


def validate_extraction(extraction: Any, window: Window) -> Extraction:
    """Return the extraction unchanged, or raise `ExtractionError` with the first invalid item."""
    if not isinstance(extraction, Extraction):
        raise ExtractionError(
            f"An extractor must return an Extraction, got {extraction!r:.80}.", _format_raw(extraction)
        )
    ids = {message.id for message in window.messages}
    _validate_items(extraction, "facts", ExtractedFact, lambda fact: _validate_fact(fact, ids))
    _validate_items(extraction, "entities", ExtractedEntity, _validate_entity)
    return extraction


def _validate_items(extraction: Extraction, what: str, kind: type, validate: Callable[[Any], None]) -> None:
    items = getattr(extraction, what)
    if not isinstance(items, tuple | list):
        raise _invalid_extraction(extraction, what, f"it must be a tuple or list, got {items!r:.80}", items)
    for number, each in enumerate(items):
        if not isinstance(each, kind):
            raise _invalid_extraction(extraction, f"{what}.{number}", f"it must be of type {kind.__name__}", each)
        try:
            validate(each)
        except InvalidArgumentError as problem:
            name = str(getattr(each, "text", None) or getattr(each, "name", ""))[:MAX_SHOWN_NAME]
            raise _invalid_extraction(
                extraction, f"{what}.{number} ({name!r})", str(problem).rstrip("."), each
            ) from None


def _invalid_extraction(extraction: Extraction, where: str, why: str, value: Any) -> ExtractionError:
    return ExtractionError(
        f"The extractor's result is invalid: {where}: {why}. Fix the extractor, then retry the job.",
        _format_raw(value),
        extraction.usage if isinstance(extraction.usage, tuple | list) else (),
    )


def _validate_fact(fact: ExtractedFact, ids: Set[str]) -> None:
    validation.validate_memory_text(fact.text)
    if not isinstance(fact.category, Category):
        raise InvalidArgumentError(f"category must be a Category, got {fact.category!r:.80}")
    if validation.validate_category(fact.category).name == TURN_CATEGORY.name:
        raise InvalidArgumentError(
            f"category {TURN_CATEGORY.name!r} is reserved for verbatim messages; use another name"
        )
    _validate_citations(fact.message_ids, ids)
    validation.validate_importance(fact.importance)
    validation.validate_ratio("confidence", fact.confidence)
    _validate_period(fact.valid_from, fact.valid_to)
    _validate_name_list("entities", fact.entities)
    for what in ("subject", "attribute", "value"):
        validate_optional_text(what, getattr(fact, what), validation.MAX_NAME_LENGTH)
    if not isinstance(fact.single, bool):
        raise InvalidArgumentError(f"single must be True or False, got {fact.single!r:.80}")
    if not isinstance(fact.change, Change):
        raise InvalidArgumentError(f"change must be a Change, got {fact.change!r:.80}")


def _validate_citations(cited: Iterable[str], ids: Set[str]) -> None:
    unknown = [id for id in validation.validate_ids("message_ids", cited) if id not in ids]
    if unknown:
        raise InvalidArgumentError(f"message_ids: the window has no message {', '.join(unknown)[:200]}")
    if not cited:
        raise InvalidArgumentError("message_ids must cite at least one message of the window")


def _validate_period(valid_from: datetime | None, valid_to: datetime | None) -> None:
    for what, value in (("valid_from", valid_from), ("valid_to", valid_to)):
        if value is not None and not isinstance(value, datetime):
            raise InvalidArgumentError(f"{what} must be a datetime, got {value!r:.80}")
        moment = validation.parse_optional_datetime(what, value)
        if moment is not None and moment.year < FIRST_YEAR:
            raise InvalidArgumentError(f"{what} must not be before the year {FIRST_YEAR}, got {moment.isoformat()}")
    if valid_from is not None and valid_to is not None and valid_to <= valid_from:
        raise InvalidArgumentError(f"valid_to must be after {valid_from.isoformat()}, got {valid_to.isoformat()}")


def _validate_entity(entity: ExtractedEntity) -> None:
    _validate_name_list("name", (entity.name,))
    _validate_name_list("aliases", entity.aliases)
    validate_optional_text("description", entity.description, MAX_TEXT_LENGTH)
    if not isinstance(entity.type, EntityType):
        raise InvalidArgumentError(f"type must be an EntityType, got {entity.type!r:.80}")


def _validate_name_list(what: str, names: Iterable[str]) -> None:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InvalidArgumentError(f"{what} must be a list of names, got {names!r:.80}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise InvalidArgumentError(f"{what}: a name must be a non-empty string, got {name!r:.80}")
        validate_optional_text(what, name, validation.MAX_NAME_LENGTH)


def _format_raw(value: Any) -> str:
    return make_storable(repr(value)[:MAX_TEXT_LENGTH])


def build_verbatim_drafts(conversation: Conversation, messages: Sequence[StoredMessage]) -> list[AtomDraft]:
    """Build an episode for each visible message with text: dated, cited, and starting with its speaker.

    The conversation's metadata may name the speakers: `{"speakers": {"user": "Ann", "assistant": "Bob"}}`.
    """
    names = speaker_names(conversation)
    drafts = []
    for message in messages:
        body = make_storable(message.text).strip()
        if not is_extractable(message) or not body:
            continue
        text = f"{names[message.role]}: {body}"
        drafts.append(
            AtomDraft(
                id=new_id("atom"),
                text=truncate_text(text, MAX_TEXT_LENGTH),
                category=TURN_CATEGORY,
                valid_from=message.created_at,
                source_conversation_id=conversation.id,
                source_message_ids=(message.id,),
                origin=f"verbatim:{message.id}",
            )
        )
    return drafts


@dataclass(frozen=True, slots=True, eq=False)
class LlmExtractor:
    """Uses a model to extract facts, and to compare them with known atoms: one call each.

    `model` is a name or a model object; without one, use `with_model`. `decision_model` is an optional other model for
    the comparison. `prompts` is a folder with your own prompts. Invalid output goes back to the model with the reason,
    up to `retries` times, then `ExtractionError` is raised. `config` and `max_output_tokens` are passed to the model.

    >>> LlmExtractor(prompts=None).with_model("claude-sonnet-5").model
    'claude-sonnet-5'
    """

    model: str | Model | None = None
    _: KW_ONLY
    prompts: Prompts | str | PathLike[str] | None = None
    decision_model: str | Model | None = None
    retries: int = 2
    config: Mapping[str, Any] = field(default_factory=dict)
    max_output_tokens: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompts", as_prompts(self.prompts))
        object.__setattr__(self, "config", dict(self.config or {}))
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise ConfigurationError(f"retries must be an integer of at least 0, got {self.retries!r}.")

    def with_model(self, model: str | Model) -> LlmExtractor:
        """Return a copy of the extractor with that model."""
        return replace(self, model=model)

    def check_version(self, version: str) -> None:
        """Raise `ConfigurationError` if there is no prompt of that version."""
        as_prompts(self.prompts).extraction(version)

    async def extract(self, window: Window) -> Extraction:
        """Extract the facts of a window. There is no model call if it has no message of the user."""
        from tellback.memory.extraction.parser import ExtractionOutput, extraction_schema, parse_extraction

        prompt = as_prompts(self.prompts).extraction(window.version)
        transcript = render_transcript(window)
        if not transcript.has_user_messages:
            return Extraction()
        spec, quotes = OutputSpec.from_type(ExtractionOutput), prompt.wants_quotes
        extraction, usage = await ask_model(
            self._options(self.model, prompt.text),
            transcript.text,
            extraction_schema([*transcript.lines], quotes=quotes),
            lambda answer: parse_extraction(spec.parse(answer), transcript, quotes=quotes),
            self.retries,
        )
        return replace(extraction, usage=usage)

    async def decide(self, questions: Sequence[Question]) -> FactDecisions:
        """Compare each fact with its candidates, in one call. A fact without candidates is new."""
        from tellback.memory.extraction.parser import DecisionsOutput, decisions_schema, parse_decisions

        open_questions = [question for question in questions if question.candidates]
        if not open_questions:
            return FactDecisions(tuple(Decision(Verdict.NEW) for _ in questions))
        spec = OutputSpec.from_type(DecisionsOutput)
        decided, usage = await ask_model(
            self._options(self.decision_model or self.model, as_prompts(self.prompts).reconcile().text),
            render_questions(open_questions),
            decisions_schema(len(open_questions), max(len(question.candidates) for question in open_questions)),
            lambda answer: parse_decisions(spec.parse(answer), open_questions),
            self.retries,
        )
        remaining = iter(decided)
        decisions = (next(remaining) if each.candidates else Decision(Verdict.NEW) for each in questions)
        return FactDecisions(tuple(decisions), usage)

    def _options(self, model: str | Model | None, system: str) -> ChatOptions:
        if model is None or model == "":
            raise ConfigurationError(
                "The llm extractor has no model: pass LlmExtractor(model=...), or open Tellback(model=...)."
            )
        return ChatOptions(model=model, system=system, config=self.config, max_output_tokens=self.max_output_tokens)


class VerbatimExtractor:
    """Needs no model: each message becomes a dated, cited, verbatim EPISODE atom."""

    def drafts(self, window: Window) -> list[AtomDraft]:
        return build_verbatim_drafts(window.conversation, window.messages)


def validate_extractor(extractor: Any) -> ExtractorLike:
    """Return a valid extractor argument, or raise `ConfigurationError`."""
    is_name = isinstance(extractor, str) and extractor in ("llm", "verbatim")
    if extractor is None or is_name or hasattr(extractor, "extract") or hasattr(extractor, "drafts"):
        found: ExtractorLike = extractor
        return found
    raise ConfigurationError(
        f"extractor must be 'llm', 'verbatim' or an object with the method extract, such as LlmExtractor,"
        f" got {extractor!r:.80}."
    )


def resolve_extractor(extractor: ExtractorLike, model: str | Model | None) -> Any:
    """Return the extractor to use: by default an `LlmExtractor` if there is a model, otherwise a verbatim one."""
    if extractor is None:
        extractor = "verbatim" if model is None else "llm"
    if extractor == "verbatim":
        return VerbatimExtractor()

    resolved: Any = LlmExtractor() if extractor == "llm" else extractor
    if isinstance(resolved, LlmExtractor) and resolved.model is None:
        if model is None:
            raise ConfigurationError("The extractor has no model: pass model=... to Tellback or to LlmExtractor.")
        return resolved.with_model(model)
    return resolved
