"""The public surface of the package: its names, its errors, and light imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools.reference import TOPICS

import tellback
from tellback import errors

NAMES = """
Agent AnthropicModel Approval Atom Attachment CannedResponse Capability Category ChatOptions ChatReply
ChatRequest ChatUsage CompatibleModel CompositionMode ConfigurationError Conversation END_ROUTE Entity
GeminiModel Guideline Identity InvalidArgumentError LocalModel LoopResult McpServer MemorySpace Message
MessagePart Model NotFoundError OllamaModel OpenAIModel OpenRouterModel Persistence ProviderError RecallResult
ReplyDelta Response Route Session SessionState Skill State StoreError StoredMessage StreamChunk StreamStop
Tellback TellbackClient TellbackError Term TextDelta Tool ToolCall ToolContext ToolResult TurnConfig TurnInput
TurnResult User WorkerOptions WorkingContext assistant_message create_session define_tool file_part image_part
load_skills mcp_tools memory_tools message_text open_model run_chat_turn run_loop run_loop_messages
run_loop_stream skill stream_loop system_message text_part tool tool_result_message user_message __version__
""".split()  # noqa: SIM905

UNLISTED = """
AgentStructuredResponse BudgetExceededError BuiltInSection ConversationClosedError DomainRegistry Event
EventKind EventSource InMemoryAdapter MaxIterationsError MessageData MongoAdapter OpenSearchAdapter
PersistenceAdapter PostgresAdapter PromptBuilder ProviderRegistration RedisAdapter Scope SessionData
SkillResolver SqlAlchemyAdapter SqliteAdapter ThinkingDelta ToolUseEnd ToolUseInputDelta ToolUseStart
UnknownModelError adapt_event create_message_event create_tool_event enter_route enter_state generate_route_id
generate_state_id generate_tool_id make_usage merge_extracted run_loop_stream_messages session_data_to_state
session_state_to_data with_providers
""".split()  # noqa: SIM905
"""Unlisted names that can also be imported from the top level."""

MODULE_NAMES = {
    "tellback.admin": """
        ErasureReport ExportReport
    """,
    "tellback.agent": """
        AgentStructuredResponse BuiltInSection CurrentRoute CurrentState DomainRegistry EventKind EventSource
        IdempotentReply InMemorySessions Limits MemoryOptions PausedRoute PendingCall PromptBuilder RouteProgress
        RouteVisit SessionStore Thresholds ToolRun ToolUpdate adapt_event create_message_event create_tool_event
        enter_route enter_state generate_route_id generate_state_id generate_tool_id merge_extracted
        session_data_to_state session_state_to_data
    """,
    "tellback.chat": """
        OfflineModel ProviderRegistration XaiModel make_usage run_loop_stream_messages with_providers
    """,
    "tellback.embed": """
        Embedder FunctionEmbedder OnnxEmbedder StaticEmbedder resolve_embedder
    """,
    "tellback.errors": """
        AccessError AgentSpecError AlreadyAnsweredError AlreadyDecidedError AtomSupersededError
        BudgetExceededError CannedResponseError ChatError ConversationClosedError EmbeddingError
        ExtractionError FlowError IdempotencyConflictError JobLostError MaxIterationsError McpError
        MissingExtraError MissingKeyError NotAllowedError NotAuthenticatedError OutputValidationError
        PreconditionFailedError ProviderAuthError ProviderConnectionError ProviderOverloadedError
        ProviderRateLimitError ProviderRequestError ProviderResponseError ProviderTimeoutError
        RateLimitedError RemoteError RemoteUnavailableError RequestError RequestInProgressError
        RequestTooLargeError SchemaVersionError SessionConflictError SkillError StoreBusyError
        StoreClosedError StoreCorruptError StoreFullError StoreReadOnlyError StoreUnavailableError ToolError
        ToolSchemaError TurnConflictError UnknownModelError
    """,
    "tellback.memory": """
        ExtractedEntity ExtractedFact Extraction Forget LlmExtractor PatternMining RecallByEntity
        RecallByTopic RecallTimeline Remember ReplayProgress ReplayReport Window
    """,
    "tellback.sessions": """
        InMemoryAdapter MongoAdapter OpenSearchAdapter PersistenceAdapter PostgresAdapter RedisAdapter
        RepositoryAdapter SqlAlchemyAdapter SqliteAdapter
    """,
    "tellback.skills": """
        SkillResolver
    """,
    "tellback.specs": """
        AgentSpec load_spec
    """,
    "tellback.types": """
        ThinkingDelta ToolUseEnd ToolUseInputDelta ToolUseStart audio_part
    """,
    "tellback.types.access": """
        ApiKey NewApiKey Scope
    """,
    "tellback.types.blocks": """
        MediaBlock TextBlock ToolResultBlock ToolUseBlock
    """,
    "tellback.types.conversations": """
        AssistantTurn Event MessageData RollingSummary SessionData TurnOutcome TurnProblem
    """,
    "tellback.types.jobs": """
        Binding ConversationScope ExtractionPolicy ExtractionRun Job JobStatus UsageRecord UsageTotal
    """,
    "tellback.types.memory": """
        AtomStatus CategoryKind Citation EntityType RecallHit RecallMode
    """,
}
"""Public names that are imported from their modules."""

REFERENCE = Path(tellback.__file__).parents[2] / "docs" / "reference" / "python"

CHAT_NAMES = """
ModelBase Provider ReplyBuilder LoopStep builtin_providers check_budget count_tokens_heuristic detect_provider
detect_provider_from dispatch_chat dispatch_chat_stream estimate_system_tokens estimate_tools_tokens
flatten_parts format_budget_breakdown prefix_detector provider_name render_part repair_history
resolve_registration close_models
""".split()  # noqa: SIM905


def test_the_top_level_exports_exactly_these_names() -> None:
    assert sorted(vars(tellback)["__all__"]) == sorted(NAMES)
    assert set(NAMES) <= set(dir(tellback))
    for name in NAMES:
        assert getattr(tellback, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = tellback.Nothing  # type: ignore[attr-defined]


def test_unlisted_names_can_still_be_imported_from_the_top_level() -> None:
    homes = {name: module for module, names in MODULE_NAMES.items() for name in names.split()}
    for name, module in homes.items():
        assert getattr(importlib.import_module(module), name) is not None
        if name in UNLISTED:
            assert getattr(tellback, name) is getattr(importlib.import_module(module), name)
        else:
            assert not hasattr(tellback, name), f"{name} must not be exported at the top level"
    assert set(UNLISTED) <= homes.keys()
    assert set(UNLISTED).isdisjoint(dir(tellback))


def test_every_top_level_name_is_in_the_reference() -> None:
    listed = [name for names in TOPICS.values() for name in names.split()]
    assert sorted(listed) == sorted(set(NAMES) - {"__version__"})


def test_the_chat_package_has_all_its_names() -> None:
    from tellback import chat

    names = vars(chat)["__all__"]
    assert set(CHAT_NAMES) <= set(names)
    for name in names:
        assert getattr(chat, name) is not None
    with pytest.raises(AttributeError):
        getattr(chat, "Nothing")  # noqa: B009


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(tellback.__file__).read_text())
    [_, block] = [node for node in tree.body if isinstance(node, ast.If)]  # the first lines check Python's version
    seen = {alias.name for node in ast.walk(block) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(NAMES) - {"__version__"}


def reference_names() -> list[tuple[str, str]]:
    """Return the modules and names of the classes and functions on the pages of the reference, and of the top level."""
    pages = "".join(page.read_text() for page in sorted(REFERENCE.glob("*.md")))
    found = {("tellback", name) for name in NAMES if name not in ("__version__", "ReplyDelta")}
    for target in re.findall(r"^::: (\S+)", pages, re.MULTILINE):
        package, _, last = target.rpartition(".")
        try:
            module = importlib.import_module(target)
        except ModuleNotFoundError:  # the page shows one class or function of a module
            found.add((package, last))
            continue
        defined = [name for name, each in vars(module).items() if getattr(each, "__module__", None) == target]
        names = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
        found.update((target, name) for name in names)
    return sorted(found)


@pytest.mark.parametrize(
    ("module", "name"),
    reference_names() + [(module, name) for module, names in MODULE_NAMES.items() for name in names.split()],
)
def test_every_public_name_has_a_docstring_with_an_example(module: str, name: str) -> None:
    exported: Any = getattr(importlib.import_module(module), name)
    if not (inspect.isclass(exported) or inspect.isfunction(exported)):
        return  # a constant, a type alias or a variable
    text = inspect.getdoc(exported)
    assert text
    is_part_of_store = exported.__module__.startswith(("tellback.stores.operations", "tellback.stores.values"))
    if not issubclass(exported if inspect.isclass(exported) else object, Exception) and not is_part_of_store:
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
def test_import_loads_no_heavy_modules(statement: str, also: list[str]) -> None:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert set(json.loads(out)).isdisjoint([*HEAVY, *also])


def test_every_module_can_be_imported_and_has_a_docstring() -> None:
    root = Path(tellback.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("tellback", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        assert importlib.import_module(module).__doc__, f"{module} has no docstring"


def test_the_error_tree_in_the_docstring_matches_the_classes() -> None:
    drawn: dict[str, str | None] = {}
    above: list[str] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        if match := re.match(r"    ([│ ]*[├└]── |)(\w+Error)\b", line):
            depth = len(match[1]) // 4
            drawn[match[2]] = above[depth - 1] if depth else None
            above[depth:] = [match[2]]
    found = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, Exception)]
    assert drawn == {
        error.__name__: None if error is errors.TellbackError else error.__bases__[0].__name__ for error in found
    }
    assert all(error.__doc__ for error in found)


def test_every_public_error_is_defined_in_the_errors_module() -> None:
    """Errors that the server only turns into responses are an exception."""
    root = Path(tellback.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("tellback", *path.relative_to(root).with_suffix("").parts)).removesuffix(".__init__")
        for name, value in vars(importlib.import_module(module)).items():
            if inspect.isclass(value) and issubclass(value, errors.TellbackError) and not name.startswith("_"):
                assert value.__module__ in ("tellback.errors", "tellback.server.openai.errors"), f"{module}.{name}"


def test_an_old_python_version_is_reported_in_one_sentence() -> None:
    code = "import sys; sys.version_info = (3, 10, 4); sys.version = '3.10.4 (main)'; import tellback"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last == "ImportError: Tellback needs Python 3.11 or later, but this is Python 3.10.4."
