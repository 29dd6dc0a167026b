"""OpenTelemetry's semantic conventions for generative AI: span and attribute names, and messages as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tellback.types import ChatReply, Message, MessagePart, ToolCall, message_text
from tellback.types.jsontext import dump_json

CHAT = "chat"
EMBEDDINGS = "embeddings"
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
CONVERSATION_ID = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
OUTPUT_TYPE = "gen_ai.output.type"

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_TOP_K = "gen_ai.request.top_k"
REQUEST_SEED = "gen_ai.request.seed"
REQUEST_FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY = "gen_ai.request.presence_penalty"

RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"

USAGE_INPUT_TOKENS = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ_INPUT_TOKENS = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_CREATION_INPUT_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
USAGE_REASONING_OUTPUT_TOKENS = "gen_ai.usage.reasoning.output_tokens"

TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
TOOL_TYPE = "gen_ai.tool.type"
EMBEDDINGS_DIMENSION_COUNT = "gen_ai.embeddings.dimension.count"

# Only where content is captured.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_CALL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT = "gen_ai.tool.call.result"

ERROR_TYPE = "error.type"

CANCELLED = "tellback.cancelled"
COST = "tellback.usage.cost_usd"
SPACE_ID = "tellback.space.id"
TURN_ID = "tellback.turn.id"
TURN_STATUS = "tellback.turn.status"
RECALL_MODE = "tellback.recall.mode"
RECALL_HITS = "tellback.recall.hits"
RECALL_CANDIDATES = "tellback.recall.candidates"
JOB_ID = "tellback.job.id"
JOB_KIND = "tellback.job.kind"
JOB_ATTEMPT = "tellback.job.attempt"
JOB_OUTCOME = "tellback.job.outcome"
EMBEDDINGS_TEXTS = "tellback.embeddings.texts"

_PROVIDERS = {"gemini": "gcp.gemini", "google": "gcp.gemini", "xai": "x_ai"}


def otel_provider_name(provider: object) -> str | None:
    """What the conventions call a provider, or its own name in their manner.

    >>> otel_provider_name("Gemini"), otel_provider_name("Anthropic"), otel_provider_name("compatible server")
    ('gcp.gemini', 'anthropic', 'compatible_server')
    """
    if not provider:
        return None
    normalized = str(provider).lower().replace(" ", "_")
    return _PROVIDERS.get(normalized, normalized)


def messages_json(messages: Iterable[Message]) -> str:
    """A history.

    >>> messages_json([Message("user", "Hi")])
    '[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]'
    """
    return dump_json([{"role": message.role, "parts": _message_parts(message)} for message in messages])


def reply_json(reply: ChatReply) -> str:
    """A model's reply."""
    parts = [{"type": "reasoning", "content": reply.thinking}] if reply.thinking else []
    parts += _message_parts(reply.message)
    return dump_json([{"role": "assistant", "parts": parts, "finish_reason": reply.stop_reason}])


def text_json(text: str) -> str:
    """A text that belongs to no message, such as the system prompt."""
    return dump_json([_text_part(text)])


def arguments_json(call: ToolCall) -> str:
    """What a tool is called with."""
    return dump_json(_call_arguments(call))


def _message_parts(message: Message) -> list[dict[str, Any]]:
    text = message_text(message)
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": text}]
    parts = [_content_part(part) for part in message.parts or ()]
    if text and message.parts is None:
        parts.append(_text_part(text))
    return parts + [_call_part(call) for call in message.tool_calls]


def _content_part(part: MessagePart) -> dict[str, Any]:
    """A part; of pictures, sounds and files only what they are, since spans are no place for megabytes."""
    if part.kind == "text":
        return _text_part(part.text or "")
    return {"type": part.kind, "mime_type": part.mime}


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call_part(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": _call_arguments(call)}


def _call_arguments(call: ToolCall) -> Any:
    return call.input if call.invalid_input is None else call.invalid_input
