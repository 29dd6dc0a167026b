"""Which model a command uses, and how that is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tellback.chat import ModelChoice

OFFLINE_NOTE = (
    "No model is set up, so answers are only what memory holds: set ANTHROPIC_API_KEY, OPENAI_API_KEY or"
    " GEMINI_API_KEY, start Ollama, or pass --model. `tellback doctor` tells more."
)


def resolve_model(model: str | None = None) -> ModelChoice:
    """The model that answers: the one that is named, or the best that is set up here. An unknown name raises."""
    from tellback.chat import ChatOptions, choose_model, resolve_registration

    choice = choose_model(model)
    resolve_registration(ChatOptions(model=choice.name))
    return choice


def extraction_options(model: str | None = None) -> dict[str, Any]:
    """What `Tellback` takes to make memories: the model that reads. The offline one keeps what was said as it is."""
    return {"model": resolve_model(model).name}
