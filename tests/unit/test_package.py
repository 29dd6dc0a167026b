"""What the package promises from outside: its names, its lightness."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tellback

NAMES = """
AccessError Agent AgentSpec AgentSpecError AgentStructuredResponse AlreadyAnsweredError
AlreadyDecidedError AnthropicModel ApiKey Approval AssistantTurn Atom AtomStatus AtomSupersededError
Attachment Binding BudgetExceededError BuiltInSection CannedResponse CannedResponseError Capability
Category CategoryKind ChatError ChatOptions ChatReply ChatRequest ChatUsage Citation CompatibleModel
CompositionMode ConfigurationError Conversation ConversationClosedError ConversationScope
DomainRegistry END_ROUTE Embedder EmbeddingError Entity EntityType ErasureReport Event EventKind
EventSource ExportReport ExtractedEntity ExtractedFact Extraction ExtractionError ExtractionPolicy
ExtractionRun FlowError Forget FunctionEmbedder GeminiModel Guideline IdempotencyConflictError
Identity InMemoryAdapter InMemorySessions InvalidArgumentError Job JobLostError JobStatus Limits
LlmExtractor LocalModel LoopResult MaxIterationsError McpError McpServer MediaBlock MemoryOptions MemorySpace
Message MessageData MessagePart MissingExtraError MissingKeyError Model MongoAdapter NewApiKey
NotAllowedError NotAuthenticatedError NotFoundError OfflineModel OllamaModel OnnxEmbedder OpenAIModel
OpenRouterModel OpenSearchAdapter OutputValidationError PatternMining Persistence PersistenceAdapter
PostgresAdapter PreconditionFailedError PromptBuilder ProviderAuthError ProviderConnectionError
ProviderError ProviderOverloadedError ProviderRateLimitError ProviderRegistration
ProviderRequestError ProviderResponseError ProviderTimeoutError RateLimitedError RecallByEntity
RecallByTopic RecallHit RecallMode RecallResult RecallTimeline Tellback TellbackClient
TellbackError RedisAdapter Remember RemoteError RemoteUnavailableError ReplayProgress ReplayReport
ReplyDelta RequestError RequestInProgressError RequestTooLargeError Response RollingSummary Route
SchemaVersionError Scope Session SessionConflictError SessionData SessionState SessionStore Skill
SkillError SkillResolver SqlAlchemyAdapter SqliteAdapter State StaticEmbedder StoreBusyError
StoreClosedError StoreCorruptError StoreError StoreFullError StoreReadOnlyError
StoreUnavailableError StoredMessage StreamChunk StreamStop Term TextBlock TextDelta ThinkingDelta
Thresholds Tool ToolCall ToolContext ToolError ToolResult ToolResultBlock ToolSchemaError ToolUpdate
ToolUseBlock ToolUseEnd ToolUseInputDelta ToolUseStart TurnConfig TurnConflictError TurnInput
TurnOutcome TurnProblem TurnResult UnknownModelError UsageRecord UsageTotal User Window
WorkerOptions WorkingContext XaiModel __version__ adapt_event assistant_message audio_part
create_message_event create_session create_tool_event define_tool enter_route enter_state file_part
generate_route_id generate_state_id generate_tool_id image_part load_skills load_spec make_usage
mcp_tools memory_tools merge_extracted message_text open_model resolve_embedder run_chat_turn
run_loop run_loop_messages run_loop_stream run_loop_stream_messages session_data_to_state
session_state_to_data skill stream_loop system_message text_part tool tool_result_message
user_message with_providers
""".split()  # noqa: SIM905

CHAT_NAMES = """
ModelBase Provider ReplyBuilder LoopStep builtin_providers check_budget count_tokens_heuristic detect_provider
detect_provider_from dispatch_chat dispatch_chat_stream estimate_system_tokens estimate_tools_tokens
flatten_parts format_budget_breakdown prefix_detector provider_name render_part repair_history
resolve_registration close_models
""".split()  # noqa: SIM905


def test_the_exported_names_are_these() -> None:
    assert sorted(tellback.__all__) == sorted(NAMES)
    assert set(NAMES) <= set(dir(tellback))
    for name in NAMES:
        assert getattr(tellback, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tellback.Nothing


def test_the_chat_package_has_all_its_names() -> None:
    from tellback import chat

    assert set(CHAT_NAMES) <= set(chat.__all__)
    for name in chat.__all__:
        assert getattr(chat, name) is not None
    with pytest.raises(AttributeError):
        _ = chat.Nothing


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tellback.__file__).read_text())
    [_, block] = [node for node in tree.body if isinstance(node, ast.If)]  # the first looks at Python's version
    seen = {alias.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(NAMES) - {"__version__"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"__version__", "ReplyDelta"}))
def test_every_exported_name_is_explained(name: str) -> None:
    exported: Any = getattr(tellback, name)
    text = inspect.getdoc(exported)
    assert text
    if not (inspect.isclass(exported) and issubclass(exported, Exception)) and name not in (
        *("ChatRequest", "Conversation", "Event", "LoopResult", "Model", "RollingSummary", "StoredMessage"),
        *("Atom", "AtomStatus", "Embedder", "Entity", "EntityType", "MemorySpace", "RecallHit", "RecallMode"),
        *("RecallResult", "TurnOutcome", "WorkingContext", "Binding", "Citation", "ExportReport", "ExtractedEntity"),
        *("ExtractedFact", "Extraction", "ExtractionPolicy", "ExtractionRun", "Job", "JobStatus", "ReplayProgress"),
        *("ReplayReport", "UsageRecord", "UsageTotal", "Window", "mcp_tools"),
    ):
        assert ">>>" in text, f"{name} has no example"


HEAVY = ["anthropic", "openai", "google", "httpx", "httpx2", "numpy", "fastapi", "starlette", "uvicorn", "aiohttp"]


@pytest.mark.parametrize(
    ("statement", "also"),
    [
        ("import tellback", ["pydantic", "asyncio", "dataclasses"]),
        ("import tellback.chat, tellback.tools, tellback.testing", ["pydantic"]),
        ("from tellback import AnthropicModel; AnthropicModel('m')", ["pydantic"]),
    ],
)
def test_importing_is_light(statement: str, also: list[str]) -> None:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert set(json.loads(out)).isdisjoint([*HEAVY, *also])


def test_every_module_can_be_imported_and_says_what_it_is_for() -> None:
    root = Path(tellback.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("tellback", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        assert importlib.import_module(module).__doc__, f"{module} has no docstring"


def test_every_error_is_in_the_tree_drawn_at_the_top() -> None:
    from tellback import errors

    docstring = inspect.getdoc(errors) or ""
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert found
    for error in found:
        assert error.__name__ in docstring
        assert error.__doc__


def test_an_old_python_is_told_in_one_sentence() -> None:
    code = "import sys; sys.version_info = (3, 10, 4); sys.version = '3.10.4 (main)'; import tellback"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last == "ImportError: Tellback needs Python 3.11 or later, and this is 3.10.4."
