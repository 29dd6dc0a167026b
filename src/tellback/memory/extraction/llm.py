"""The `llm` extractor: a model reads the conversation, and code checks what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from os import PathLike
from typing import Any

from tellback.chat import ChatOptions, Model
from tellback.chat.output import OutputSpec
from tellback.errors import ConfigurationError
from tellback.memory.extraction.mending import ask_model
from tellback.memory.extraction.prompts import Prompts, as_prompts
from tellback.memory.extraction.transcript import render_transcript
from tellback.memory.extraction.values import Decision, Extraction, FactDecisions, Question, Verdict, Window


@dataclass(frozen=True, slots=True, eq=False)
class LlmExtractor:
    """Has a model note what is worth remembering, and judge it against what is known: one call each.

    `model` is a name or a model object; without one, `with_model` gives it later. `decision_model` judges, if another
    one should. `prompts` is a folder with prompts of your own. An answer that cannot be used goes back to the model
    with the reason `retries` times, then `ExtractionError` is raised. `config` and `max_output_tokens` go to the model.

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
            raise ConfigurationError(f"retries is a whole number of at least 0, not {self.retries!r}.")

    def with_model(self, model: str | Model) -> LlmExtractor:
        """The same with that model."""
        return replace(self, model=model)

    def check_version(self, version: str) -> None:
        """Raise `ConfigurationError` if there is no prompt of that version."""
        as_prompts(self.prompts).extraction(version)

    async def extract(self, window: Window) -> Extraction:
        """What the window says that is worth remembering; without a call if the user says nothing in it."""
        from tellback.memory.extraction.reading import parse_extraction
        from tellback.memory.extraction.schema import ExtractionOutput, extraction_schema

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
        """What each fact is to its candidates, in one call; where there are none, it is new."""
        from tellback.memory.extraction.deciding import parse_decisions, render_questions
        from tellback.memory.extraction.schema import DecisionsOutput, decisions_schema

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
