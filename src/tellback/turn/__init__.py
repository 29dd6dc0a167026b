"""One turn of a chat with memory: `run_chat_turn`, its steps, and the values they take."""

from tellback.turn.attachments import Attachment
from tellback.turn.lifecycle import (
    build_system,
    persist_assistant_turn,
    persist_user_turn,
    reply_payload,
    run_chat_turn,
    stream_llm,
    user_body,
    user_prompt,
)
from tellback.turn.values import TurnConfig, TurnInput, TurnResult
from tellback.types.turns import Identity, Session, TurnProblem

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
