"""The fields of all responses, so that no new field is sent by accident."""

from __future__ import annotations

from typing import Any

from tellback import Tellback
from tellback.server import create_app

FIELDS = {
    "AgentArgumentWire": "description required type",
    "AgentDelta": "delta",
    "AgentResponseWire": (
        "asks atomsUsed completed completedRoutes conversationId message pending problems route session state "
        "tokensEstimated toolCalls usage"
    ),
    "AgentRouteWire": "description id title",
    "AgentToolWire": "name type",
    "AgentWire": "arguments description goal kinds name routes spec tools",
    "ApiKeyWire": "appId createdAt expiresAt id name rateLimit revokedAt role tenantId userId",
    "AppendedTurnWire": "assistantMessage turnId userMessage",
    "AtomWire": (
        "appId category citations confidence createdAt entityIds id importance memorySpaceId otherSources "
        "sourceConversationId sourceMessageIds status supersededAt supersededBy supersedes tenantId text "
        "updatedAt userId validFrom validTo"
    ),
    "BindingWire": (
        "appId conversationScope createdAt createdBy enabled extractionPolicy id memorySpaceIds "
        "memorySpaceNames tenantId updatedAt"
    ),
    "CallOut": "function id type",
    "CategoryWire": "kind name",
    "ChangeWire": "appId createdAt data position subjectId tenantId type userId",
    "ChoiceOut": "finish_reason index logprobs message",
    "CitationWire": "conversationId messageIds",
    "CompletionOut": "choices created id model object system_fingerprint usage",
    "ConversationScopeWire": "namespace userId",
    "ConversationWire": (
        "appId closeAfter closedAt createdAt id lastSeq metadata namespace rollingSummary "
        "rollingSummaryUntilSeq sessionId status summarizedTurns tenantId title turns updatedAt userId"
    ),
    "CurrentRouteWire": "enteredAt id title",
    "CurrentStateWire": "description enteredAt id",
    "EntityWire": (
        "aliases appId atomCount attributes canonicalName createdAt description firstSeenAt id lastSeenAt "
        "memorySpaceId mergedInto status tenantId type updatedAt userId"
    ),
    "ErasedWire": "deleted jobIds",
    "ExtractionPolicyWire": "extractionVersion onConversationClosed windowTurns windowed",
    "ExtractionRunWire": "id jobs status",
    "ExtractionWaited": "done",
    "FunctionOut": "arguments name",
    "Health": "status",
    "JobWire": (
        "appId attempts bindingId conversationId createdAt dueAt error extractionVersion finishedAt fromSeq "
        "id kind memorySpaceId rawOutput result runs status tenantId toSeq updatedAt userId"
    ),
    "MessageOut": "content isError name parts role toolCallId toolCalls",
    "MessageWire": (
        "content conversationId createdAt id idempotencyKey metadata model provider role seq stopReason "
        "traceId turnId usage visibility"
    ),
    "ModelListOut": "data object",
    "ModelOut": "created id object owned_by",
    "NewApiKeyWire": "key secret",
    "PartOut": "data kind meta mime name text url",
    "Problem": "code data detail errors requestId status title type",
    "ReadyWire": "position",
    "RecallHitWire": "atom context decayWeight entityMatchBonus parts score",
    "RecallResultWire": "hits latencyMs mode totalCandidates",
    "Replayed": "conversations jobs nextCursor skipped",
    "ReplyOut": "content refusal role tool_calls",
    "RollingSummaryWire": "outcome rollingSummary rollingSummaryUntilSeq",
    "RouteInfoWire": "id title",
    "RouteVisitWire": "completed enteredAt exitedAt routeId",
    "SessionEventWire": "creationUtc data kind source",
    "SessionMessageWire": "content createdAt event id position role route sessionId state toolCalls userId",
    "SessionStateWire": "currentRoute currentState extracted id metadata routeHistory version",
    "SessionWire": (
        "agentName collectedData completedAt createdAt currentRoute currentState id lastMessageAt "
        "messageCount status updatedAt userId version"
    ),
    "SpaceWire": "appId atomCount createdAt id metadata name tenantId updatedAt userId",
    "StaleClosed": "conversationIds nextCursor",
    "StateInfoWire": "description id",
    "StopWire": "reason usage",
    "TextDeltaWire": "text",
    "ToolCallOut": "id input invalidInput name",
    "ToolInvocationWire": "arguments content id isError name",
    "ToolUseEndWire": "id",
    "ToolUseInputWire": "id partialInputJson",
    "ToolUseStartWire": "id name",
    "TurnOutcomeWire": (
        "aggregateUsage appendedMessages atomsUsed conversationId messageId modelCalls ok output pending "
        "problems sessionId status stopReason text tokensEstimated toolInvocations totalLatencyMs turnId"
    ),
    "TurnProblemWire": "error step",
    "TurnResultWire": (
        "atomsUsed conversationId messageId messages modelCalls ok output pending problems sessionId status "
        "stopReason text tokensEstimated toolInvocations totalLatencyMs turnId usage"
    ),
    "UsageOut": "completion_tokens completion_tokens_details prompt_tokens prompt_tokens_details total_tokens",
    "UsageRecordWire": (
        "appId conversationId costUsd createdAt id inputTokens jobId model outputTokens provider purpose "
        "tenantId userId"
    ),
    "UsageTotalWire": "appId calls costUsd inputTokens model outputTokens purpose tenantId unpricedCalls userId",
    "UsageWire": (
        "cacheWriteTokens cachedTokens costUsd inputTokens latencyMs model outputTokens provider "
        "reasoningTokens totalTokens"
    ),
    "WorkingContextWire": (
        "atomsUsed contextBlock hits hitsDropped messages overBudget recallQuery remembers system "
        "tokensEstimated turnsDropped turnsUsed"
    ),
}


def find_models(part: Any, schemas: dict[str, Any], found: set[str]) -> None:
    """Collect the names of the models that a part of the document uses, directly or indirectly."""
    if isinstance(part, list):
        for each in part:
            find_models(each, schemas, found)
    elif isinstance(part, dict):
        name = str(part.get("$ref", "")).partition("/schemas/")[2]
        if name and name not in found:
            found.add(name)
            find_models(schemas[name], schemas, found)
        for each in part.values():
            find_models(each, schemas, found)


def test_responses_have_these_fields_and_no_others() -> None:
    document = create_app(Tellback(":memory:")).openapi()
    schemas, found = document["components"]["schemas"], set[str]()
    for operations in document["paths"].values():
        for operation in operations.values():
            find_models(operation["responses"], schemas, found)
    fields = {name: " ".join(sorted(schemas[name].get("properties", ()))) for name in sorted(found)}
    sent = {name: names for name, names in fields.items() if names and not name.startswith("Page_")}
    assert sent == FIELDS
