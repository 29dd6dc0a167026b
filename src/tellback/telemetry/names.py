"""The names spans and their attributes go by: OpenTelemetry's for generative AI, and Tellback's own beside them."""

from __future__ import annotations

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
