"""Public names of a chat turn: `run_chat_turn`, its steps, and their values. The code is in `tellback.turns`."""

from tellback.turns.attachments import Attachment as Attachment
from tellback.turns.chat_turn import TurnConfig as TurnConfig
from tellback.turns.chat_turn import TurnInput as TurnInput
from tellback.turns.chat_turn import build_system as build_system
from tellback.turns.chat_turn import persist_assistant_turn as persist_assistant_turn
from tellback.turns.chat_turn import persist_user_turn as persist_user_turn
from tellback.turns.chat_turn import reply_payload as reply_payload
from tellback.turns.chat_turn import run_chat_turn as run_chat_turn
from tellback.turns.chat_turn import stream_llm as stream_llm
from tellback.turns.chat_turn import user_body as user_body
from tellback.turns.chat_turn import user_prompt as user_prompt
from tellback.types.conversations import Identity as Identity
from tellback.types.conversations import Session as Session
from tellback.types.conversations import TurnProblem as TurnProblem
from tellback.types.conversations import TurnResult as TurnResult
