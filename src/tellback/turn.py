"""Public names of a chat turn: `run_chat_turn`, its steps, and their values. The code is in `tellback.turns`."""

from tellback.turns.attachments import Attachment
from tellback.turns.chat_turn import (
    TurnConfig,
    TurnInput,
    build_system,
    persist_assistant_turn,
    persist_user_turn,
    reply_payload,
    run_chat_turn,
    stream_llm,
    user_body,
    user_prompt,
)
from tellback.types.conversations import Identity, Session, TurnProblem, TurnResult

__all__ = [
    "Attachment",
    "Identity",
    "Session",
    "TurnConfig",
    "TurnInput",
    "TurnProblem",
    "TurnResult",
    "build_system",
    "persist_assistant_turn",
    "persist_user_turn",
    "reply_payload",
    "run_chat_turn",
    "stream_llm",
    "user_body",
    "user_prompt",
]
