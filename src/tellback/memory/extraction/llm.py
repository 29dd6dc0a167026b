"""The `llm` extractor: a model reads the conversation, and code checks what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from os import PathLike
from typing import Any

from tellback.chat import ChatOptions, Model
from tellback.chat.output import OutputSpec
from tellback.errors import ConfigurationError
from tellback.memory.extraction.mending import ask
from tellback.memory.extraction.prompts import Prompts, as_prompts
from tellback.memory.extraction.transcript import transcribe
from tellback.memory.extraction.values import Decision, Decisions, Extraction, Question, Verdict, Window


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
        from tellback.memory.extraction.reading import read
        from tellback.memory.extraction.schema import Found, found_schema

        prompt = as_prompts(self.prompts).extraction(window.version)
        transcript = transcribe(window)
        if not transcript.has_words_of_the_user:
            return Extraction()
        spec, quotes = OutputSpec.of(Found), prompt.wants_quotes
        extraction, usage = await ask(
            self._options(self.model, prompt.text),
            transcript.text,
            found_schema([*transcript.lines], quotes=quotes),
            lambda answer: read(spec.parse(answer), transcript, quotes=quotes),
            self.retries,
        )
        return replace(extraction, usage=usage)

    async def decide(self, questions: Sequence[Question]) -> Decisions:
        """What each fact is to its candidates, in one call; where there are none, it is new."""
        from tellback.memory.extraction.deciding import questionnaire, read_decisions
        from tellback.memory.extraction.schema import Judged, judged_schema

        asked = [question for question in questions if question.candidates]
        if not asked:
            return Decisions(tuple(Decision(Verdict.NEW) for _ in questions))
        spec = OutputSpec.of(Judged)
        found, usage = await ask(
            self._options(self.decision_model or self.model, as_prompts(self.prompts).reconcile().text),
            questionnaire(asked),
            judged_schema(len(asked), max(len(question.candidates) for question in asked)),
            lambda answer: read_decisions(spec.parse(answer), asked),
            self.retries,
        )
        remaining = iter(found)
        decisions = (next(remaining) if each.candidates else Decision(Verdict.NEW) for each in questions)
        return Decisions(tuple(decisions), usage)

    def _options(self, model: str | Model | None, system: str) -> ChatOptions:
        if model is None or model == "":
            raise ConfigurationError(
                "The llm extractor has no model: pass LlmExtractor(model=...), or open Tellback(model=...)."
            )
        return ChatOptions(model=model, system=system, config=self.config, max_output_tokens=self.max_output_tokens)
