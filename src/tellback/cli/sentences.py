"""What went wrong, in the words of the command line: its options, not arguments of Python."""

from __future__ import annotations

from tellback.errors import (
    ConversationClosedError,
    MissingKeyError,
    ProviderAuthError,
    TellbackError,
    UnknownModelError,
)


def format_error(error: TellbackError) -> str:
    """One sentence: what happened, and what to do next."""
    if isinstance(error, UnknownModelError):
        known_providers = f" (there are {', '.join(error.known)})" if error.known else ""
        return f"No provider{known_providers} knows the model {error.model!r}: `tellback doctor` shows which can be used here."
    if isinstance(error, MissingKeyError):
        names = " or ".join(error.variables)
        return f"{error.provider} needs an API key: set {names} in the environment, or choose another with --model."
    if isinstance(error, ProviderAuthError):
        status = f" ({error.status})" if error.status else ""
        return (
            f"{error.provider or 'The provider'} refused the API key{status}: check it, or choose another model with"
            " --model; `tellback doctor` shows which keys are set."
        )
    if isinstance(error, ConversationClosedError):
        return f"Conversation {error.id!r} is closed: `tellback chat` without --conversation begins a new one."
    return str(error)
