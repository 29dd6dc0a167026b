"""The values that all packages share: messages, replies, conversations, memory, jobs, scopes and ids.

Every package may import this one; it imports none of them.
"""

from tellback.types.messages import Message as Message
from tellback.types.messages import MessagePart as MessagePart
from tellback.types.messages import ToolCall as ToolCall
from tellback.types.messages import ToolResult as ToolResult
from tellback.types.messages import as_message as as_message
from tellback.types.messages import as_tool_call as as_tool_call
from tellback.types.messages import assistant_message as assistant_message
from tellback.types.messages import audio_part as audio_part
from tellback.types.messages import file_part as file_part
from tellback.types.messages import flatten_parts as flatten_parts
from tellback.types.messages import image_part as image_part
from tellback.types.messages import message_text as message_text
from tellback.types.messages import render_part as render_part
from tellback.types.messages import split_data_url as split_data_url
from tellback.types.messages import system_message as system_message
from tellback.types.messages import text_part as text_part
from tellback.types.messages import tool_result_message as tool_result_message
from tellback.types.messages import user_message as user_message
from tellback.types.replies import ChatReply as ChatReply
from tellback.types.replies import ChatUsage as ChatUsage
from tellback.types.replies import ReplyDelta as ReplyDelta
from tellback.types.replies import StreamStop as StreamStop
from tellback.types.replies import TextDelta as TextDelta
from tellback.types.replies import ThinkingDelta as ThinkingDelta
from tellback.types.replies import ToolUseEnd as ToolUseEnd
from tellback.types.replies import ToolUseInputDelta as ToolUseInputDelta
from tellback.types.replies import ToolUseStart as ToolUseStart
from tellback.types.replies import reply_deltas as reply_deltas
