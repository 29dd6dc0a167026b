# Written by tools/sync_stubs.py from the asynchronous handles.
import builtins
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, BinaryIO, Literal, Unpack, overload

from tellback.admin import ErasureReport, ExportFormat, ExportProgressCallback, ExportReport
from tellback.agent import Event as AgentEvent
from tellback.agent.response import Response, StreamChunk
from tellback.agent.sessions.session import SessionState
from tellback.app import Tellback
from tellback.chat import Model
from tellback.client.client import ReplayResult, TellbackClient
from tellback.memory.bindings import PolicyLike, ScopeLike
from tellback.memory.extraction.service import ReplayProgress, ReplayReport
from tellback.memory.templates import Templates
from tellback.memory.working_context import TokenCounter
from tellback.specs.model import AgentSpec
from tellback.stores import Store
from tellback.tools import Tool
from tellback.turns.chat import ChatArguments
from tellback.turns.request import InvokeOptions, TurnArguments
from tellback.types import ChatUsage, Message, ReplyDelta, ToolCall
from tellback.types.access import ApiKey, ApiKeyRole, NewApiKey, Scope
from tellback.types.blocks import Content
from tellback.types.conversations import (
    AppendedTurn,
    AssistantTurn,
    Conversation,
    Event,
    MessageData,
    RollingSummary,
    SessionData,
    SessionStatus,
    StoredMessage,
    TurnResult,
)
from tellback.types.jobs import Binding, ExtractionRun, Job, JobStatus, UsageRecord, UsageTotal
from tellback.types.memory import Atom, Entity, MemorySpace, RecallResult, WorkingContext
from tellback.validation import CategoryLike, DatetimeLike

__all__ = [
    "SyncAdmin",
    "SyncAgents",
    "SyncAllBindings",
    "SyncConversations",
    "SyncEventFeed",
    "SyncJobs",
    "SyncKeys",
    "SyncMemory",
    "SyncRemoteAdmin",
    "SyncRemoteAgents",
    "SyncRemoteBindings",
    "SyncRemoteConversations",
    "SyncRemoteEvents",
    "SyncRemoteJobs",
    "SyncRemoteKeys",
    "SyncRemoteMemory",
    "SyncRemoteSessions",
    "SyncRemoteUser",
    "SyncRemoteWorkingContextBuilder",
    "SyncTellback",
    "SyncTellbackClient",
    "SyncUser",
    "SyncWorkingContextBuilder",
]

class _User:
    def chat(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> TurnResult:
        """Send a message and return the model's reply, with recalled memories in the prompt."""
    def chat_stream(
        self,
        text: str | None = None,
        namespace: str = "chat",
        space: str | None = "default",
        model: str | Model | None = None,
        **more: Unpack[ChatArguments],
    ) -> Generator[ReplyDelta | TurnResult]:
        """Like `chat`, but iterate over deltas; the last item is the `TurnResult`."""

class _Jobs:
    def get(self, id: str) -> Job | None:
        """Return the current state of a job, or None if the id is unknown."""
    def retry(self, id: str) -> Job:
        """Queue a failed, cancelled or finished job again, as a new one."""
    def cancel(self, id: str) -> Job:
        """Cancel a job that has not ended yet."""
    def wait(self, ids: Sequence[str], timeout: float | None = None) -> bool:
        """Wait until these jobs have ended, successfully or not; return False if `timeout` seconds pass first."""

class _Keys:
    def get(self, id: str) -> ApiKey | None:
        """Return the key of that id, or None."""

class _Conversations:
    def create(
        self,
        namespace: str,
        title: str | None = None,
        session_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """Create a conversation."""
    def find(self, namespace: str, session_id: str | None = None) -> Conversation | None:
        """Return the newest open conversation of a namespace and session, or None."""
    def find_or_create(
        self,
        namespace: str,
        session_id: str | None = None,
        *,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        close_after: timedelta | float | None = None,
    ) -> Conversation:
        """Return the newest open conversation of a namespace and session, or create one."""
    def get(self, id: str) -> Conversation | None:
        """Return the conversation with that id, or None."""
    def list(
        self,
        namespace: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        before: str | Conversation | None = None,
    ) -> builtins.list[Conversation]:
        """List conversations, the newest first."""
    def close(self, id: str) -> Conversation:
        """Close a conversation, which starts its extraction."""
    def close_stale(self, older_than: timedelta | float) -> builtins.list[Conversation]:
        """Close this user's open conversations that had no activity for that long (a timedelta, or seconds)."""
    def append_user_message(
        self,
        id: str,
        content: Content,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append a message of the user."""
    def append_assistant_turn(
        self,
        id: str,
        content: Content,
        stop_reason: str | None = None,
        model: str | None = None,
        provider: str | None = None,
        usage: ChatUsage | Mapping[str, Any] | None = None,
        trace_id: str | None = None,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append a message of the assistant to the current turn."""
    def append_tool_result(
        self,
        id: str,
        tool_use_id: str,
        content: Content,
        tool_name: str | None = None,
        is_error: bool = False,
        visibility: str = "user",
        created_at: datetime | str | None = None,
    ) -> StoredMessage:
        """Append the result of the tool call `tool_use_id`."""
    def append_system_message(
        self, id: str, content: Content, visibility: str = "internal", created_at: datetime | str | None = None
    ) -> StoredMessage:
        """Append an instruction or a note."""
    def append_turn(
        self,
        id: str,
        user_content: Content,
        assistant: AssistantTurn | Mapping[str, Any],
        user_visibility: str = "user",
        idempotency_key: str | None = None,
        created_at: datetime | str | None = None,
    ) -> AppendedTurn:
        """Append the user's message and the assistant's reply of a turn that you ran yourself, in one step."""
    def append_messages(self, id: str, messages: Sequence[Message | Mapping[str, Any]]) -> builtins.list[StoredMessage]:
        """Append many messages in one transaction, for imports: either all are stored or none."""
    def messages(
        self,
        id: str,
        limit: int | None = None,
        include_internal: bool = False,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """Return the last `limit` messages, oldest first, as a chat shows them; without a limit, all messages."""
    def raw_turns(
        self,
        id: str,
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
        include_hidden: bool = False,
    ) -> builtins.list[StoredMessage]:
        """Return messages as `messages` does, including internal messages: what a model sees."""
    def message(self, message_id: str) -> StoredMessage | None:
        """Return the message with that id, or None."""
    def run_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> TurnResult:
        """Store the user's message, call the model, run the tools it calls, and store everything as it arrives."""
    def stream_turn(
        self, id: str, model: str | Model | None = None, user_text: str | None = None, **more: Unpack[TurnArguments]
    ) -> Generator[ReplyDelta | TurnResult]:
        """Run a turn like `run_turn`, and yield deltas and then the `TurnResult`."""
    def pending(self, id: str) -> tuple[ToolCall, ...]:
        """Return the tool calls that wait for a person's decision, for `run_turn(id, approvals={call_id: True})`."""
    def refresh_rolling_summary(self, id: str, model: str | Model | None = None) -> RollingSummary:
        """Update the rolling summary to the newest message, with the model if there is one."""

class _Memory:
    def create_space(
        self, name: str | None = None, metadata: Mapping[str, Any] | None = None, *, once: bool = False
    ) -> MemorySpace:
        """Create a space."""
    def get_space(self, id: str) -> MemorySpace | None:
        """Return the space with that id, or None."""
    def list_spaces(self, name: str | None = None) -> list[MemorySpace]:
        """List the spaces, the oldest first; with `name`, only those with that name."""
    def delete_space(self, id: str) -> None:
        """Hide a space and everything in it."""
    def add_atom(
        self,
        space_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: DatetimeLike = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: DatetimeLike = None,
    ) -> Atom:
        """Add a memory: by default a fact with importance 3 and full confidence."""
    def add_atoms(self, space_id: str, atoms: Sequence[Mapping[str, Any]]) -> list[Atom]:
        """Add many atoms in one transaction, for imports: either all are stored or none."""
    def get_atom(self, id: str) -> Atom | None:
        """Return the atom with that id, with any status, or None."""
    def supersede_atom(
        self,
        old_id: str,
        text: str,
        category: CategoryLike | None = None,
        importance: int | None = None,
        confidence: float | None = None,
        valid_from: DatetimeLike = None,
        source_conversation_id: str | None = None,
        source_message_ids: Iterable[str] | None = None,
        entity_ids: Iterable[str] | None = None,
        valid_to: DatetimeLike = None,
    ) -> Atom:
        """Replace an atom with a new one."""
    def archive_atom(self, id: str) -> Atom:
        """Archive an atom: it stays stored, but is recalled only with `include_archived`."""
    def restore_atom(self, id: str) -> Atom:
        """Restore an archived atom."""
    def delete_atom(self, id: str) -> Atom:
        """Delete an atom: it is never recalled again."""
    def list_atoms(
        self,
        space_id: str,
        category: str | CategoryLike | None = None,
        status: str | None = None,
        valid_at: DatetimeLike = None,
        limit: int | None = None,
        *,
        known_at: DatetimeLike = None,
        categories: Iterable[str] | None = None,
        include_superseded: bool = False,
        before: str | Atom | None = None,
    ) -> list[Atom]:
        """List atoms, the newest first: those that have not ended or, with `valid_at`, those valid at that time."""
    def create_entity(
        self,
        space_id: str,
        type: str,
        canonical_name: str,
        description: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        aliases: Iterable[str] = (),
    ) -> Entity:
        """Create an entity that atoms can be linked to."""
    def get_entity(self, id: str) -> Entity | None:
        """Return the entity with that id, even if it was merged, or None."""
    def find_entity_by_name(self, space_id: str, type: str | None = None, name: str = "") -> Entity | None:
        """Find an entity by its name or an alias, ignoring case, accents and spacing."""
    def merge_entities(self, canonical_id: str, alias_id: str) -> Entity:
        """Merge the alias entity into the canonical one."""
    def list_entities(
        self, space_id: str, type: str | None = None, limit: int | None = None, *, after: str | Entity | None = None
    ) -> list[Entity]:
        """List entities, the oldest first, without merged ones."""
    def search_entities(
        self, space_id: str, query: str | None = None, type: str | None = None, limit: int | None = None
    ) -> list[Entity]:
        """Search entities by names and description, the best match first; without a query, those with the most atoms first."""
    def recall_by_topic(
        self,
        space_id: str,
        query: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        min_importance: int | None = None,
        valid_at: DatetimeLike = None,
        *,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        min_score: float = 0.0,
        neighbours: int = 0,
        include_archived: bool = False,
    ) -> RecallResult:
        """Return the memories that answer a question best, ranked by words, meaning, time, speakers, entities, age and importance."""
    def recall_by_entity(
        self,
        space_id: str,
        entity_id_or_name: str,
        limit: int | None = None,
        category_names: Iterable[str] | None = None,
        *,
        valid_at: DatetimeLike = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
        include_archived: bool = False,
    ) -> RecallResult:
        """Return the memories about an entity, the newest first, at most `limit` (default: 10)."""
    def recall_timeline(
        self,
        space_id: str,
        entity_id_or_name: str | None = None,
        query: str | None = None,
        from_: DatetimeLike = None,
        to: DatetimeLike = None,
        limit: int | None = None,
        include_superseded: bool = True,
        *,
        category_names: Iterable[str] | None = None,
        known_at: DatetimeLike = None,
        now: DatetimeLike = None,
    ) -> RecallResult:
        """Return the memories valid at some time from `from_` to `to`, the oldest first, including those that have ended."""
    def create_binding(
        self,
        conversation_scope: ScopeLike | Iterable[ScopeLike],
        memory_space_ids: Iterable[str],
        extraction_policy: PolicyLike | None = None,
        *,
        once: bool = False,
    ) -> Binding:
        """Create a binding: from now on, matching conversations become memories."""
    def get_binding(self, id: str) -> Binding | None:
        """Return the binding with that id if this user created it or it matches this user's conversations, otherwise None."""
    def list_bindings(self) -> list[Binding]:
        """List the bindings that this user created, and those that match this user's conversations."""
    def update_binding(
        self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None
    ) -> Binding:
        """Change a binding's extraction policy, or pause it with `enabled=False`."""
    def delete_binding(self, id: str) -> None:
        """Delete a binding for all users it applies to."""
    def run_extraction_for_conversation(
        self, conversation_id: str, extraction_version: str | None = None, *, space_id: str | None = None
    ) -> ExtractionRun:
        """Extract a conversation now, open or closed."""
    def wait_for_extraction(self, timeout: float | None = None) -> bool:
        """Wait until this user's closed conversations are extracted; return False if `timeout` seconds pass first."""
    def list_jobs(
        self,
        conversation_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        *,
        before: str | None = None,
    ) -> list[Job]:
        """List this user's extraction jobs, the newest first."""
    def get_job(self, id: str) -> Job | None:
        """Return the current state of a job of this user, or None."""
    def retry_job(self, id: str) -> Job:
        """Queue a failed, cancelled or finished job of this user again, with no attempts and no error."""
    def cancel_job(self, id: str) -> Job:
        """Cancel a job of this user that has not ended yet."""
    def remember_conversation(self, space_id: str, conversation_id: str) -> list[Atom]:
        """Store a conversation verbatim, without a model: each message becomes a dated, cited EPISODE atom."""

class _Agents:
    def list(self) -> builtins.list[AgentSpec]:
        """Return all registered specs, in the order of registration."""
    def get(self, name: str) -> AgentSpec | None:
        """Return the spec with this name, or None."""
    def invoke(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> TurnResult:
        """Run one turn of an agent with the arguments that its spec requires."""
    def invoke_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        conversation_id: str | None = None,
        model: str | Model | None = None,
        **turn: Unpack[InvokeOptions],
    ) -> Generator[ReplyDelta | TurnResult]:
        """Like `invoke`, but stream deltas; the last item is the `TurnResult`."""

class _Admin:
    def delete_user_data(self, user_id: str | None = None, *, confirm: bool = False) -> ErasureReport:
        """Permanently delete all data of a user, and return the number of deleted rows."""
    def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1000,
        before: str | None = None,
    ) -> list[UsageRecord]:
        """List the model calls for this user's memory (extraction, comparison, summaries), newest first."""
    def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """Return the total usage of these calls by purpose and model."""

class SyncTellback:
    """The application: conversations and memories of many users in one store."""
    def __init__(self, target: Tellback) -> None: ...
    templates: Templates
    events: SyncEventFeed
    def close(self) -> None:
        """Finish background work and close the store."""
    def user(self, user_id: str, tenant_id: str = "default", app_id: str = "default") -> SyncUser:
        """Return the handle of a user, which reads and writes only this user's data."""
    def register_agent(
        self, spec: Any, tools: Iterable[Tool | Callable[..., Any]] = (), *, replace: bool = False
    ) -> AgentSpec:
        """Register an agent spec: a mapping, JSON or YAML text, or a `pathlib.Path`."""
    def warm_up(self) -> None:
        """Load the embedder and a local model now, so that the first turn is as fast as later ones."""
    def reembed(self, on_progress: Callable[[int], Any] | None = None, *, forget_others: bool = False) -> int:
        """Embed the memories of all users that have no vector of the current embedder; return their number."""
    def close_stale(self, older_than: timedelta | float) -> list[Conversation]:
        """Close all users' open conversations that had no activity for `older_than` (a timedelta, or seconds)."""
    def replay(
        self,
        namespace: str | None = None,
        extraction_version: str | None = None,
        *,
        tenant_id: str | None = None,
        app_id: str | None = None,
        on_progress: Callable[[ReplayProgress], Any] | None = None,
    ) -> ReplayReport:
        """Extract the conversations of a namespace again for all users, oldest first, and wait for the jobs."""
    def mine_patterns(self) -> int:
        """Search all users' episodes for patterns now; return how many patterns were added or changed."""
    def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1000,
        before: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageRecord]:
        """List the model calls for memory (extraction, reconciliation, summaries) of all users, newest first."""
    def usage_totals(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> list[UsageTotal]:
        """Sum the usage of model calls for memory by user, purpose and model."""
    @property
    def store(self) -> Store:
        """The store."""
    @property
    def jobs(self) -> SyncJobs:
        """The jobs and the worker; `tb.jobs.drain()` waits until no job is due."""
    @property
    def bindings(self) -> SyncAllBindings:
        """The bindings of all users."""
    @property
    def keys(self) -> SyncKeys:
        """The API keys of a server on this store."""
    @property
    def model(self) -> Any:
        """The default model."""
    clock: Callable[[], datetime]

class SyncTellbackClient:
    """A client for a server."""
    def __init__(self, target: TellbackClient) -> None: ...
    def usage(
        self,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        *,
        job_id: str | None = None,
        limit: int = 1000,
        before: str | None = None,
    ) -> list[UsageRecord]:
        """List the model calls for this user's memory (extraction, comparison, summaries), newest first."""
    def usage_totals(
        self, since: datetime | str | None = None, until: datetime | str | None = None
    ) -> list[UsageTotal]:
        """Return the total usage of these calls by purpose and model."""
    def user(self, user_id: str | None = None) -> SyncRemoteUser:
        """Return the handle of a user of the credential's tenant and app."""
    @property
    def events(self) -> SyncRemoteEvents:
        """The changes of all users in the credential's tenant and app."""
    @property
    def jobs(self) -> SyncRemoteJobs:
        """The jobs of all users in the credential's tenant and app."""
    @property
    def bindings(self) -> SyncRemoteBindings:
        """The bindings of all users in the credential's tenant and app."""
    @property
    def keys(self) -> SyncRemoteKeys:
        """The API keys of the credential's tenant and app."""
    def close_stale(self, older_than: timedelta | float) -> list[str]:
        """Close all users' open conversations that have no message newer than `older_than`, and return their ids."""
    def replay(self, namespace: str | None = None, extraction_version: str | None = None) -> ReplayResult:
        """Queue all users' conversations of a namespace (default: all) for extraction, oldest first."""
    def close(self) -> None:
        """Close the connections."""

class SyncEventFeed:
    """Every change in the order of commits, from all processes."""
    def read(
        self,
        after: int = 0,
        *,
        limit: int = 500,
        types: Collection[str] | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> list[Event]:
        """Return up to `limit` events after a position, without waiting for more."""
    def latest(self) -> int:
        """Return the position of the newest event, 0 if there are no events."""
    def subscribe(
        self,
        after: int | Literal["latest"] | None = None,
        *,
        types: Collection[str] | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
        user_id: str | None = None,
    ) -> Generator[Event]:
        """Yield events after a position, then new ones as they arrive, until you stop reading or the store is closed."""

class SyncUser(_User):
    """The handle of one user."""

    scope: Scope
    conversations: SyncConversations
    @property
    def user_id(self) -> str:
        """The user's id."""
    @property
    def memory(self) -> SyncMemory:
        """The user's memory."""
    @property
    def working_context(self) -> SyncWorkingContextBuilder:
        """The builder of working contexts: memories and recent messages for a prompt."""
    @property
    def agents(self) -> SyncAgents:
        """The agents registered with `tb.register_agent`, run for this user."""
    @property
    def admin(self) -> SyncAdmin:
        """Export, erasure and usage of the user's data."""

class SyncJobs(_Jobs):
    """The jobs of all users, stored until they are done, and the background work of this process."""
    def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
        tenant_id: str | None = None,
        app_id: str | None = None,
    ) -> builtins.list[Job]:
        """List jobs, the newest first: of one user or, without `user_id`, of a tenant and app, or all."""
    def drain(self, timeout: float | None = None) -> None:
        """Wait until no work is left in any process: for tests and scripts."""
    def close(self) -> None:
        """Put running jobs back in the queue, and finish the background work."""

class SyncAllBindings:
    """The bindings of all users."""
    def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[Binding]:
        """List all bindings, or those of a tenant and an app, the oldest first."""
    def get(self, id: str) -> Binding | None:
        """Return the binding with that id, or None."""
    def update(self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None) -> Binding:
        """Change a binding's policy, or pause it with `enabled=False`."""
    def delete(self, id: str) -> None:
        """Delete a binding."""

class SyncKeys(_Keys):
    """API keys of all tenants and apps."""
    def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        tenant_id: str = "default",
        app_id: str = "default",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Create a key."""
    def list(self, tenant_id: str | None = None, app_id: str | None = None) -> builtins.list[ApiKey]:
        """List all keys, or those of a tenant and app, including revoked and expired ones, oldest first."""
    def revoke(self, id: str, *, tenant_id: str | None = None, app_id: str | None = None) -> ApiKey:
        """Revoke a key permanently: immediately in this process, and within seconds in others."""
    def check(self, secret: str) -> ApiKey:
        """Return the key of a secret."""

class SyncRemoteUser(_User):
    """The handle of one user on a server, like `tb.user(...)`."""
    @property
    def user_id(self) -> str | None:
        """The user's id, if it was passed."""
    @property
    def conversations(self) -> SyncRemoteConversations:
        """The user's conversations."""
    @property
    def memory(self) -> SyncRemoteMemory:
        """The user's memory."""
    @property
    def working_context(self) -> SyncRemoteWorkingContextBuilder:
        """Builds the context for a model's answer."""
    @property
    def agents(self) -> SyncRemoteAgents:
        """The agents of the server, for this user."""
    @property
    def events(self) -> SyncRemoteEvents:
        """The change feed of this user."""
    @property
    def admin(self) -> SyncRemoteAdmin:
        """Export, erasure and usage of the user's data."""

class SyncRemoteEvents:
    """Changes in commit order."""
    def subscribe(
        self,
        after: int | Literal["latest"] | None = None,
        *,
        types: Collection[str] | None = None,
        user_id: str | None = None,
    ) -> Generator[Event]:
        """Yield events after a position, then new ones, without gaps or duplicates."""

class SyncRemoteJobs(_Jobs):
    """The jobs of all users in the credential's tenant and app."""
    def list(
        self,
        status: JobStatus | str | None = None,
        *,
        conversation_id: str | None = None,
        limit: int | None = 100,
        before: str | None = None,
        user_id: str | None = None,
    ) -> builtins.list[Job]:
        """List the jobs of all users of the app, or of one, the newest first."""

class SyncRemoteBindings:
    """The bindings of all users in the credential's tenant and app."""
    def list(self) -> builtins.list[Binding]:
        """List the bindings of the app, the oldest first."""
    def get(self, id: str) -> Binding | None:
        """Return the binding with that id, or None."""
    def update(self, id: str, extraction_policy: PolicyLike | None = None, enabled: bool | None = None) -> Binding:
        """Change a binding's policy, or pause it."""
    def delete(self, id: str) -> None:
        """Delete a binding."""

class SyncRemoteKeys(_Keys):
    """API keys of the credential's tenant and app."""
    def create(
        self,
        role: ApiKeyRole = "app",
        *,
        name: str = "",
        user_id: str | None = None,
        expires_at: datetime | str | timedelta | None = None,
        rate_limit: int | None = None,
    ) -> NewApiKey:
        """Create a key."""
    def list(self) -> builtins.list[ApiKey]:
        """List the keys of the app, including revoked and expired ones, oldest first."""
    def revoke(self, id: str) -> ApiKey:
        """Revoke a key permanently."""

class SyncConversations(_Conversations):
    """One user's conversations: append-only logs, isolated from all other users."""

class SyncMemory(_Memory):
    """One user's memory: spaces with atoms and entities, isolated from all other users."""
    def replay(
        self,
        namespace: str | None = None,
        extraction_version: str | None = None,
        *,
        on_progress: Callable[[ReplayProgress], Any] | None = None,
    ) -> ReplayReport:
        """Extract this user's conversations again, the oldest first, and wait until that is done."""

class SyncWorkingContextBuilder:
    """Builds the working context of a user's conversations."""
    def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        count_tokens: TokenCounter | None = None,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Build the information that a model needs before it answers in this conversation or, with None, in a new one."""

class SyncAgents(_Agents):
    """Invokes the registered agents for one user."""

class SyncAdmin(_Admin):
    """Export, erasure and usage of the handle's user, or of another user of the same tenant and app."""
    @overload
    def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: None = None,
        format: ExportFormat | None = None,
        on_progress: ExportProgressCallback | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any]:
        """Export all data of a user as a JSON-compatible dict."""
    @overload
    def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO,
        format: ExportFormat | None = None,
        on_progress: ExportProgressCallback | None = None,
        include_vectors: bool = False,
    ) -> ExportReport: ...
    def export_stream(
        self, user_id: str | None = None, *, include_vectors: bool = False
    ) -> Generator[tuple[str, dict[str, Any]]]:
        """Yield all records with their collection."""

class SyncRemoteConversations(_Conversations):
    """The conversations of one user on a server, with the methods of `user.conversations`."""

class SyncRemoteMemory(_Memory):
    """The memory of one user on a server, with the methods of `user.memory`."""
    def follow_job(self, id: str) -> Generator[Job]:
        """Yield a job now and after each change, until it is finished."""

class SyncRemoteWorkingContextBuilder:
    """Builds the working context of a user's conversations on a server."""
    def build(
        self,
        conversation_id: str | None,
        memory_space_id: str | None = None,
        recall_query: str | None = None,
        recent_turns: int | None = 10,
        recall_limit: int | None = 8,
        token_budget: int | None = 8000,
        include_rolling_summary: bool | None = True,
        always_on_category_names: Sequence[str] | None = (),
        template_id: str | None = "default",
        *,
        now: datetime | str | None = None,
        min_score: float | None = None,
    ) -> WorkingContext:
        """Build the context for a model's answer in this conversation, or (with None) in a new one."""

class SyncRemoteAgents(_Agents):
    """The agents of a server, for one user."""
    def respond(
        self,
        name: str,
        history: str | Sequence[Mapping[str, Any]] | None = None,
        session: SessionState | str | None = None,
        *,
        approvals: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        wait: float | None = None,
    ) -> Response:
        """Run a turn of an agent with routes, like `agent.respond`."""
    def respond_stream(
        self,
        name: str,
        history: str | Sequence[Mapping[str, Any]] | None = None,
        session: SessionState | str | None = None,
        *,
        approvals: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        trace_id: str | None = None,
        wait: float | None = None,
    ) -> Generator[StreamChunk]:
        """Run `respond` and yield chunks; the last one is `done`."""
    def sessions(self, name: str) -> SyncRemoteSessions:
        """Return the handle of the user's sessions with an agent."""

class SyncRemoteAdmin(_Admin):
    """Export, erasure and usage of a user's data: the handle's user, or another one if the credential allows it."""
    def export_user_data(
        self,
        user_id: str | None = None,
        *,
        to: str | PathLike[str] | BinaryIO | None = None,
        format: Literal["json", "zip"] | None = None,
        include_vectors: bool = False,
    ) -> dict[str, Any] | int:
        """Export all data of a user as a dict."""

class SyncRemoteSessions:
    """The methods of `Persistence` for one user and agent."""
    def get_session(self, session_id: str) -> SessionData | None:
        """Return a session, or None if it does not exist or belongs to another user."""
    def update_session_status(self, session_id: str, status: SessionStatus) -> SessionData | None:
        """Change a session's status and return the session, or None if it does not exist."""
    def complete_session(self, session_id: str) -> SessionData | None:
        """Mark a session as completed."""
    def abandon_session(self, session_id: str) -> SessionData | None:
        """Mark a session as abandoned."""
    def create_session(self, id: str | None = None, *, initial_data: Mapping[str, Any] | None = None) -> SessionData:
        """Create a session."""
    def find_active_session(self) -> SessionData | None:
        """Return the newest active session, or None."""
    def get_user_sessions(self, limit: int | None = None, *, status: SessionStatus | None = None) -> list[SessionData]:
        """List the user's sessions, newest first."""
    def delete_session(self, session_id: str) -> bool:
        """Delete a session; return False if it does not exist."""
    def get_session_messages(self, session_id: str, limit: int | None = None) -> list[MessageData]:
        """Return the last `limit` messages of a session, in order."""
    def load_session_history(self, session_id: str, limit: int = 200) -> list[AgentEvent]:
        """Return the events of the last `limit` messages of a session, as `respond` accepts them."""
