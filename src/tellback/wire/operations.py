"""The table of the REST operations: routes, OpenAPI, the client's methods, tests and the reference come from it.

A new operation is one entry here, one method of a handle and one test. A class holds what one handle of the client has,
and is inherited by it: an entry is the client's method, unless the client has one of its own. Entries of the `…Routes`
have no method that a client could call in the same way. What is not said in an entry is derived: see `wire.operation`.

It imports the handles for the signatures of their methods, and is imported by `server` and `client`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tellback.admin import Admin
from tellback.agent.sessions.persistence import Persistence
from tellback.api_keys import AppKeys
from tellback.chat.usage import parse_usage
from tellback.conversations import Conversations
from tellback.errors import InvalidArgumentError
from tellback.jobs.handle import AppJobs
from tellback.memory.bindings import AppBindings
from tellback.memory.memory import DEFAULT_ENTITY_LIMIT, DEFAULT_JOB_LIMIT, Memory
from tellback.memory.working_context import WorkingContextBuilder
from tellback.types.conversations import SessionStatus
from tellback.types.jobs import JobStatus
from tellback.wire.agents import (
    MAX_SESSION_ID_LENGTH,
    AgentDelta,
    AgentResponseWire,
    AgentWire,
    CreateSession,
    InvokeAgent,
    RespondTo,
    SessionEventWire,
    SessionMessageWire,
    SessionWire,
)
from tellback.wire.arguments import (
    MAX_ATOMS,
    MAX_CATEGORIES,
    MAX_IMPORTED_MESSAGES,
    MAX_RATE_LIMIT,
    MAX_WAIT_SECONDS,
    REQUIRED,
    Argument,
    BuildWorkingContext,
    CloseEveryonesStale,
    ReplayConversations,
    encode_category,
    several,
    text,
)
from tellback.wire.base import AtomStatusIn, IdIn, InputModel, NameIn, Page, QueryIn
from tellback.wire.operation import Group, Operation, route
from tellback.wire.turns import DELTA_EVENTS, ChatInput, RunTurn, TurnOutcomeWire, TurnResultWire
from tellback.wire.values import FEED_EVENTS, ErasedWire, ExtractionWaited, JobWire, Replayed, StaleClosed

Arguments = dict[str, Any]

_TYPE = Argument(description="Of all types, if not said.")
_SEQ = Argument(Annotated[int, Field(ge=0, le=2**62)], "The `seq` of a message.")
_WAIT = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]
_RATE = Annotated[int, Field(ge=1, le=MAX_RATE_LIMIT)]
_PERIOD = {"since": Argument(description="From this moment on."), "until": Argument(description="Before this moment.")}
_OTHER_USER = (None, Argument(text(200) | None, "Another user's: that needs the role 'admin'."))
_EVERYONE = (False, Argument(bool, "Of all users of the app: that needs the role 'admin'."))
_SESSION_ID = Argument(text(MAX_SESSION_ID_LENGTH), example="web-42", name="id")
_IF_MATCH: Any = {"errors": (412,), "headers": ("if_match",), "arguments": {"session_id": _SESSION_ID}}
_APPEND: Any = {"status": 201, "errors": (409,)}
_RECALL: Any = {"errors": (502,), "retry": "read", "is_cancelled_on_disconnect": True}
_TURN_ERRORS = (404, 409, 502, 504)
_STREAM_DOC = (
    "The answer. As a stream: the events `text`, `thinking`, `tool_use_start`, `tool_use_input`, `tool_use_end` and"
    " `stop` as they come; at last `result`, which is the same as the whole answer, or `error`, which is a problem."
)


def _merge_categories(arguments: Arguments) -> Arguments:
    category = arguments["category"]
    names = [] if category is None else [category if isinstance(category, str) else encode_category(category)["name"]]
    return {**arguments, "categories": [*names, *(arguments["categories"] or ())] or None}


def _default_limit(limit: int) -> Any:
    return lambda arguments: {**arguments, "limit": limit if arguments["limit"] is None else arguments["limit"]}


def _search_arguments(arguments: Arguments) -> Arguments:
    return {**_default_limit(DEFAULT_ENTITY_LIMIT)(arguments), "query": arguments["query"] or ""}


def _resolve_usage(arguments: Arguments) -> Arguments:
    usage = parse_usage(arguments["usage"], arguments["provider"], arguments["model"])
    return {**arguments, "usage": usage}


def _require_confirmation(arguments: Arguments) -> Arguments:
    if arguments["confirm"] is not True:
        raise InvalidArgumentError("All data would be deleted for good: pass confirm=True if that is meant.")
    return arguments


class ConversationOperations:
    """`user.conversations`: the log."""

    _group = Group("conversations", Conversations, "user.conversations")

    create = Operation(
        Conversations.create,
        "POST /ai-conversations",
        "create_conversation",
        status=201,
        arguments={
            "namespace": Argument(str, "Your name for this kind of conversation.", example="support-chat"),
            "session_id": Argument(str),
        },
    )
    list = Operation(
        Conversations.list,
        "GET /ai-conversations",
        "list_conversations",
        doc="The user's conversations, the newest first.",
        page="before",
        arguments={"status": Argument(Literal["open", "closed"])},
    )
    get = Operation(Conversations.get, "GET /ai-conversations/{id:conversation}", "get_conversation")
    close = Operation(Conversations.close, "POST /ai-conversations/{id:conversation}/close", "close_conversation")
    append_user_message = Operation(
        Conversations.append_user_message,
        "POST /ai-conversations/{id:conversation}/user-messages",
        doc="Append what the person said. With an idempotency key, a retry gives the message that was stored first.",
        retry="own",
        **_APPEND,
        arguments={"content": Argument(example="Hi, where's my refund?")},
    )
    append_assistant_turn = Operation(
        Conversations.append_assistant_turn,
        "POST /ai-conversations/{id:conversation}/assistant-turns",
        **_APPEND,
        arguments={"content": Argument(example="Looking it up now...")},
        prepare=_resolve_usage,
    )
    append_tool_result = Operation(
        Conversations.append_tool_result,
        "POST /ai-conversations/{id:conversation}/tool-results",
        doc="Append what a tool of yours gave; what an agent's tools give is for the agent to append.",
        **_APPEND,
        arguments={"content": Argument(example="shipped")},
    )
    append_system_message = Operation(
        Conversations.append_system_message,
        "POST /ai-conversations/{id:conversation}/system-messages",
        **_APPEND,
        arguments={"content": Argument(example="The user is on the free plan.")},
    )
    append_turn = Operation(
        Conversations.append_turn,
        "POST /ai-conversations/{id:conversation}/turns",
        doc="Append both sides of a turn that you ran yourself."
        "\n\nWith `idempotencyKey` the user's message is stored once, and the assistant's is a new one each time; with"
        " the header both are.",
        **_APPEND,
        arguments={
            "user_content": Argument(example="What's my refund status?"),
            "assistant": Argument(lambda: body_model("append_assistant_turn")),
        },
    )
    append_messages = Operation(
        Conversations.append_messages,
        "POST /ai-conversations/{id:conversation}/messages",
        note=f"up to {MAX_IMPORTED_MESSAGES:,}, all or none",
        **_APPEND,
        body="ImportMessages",
    )
    messages = Operation(
        Conversations.messages,
        "GET /ai-conversations/{id:conversation}/messages",
        "get_messages",
        doc="The newest messages, oldest first: what a chat shows. `nextCursor` leads to those before them."
        "\n\nWith `after` (a `seq`) they are those that follow it, and `nextCursor` leads on from there.",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
    )
    raw_turns = Operation(
        Conversations.raw_turns,
        "GET /ai-conversations/{id:conversation}/raw-turns",
        "get_raw_turns",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
        omit=("include_hidden",),
    )
    pending = Operation(
        Conversations.pending,
        "GET /ai-conversations/{id:conversation}/pending",
        "get_pending_calls",
        doc="The tool calls that wait for a person's decision; a turn with `approvals` takes it.",
    )
    refresh_rolling_summary = Operation(
        Conversations.refresh_rolling_summary,
        "POST /ai-conversations/{id:conversation}/rolling-summary",
        doc="Bring the rolling summary forward to the newest message, with a model if there is one."
        "\n\nIf the connection ends early, so does the model's call.",
        errors=(502, 504),
        retry="turn",
        is_cancelled_on_disconnect=True,
        arguments={"model": Argument(text(200), "The server's own, or another that it serves.")},
        body="RefreshSummary",
        is_body_optional=True,
    )
    message = Operation(Conversations.message, "GET /ai-conversations/messages/{message_id:message}", "get_message")
    find_or_create = Operation(
        Conversations.find_or_create, "POST /ai-conversations/find-or-create", "find_or_create_conversation"
    )
    find = Operation(
        Conversations.find,
        "GET /ai-conversations/open",
        "find_conversation",
        note="404 if there is none",
        errors=(404,),
        missing=("open conversation", ("session_id", "namespace")),
    )
    close_stale = Operation(
        Conversations.close_stale,
        "POST /ai-conversations/close-stale",
        "close_stale_conversations",
        doc="Close the user's open conversations in which nothing happened for that long, and give them.",
        note="`olderThan` is in seconds",
        body="CloseStale",
    )


class TurnRoutes:
    """Turns: a message in, a model's answer out."""

    _group = Group("turns")

    chat = route(
        "POST /ai-conversations/chat",
        stands_for="user.chat`, `chat_stream",
        doc="Say something, and be answered by a model that remembers."
        "\n\nIt goes on with the user's open conversation of the namespace, or opens one. `tools` are run by you: a"
        " reply whose status is `approval` names the calls in `pending`; post their `toolResults` with the same `tools`"
        " and the reply's `conversationId`. If the connection ends early, the turn is cancelled.",
        errors=_TURN_ERRORS,
        retry="turn",
        headers=("traceparent", "accept"),
        body=ChatInput,
        result=TurnResultWire,
        events={**DELTA_EVENTS, "result": TurnResultWire},
        events_doc=_STREAM_DOC,
    )
    run_turn = route(
        "POST /ai-conversations/{id:conversation}/run-turn",
        stands_for="user.conversations.run_turn`, `stream_turn",
        doc="Store what the user says, ask the model, and store what it answers."
        "\n\n`tools` are run by you: an outcome whose status is `approval` names the calls in `pending`; post their"
        " `toolResults` with the same `tools`. If the connection ends early, the turn is cancelled; what was stored"
        " stays.",
        errors=_TURN_ERRORS,
        retry="turn",
        headers=("traceparent", "accept"),
        body=RunTurn,
        result=TurnOutcomeWire,
        events={**DELTA_EVENTS, "result": TurnOutcomeWire},
        events_doc=_STREAM_DOC,
    )


class MemoryOperations:
    """`user.memory`: spaces, atoms, entities, recall, bindings and jobs."""

    _group = Group("memory", Memory, "user.memory")

    create_space = Operation(
        Memory.create_space,
        "POST /ai-memory/spaces",
        status=201,
        arguments={
            "name": Argument(text(200), "'default', if not given.", example="goals"),
            "metadata": Argument(dict[str, Any]),
            "once": Argument(description="Give the first space of that name, if there is one."),
        },
    )
    list_spaces = Operation(
        Memory.list_spaces, "GET /ai-memory/spaces", page="whole", arguments={"name": Argument(text(200))}
    )
    get_space = Operation(Memory.get_space, "GET /ai-memory/spaces/{id:space}")
    delete_space = Operation(Memory.delete_space, "DELETE /ai-memory/spaces/{id:space}", status=204)
    add_atom = Operation(
        Memory.add_atom,
        "POST /ai-memory/spaces/{space_id:space}/atoms",
        doc="Remember something: a fact of importance 3 that is certain and true from now on, if not said otherwise."
        "\n\nWhat it cites must be the user's own.",
        note="what it cites must be the user's own",
        status=201,
        errors=(502,),
        arguments={"text": Argument(example="User prefers morning meetings")},
    )
    add_atoms = Operation(
        Memory.add_atoms,
        "POST /ai-memory/spaces/{space_id:space}/atoms/batch",
        note=f"up to {MAX_ATOMS}, all or none",
        status=201,
        errors=(502,),
        arguments={"atoms": Argument(lambda: several(body_model("add_atom"), MAX_ATOMS))},
    )
    list_atoms = Operation(
        Memory.list_atoms,
        "GET /ai-memory/spaces/{space_id:space}/atoms",
        doc="Atoms, the newest first: those that are not over or, with `validAt`, those that held at that moment.",
        page="before",
        omit=("category",),
        arguments={
            "categories": Argument(
                several(text(200), MAX_CATEGORIES), "A category's name; it may be given often.", name="category"
            ),
            "status": Argument(AtomStatusIn, "ACTIVE, if not said."),
        },
        prepare=_merge_categories,
    )
    get_atom = Operation(Memory.get_atom, "GET /ai-memory/atoms/{id:atom}")
    delete_atom = Operation(Memory.delete_atom, "DELETE /ai-memory/atoms/{id:atom}")
    supersede_atom = Operation(
        Memory.supersede_atom,
        "POST /ai-memory/atoms/{id:atom}/supersede",
        doc="Put a new atom in an old one's place: the old one held until the new one's `validFrom` (now, if not said)."
        "\n\nWhat is not given is as in the old one, but for where it comes from. Only the last atom of a chain can be"
        " superseded; `data.superseded_by` of the problem names what took its place.",
        status=201,
        errors=(409, 502),
        arguments={"old_id": Argument(name="id"), "text": Argument(example="User prefers morning meetings")},
    )
    archive_atom = Operation(Memory.archive_atom, "POST /ai-memory/atoms/{id:atom}/archive")
    restore_atom = Operation(Memory.restore_atom, "POST /ai-memory/atoms/{id:atom}/restore")
    create_entity = Operation(Memory.create_entity, "POST /ai-memory/spaces/{space_id:space}/entities", status=201)
    search_entities = Operation(
        Memory.search_entities,
        "GET /ai-memory/spaces/{space_id:space}/entities",
        doc="All entities, the oldest first; with a query, those whose names or description match, the best first."
        "\n\nWhat matches is ranked anew for each page: what changes meanwhile may move an entity to another page.",
        note="without a `query`, `list_entities`",
        page="offset",
        arguments={
            "query": Argument(QueryIn, "A part of a name; an empty one ranks those most spoken of first."),
            "type": _TYPE,
        },
        prepare=_search_arguments,
    )
    list_entities = Operation(
        Memory.list_entities, "GET /ai-memory/spaces/{space_id:space}/entities", page="after", is_mounted=False
    )
    find_entity_by_name = Operation(
        Memory.find_entity_by_name,
        "GET /ai-memory/spaces/{space_id:space}/entities/by-name",
        note="404 if there is none",
        arguments={"type": _TYPE, "name": Argument(text(500), default=REQUIRED)},
        missing=("entity", ("name",)),
    )
    get_entity = Operation(Memory.get_entity, "GET /ai-memory/entities/{id:entity}")
    merge_entities = Operation(
        Memory.merge_entities,
        "POST /ai-memory/entities/{id:entity}/merge",
        arguments={"canonical_id": Argument(name="id")},
        body="MergeEntity",
    )
    recall_by_topic = Operation(
        Memory.recall_by_topic,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-topic",
        **_RECALL,
        body="RecallByTopicInput",
    )
    recall_by_entity = Operation(
        Memory.recall_by_entity,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-entity",
        retry="read",
        body="RecallByEntityInput",
    )
    recall_timeline = Operation(
        Memory.recall_timeline,
        "POST /ai-memory/spaces/{space_id:space}/recall-timeline",
        doc="How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over.",
        **_RECALL,
        arguments={"entity_id_or_name": Argument(NameIn), "query": Argument(QueryIn)},
        body="RecallTimelineInput",
    )
    remember_conversation = Operation(
        Memory.remember_conversation,
        "POST /ai-memory/spaces/{space_id:space}/remember-conversation",
        doc="Remember a conversation word for word, without any model: each message becomes a dated, cited atom."
        "\n\nDoing it again adds only what was said since. Gives all of its atoms.",
        errors=(502,),
        retry="turn",
    )
    create_binding = Operation(
        Memory.create_binding,
        "POST /ai-memory/bindings",
        doc="From now on, let conversations become memories."
        "\n\nConversations of every user (`*`) or of another one need the role 'app' or 'admin': they go to those"
        " users' own spaces of the same names, made when missing.",
        note="for `*` or another user not with the role `user`",
        tag="bindings",
        status=201,
        errors=(404,),
        arguments={"once": Argument(description="Give the user's binding of the same scopes and spaces, if any.")},
    )
    list_bindings = Operation(Memory.list_bindings, "GET /ai-memory/bindings", tag="bindings", page="whole")
    get_binding = Operation(Memory.get_binding, "GET /ai-memory/bindings/{id:binding}", tag="bindings")
    update_binding = Operation(
        Memory.update_binding,
        "PATCH /ai-memory/bindings/{id:binding}",
        doc="Change when a binding of this user extracts, or pause it; what it is about never changes.",
        note="of those this user made",
        tag="bindings",
    )
    delete_binding = Operation(
        Memory.delete_binding,
        "DELETE /ai-memory/bindings/{id:binding}",
        note="of those this user made",
        tag="bindings",
        status=204,
    )
    run_extraction_for_conversation = Operation(
        Memory.run_extraction_for_conversation,
        "POST /ai-memory/extractions",
        "run_extraction",
        doc="Extract a conversation now, open or closed, as often as you like: what is known is not added again."
        "\n\nEvery enabled binding that matches gives its jobs; or name a space, and no binding is needed.",
        note="202 with its jobs",
        tag="jobs",
        status=202,
        errors=(404,),
        arguments={"space_id": Argument(IdIn, name="memory_space_id")},
    )
    wait_for_extraction = Operation(
        Memory.wait_for_extraction,
        "POST /ai-memory/extractions/wait",
        doc="Wait until the user's conversations that were closed have become memories, or for so long.",
        note=f"up to {MAX_WAIT_SECONDS:.0f} seconds: `done` says whether",
        tag="jobs",
        retry="read",
        is_cancelled_on_disconnect=True,
        arguments={"timeout": Argument(_WAIT, "Seconds.", default=MAX_WAIT_SECONDS)},
        result=ExtractionWaited,
    )
    list_jobs = Operation(
        Memory.list_jobs,
        "GET /ai-memory/jobs",
        doc="The user's jobs, the newest first.",
        tag="jobs",
        page="before",
        arguments={"status": Argument(JobStatus), "conversation_id": Argument(text(200))},
        prepare=_default_limit(DEFAULT_JOB_LIMIT),
    )
    get_job = Operation(Memory.get_job, "GET /ai-memory/jobs/{id:job}", tag="jobs")
    retry_job = Operation(Memory.retry_job, "POST /ai-memory/jobs/{id:job}/retry", tag="jobs")
    cancel_job = Operation(Memory.cancel_job, "POST /ai-memory/jobs/{id:job}/cancel", tag="jobs")


class WorkingContextRoutes:
    """`user.working_context`, without what cannot be sent to a server."""

    _group = Group("working context", WorkingContextBuilder, "user.working_context")

    build = Operation(
        WorkingContextBuilder.build,
        "POST /ai-working-context",
        "build_working_context",
        doc="Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token"
        " budget.\n\nOver budget, the oldest turns go first, then the weakest memories that were recalled.",
        errors=(404, 502),
        retry="read",
        is_cancelled_on_disconnect=True,
        omit=("count_tokens",),
        body=BuildWorkingContext,
    )


class AgentRoutes:
    """Agents by description, and agents with routes."""

    _group = Group("agents", access="caller")

    list_agents = route(
        "GET /ai-agents",
        stands_for="user.agents.list",
        doc="All agents there are: those by their descriptions first.",
        note="and agents with routes; the role `user` sees no descriptions",
        result=Page[AgentWire],
    )
    get_agent = route("GET /ai-agents/{name:agent}", stands_for="user.agents.get", doc="An agent.", result=AgentWire)
    invoke_agent = route(
        "POST /ai-agents/{name:agent}/invoke",
        stands_for="user.agents.invoke`, `invoke_stream",
        doc="Run one turn of an agent by its description, in a new conversation or in `conversationId`."
        "\n\nIf the connection ends early, the turn is cancelled; what was stored stays.",
        errors=_TURN_ERRORS,
        retry="turn",
        headers=("accept",),
        body=InvokeAgent,
        result=TurnOutcomeWire,
        events={**DELTA_EVENTS, "result": TurnOutcomeWire},
        events_doc="How the turn ended; as a stream: its deltas, and at last result or error.",
    )
    respond = route(
        "POST /ai-agents/{name:agent}/respond",
        stands_for="agent.respond`, `respond_stream",
        doc="Say something to an agent with routes, in a new session or in `sessionId`."
        "\n\nWith `If-Match`, only if the session is still as its ETag says. If the connection ends early, the turn is"
        " cancelled.",
        note="with a `message` or `approvals`; `history` not with the role `user`",
        errors=(*_TURN_ERRORS, 412),
        retry="turn",
        headers=("if_match", "accept"),
        body=RespondTo,
        result=AgentResponseWire,
        events={"delta": AgentDelta, "result": AgentResponseWire},
        events_doc="The answer; as a stream: the events delta, and at last result or error.",
    )
    get_diagram = route(
        "GET /ai-agents/{name:agent}/diagram",
        stands_for="agent.to_mermaid",
        doc="The routes of an agent as a Mermaid diagram, with the session's state lit.",
        extra={"session_id": (None, Argument(text(MAX_SESSION_ID_LENGTH, 1) | None))},
    )
    create_session = route(
        "POST /ai-agents/{name:agent}/sessions",
        stands_for="persistence.create_session",
        doc="Begin a session. `respond` with a new id does so too. An id is taken once among all users of the app.",
        status=201,
        errors=(409,),
        body=CreateSession,
        result=SessionWire,
    )
    list_sessions = route(
        "GET /ai-agents/{name:agent}/sessions",
        stands_for="persistence.get_user_sessions",
        doc="The user's sessions with this agent, those created last first. A page may be short, with more to come.",
        page="offset",
        extra={"status": (None, Argument(SessionStatus | None))},
        result=SessionWire,
    )
    delete_session = route(
        "DELETE /ai-agents/{name:agent}/sessions/{id:session}",
        stands_for="persistence.delete_session",
        doc="Forget where a session stood. What was said in it stays in the user's log, if it is kept in the Tellback.",
        status=204,
        errors=(412,),
        headers=("if_match",),
        arguments={"id": _SESSION_ID},
    )
    get_session_messages = route(
        "GET /ai-agents/{name:agent}/sessions/{id:session}/messages",
        stands_for="persistence.get_session_messages",
        doc="The newest messages of a session, oldest first. `nextCursor` leads to those before them.",
        page="newest",
        arguments={"id": _SESSION_ID},
        result=SessionMessageWire,
    )
    load_session_history = route(
        "GET /ai-agents/{name:agent}/sessions/{id:session}/history",
        stands_for="persistence.load_session_history",
        doc="What was said and done in a session, as events: of the last `limit` messages.",
        arguments={"id": _SESSION_ID},
        extra={
            "limit": (
                None,
                Argument(
                    Annotated[int, Field(ge=1)] | None,
                    "How many at most; a page may have fewer, and lead on by nextCursor.",
                ),
            )
        },
        result=Page[SessionEventWire],
    )


class SessionOperations:
    """`client.user(...).agents.sessions(name)`: the sessions of a user with an agent with routes."""

    _group = Group("agents", Persistence, "persistence", access="caller")

    get_session = Operation(
        Persistence.get_session,
        "GET /ai-agents/{name:agent}/sessions/{id:session}",
        doc="A session. Its `ETag` is for `If-None-Match` here, and for `If-Match` where it is changed.",
        headers=("if_none_match",),
        arguments={"session_id": _SESSION_ID},
    )
    update_session_status = Operation(
        Persistence.update_session_status,
        "PATCH /ai-agents/{name:agent}/sessions/{id:session}",
        "update_session",
        doc="Change a session's status.",
        **_IF_MATCH,
    )
    complete_session = Operation(
        Persistence.complete_session, "POST /ai-agents/{name:agent}/sessions/{id:session}/complete", **_IF_MATCH
    )
    abandon_session = Operation(
        Persistence.abandon_session, "POST /ai-agents/{name:agent}/sessions/{id:session}/abandon", **_IF_MATCH
    )


class EventRoutes:
    """What changes, as it changes."""

    _group = Group("events", access="caller")

    follow_events = route(
        "GET /ai-events",
        stands_for="tb.events.subscribe",
        doc="The user's changes as server-sent events, from now on or after a position."
        "\n\nAn event's name is its type, its id the position. Whoever connects again with `Last-Event-ID`, as browsers"
        " do, or with `after`, goes on from there: none is lost and none comes twice. The first event is `ready`."
        " Admins can follow everyone of their tenant and app.",
        note="`everyone=true`: *admin*",
        headers=("last",),
        extra={
            "after": (None, Argument(text(100) | None, "The position of an event, or 'latest'.", example="latest")),
            "types": (
                None,
                Argument(text(5_000) | None, "With commas between.", example="message.appended,atom.added"),
            ),
            "everyone": _EVERYONE,
        },
        events=FEED_EVENTS,
        events_doc="Changes, each named by its type, after `ready`.",
    )
    follow_job = route(
        "GET /ai-memory/jobs/{id:job}/events",
        stands_for="user.memory.follow_job",
        doc="The job at each change, as the event `job`, until it is over.",
        events={"job": JobWire},
        events_doc="The job at each change.",
    )


class AdminOperations:
    """`user.admin`: erasure and usage, of the caller's user or, for admins, of another."""

    _group = Group("admin", Admin, "user.admin", access="caller")

    delete_user_data = Operation(
        Admin.delete_user_data,
        "POST /ai-admin/delete",
        doc="Delete all that is kept of a user, for good. Deleting again is harmless.",
        note="`confirm` must be true; others' with `userId`: *admin*",
        errors=(507,),
        retry="safe",
        arguments={
            "user_id": Argument(text(200), "The credential's own user, if not given."),
            "confirm": Argument(Literal[True], "That it is meant.", default=REQUIRED),
        },
        prepare=_require_confirmation,
        result=ErasedWire,
    )
    usage = Operation(
        Admin.usage,
        "GET /ai-admin/usage",
        "get_usage",
        note="`userId` or `everyone=true`: *admin*",
        page="before",
        arguments={**_PERIOD, "job_id": Argument(text(200))},
        extra={"user_id": _OTHER_USER, "everyone": _EVERYONE},
    )
    usage_totals = Operation(
        Admin.usage_totals,
        "GET /ai-admin/usage/totals",
        "get_usage_totals",
        doc="What model calls for memory cost, added up by user, purpose and model.",
        note="`userId` or `everyone=true`: *admin*",
        arguments=_PERIOD,
        extra={"user_id": _OTHER_USER, "everyone": _EVERYONE},
    )


class AppOperations:
    """What the client itself has: usage of all users of an app."""

    _group = Group("admin", Admin, "tb")

    usage = Operation(
        Admin.usage, "GET /ai-admin/usage", page="before", fixed_query={"everyone": "true"}, is_mounted=False
    )
    usage_totals = Operation(
        Admin.usage_totals, "GET /ai-admin/usage/totals", fixed_query={"everyone": "true"}, is_mounted=False
    )


class AdminRoutes:
    """An export, and what concerns all users of an app and goes on page by page."""

    _group = Group("admin", access="admin", retry="safe")

    export_user_data = route(
        "GET /ai-admin/export",
        stands_for="user.admin.export_user_data",
        doc="All that is kept of a user. Its fields are named as in the store.",
        note="others' with `userId`: *admin*",
        errors=(507,),
        access="caller",
        extra={
            "user_id": _OTHER_USER,
            "format": ("json", Argument(Literal["json", "zip"])),
            "include_vectors": (False, Argument(bool)),
        },
    )
    close_everyones_stale = route(
        "POST /ai-admin/close-stale",
        stands_for="tb.close_stale",
        doc="Close the app's conversations in which nothing happened for so long."
        " Ask again while there is a `nextCursor`.",
        body=CloseEveryonesStale,
        result=StaleClosed,
    )
    replay_conversations = route(
        "POST /ai-admin/replay",
        stands_for="tb.replay",
        doc="Queue the app's conversations to be extracted again. Ask again while there is a `nextCursor`.",
        status=202,
        body=ReplayConversations,
        result=Replayed,
    )


class JobOperations:
    """`client.jobs`: the jobs of all users of an app."""

    _group = Group("admin", AppJobs, "tb.jobs", access="admin", retry="safe")

    list = Operation(
        AppJobs.list,
        "GET /ai-admin/jobs",
        "list_everyones_jobs",
        page="before",
        arguments={"conversation_id": Argument(text(200)), "user_id": Argument(text(200))},
    )
    get = Operation(AppJobs.get, "GET /ai-admin/jobs/{id:job}", "get_anyones_job")
    retry = Operation(AppJobs.retry, "POST /ai-admin/jobs/{id:job}/retry", "retry_anyones_job")
    cancel = Operation(AppJobs.cancel, "POST /ai-admin/jobs/{id:job}/cancel", "cancel_anyones_job")


class BindingOperations:
    """`client.bindings`: the bindings of an app, whoever made them."""

    _group = Group("admin", AppBindings, "tb.bindings", access="admin", retry="safe")

    list = Operation(AppBindings.list, "GET /ai-admin/bindings", "list_everyones_bindings", page="whole")
    get = Operation(AppBindings.get, "GET /ai-admin/bindings/{id:binding}", "get_anyones_binding")
    update = Operation(
        AppBindings.update,
        "PATCH /ai-admin/bindings/{id:binding}",
        "update_anyones_binding",
        body=lambda: body_model("update_binding"),
    )
    delete = Operation(
        AppBindings.delete, "DELETE /ai-admin/bindings/{id:binding}", "delete_anyones_binding", status=204
    )


class KeyOperations:
    """`client.keys`: the API keys of an app."""

    _group = Group("admin", AppKeys, "tb.keys", access="admin", retry="safe")

    create = Operation(
        AppKeys.create,
        "POST /ai-admin/keys",
        "create_key",
        doc="Make an API key for your tenant and app. Its secret is in the answer, and nowhere else."
        "\n\nOne of the role 'user' is fixed to `userId`, others take none. A credential that ends, or has a limit of"
        " its own, makes keys that end with it, and have its limit at most.",
        note="the secret is in the answer, and nowhere else",
        status=201,
        retry="once",  # the secret of a key that was made twice would be lost, and the key would not
        arguments={
            "name": Argument(text(200), example="Maya's phone"),
            "user_id": Argument(text(200), example="maya"),
            "rate_limit": Argument(_RATE, "Requests a minute; by default what the server has for all."),
        },
    )
    list = Operation(AppKeys.list, "GET /ai-admin/keys", "list_keys", page="whole")
    get = Operation(AppKeys.get, "GET /ai-admin/keys/{id:API key}", "get_key")
    revoke = Operation(AppKeys.revoke, "DELETE /ai-admin/keys/{id:API key}", "revoke_key")


GROUPS: tuple[type[Any], ...] = (
    ConversationOperations,
    TurnRoutes,
    MemoryOperations,
    WorkingContextRoutes,
    AgentRoutes,
    SessionOperations,
    EventRoutes,
    AdminOperations,
    AdminRoutes,
    JobOperations,
    BindingOperations,
    KeyOperations,
)

OPERATIONS: dict[str, Operation[..., Any]] = {
    operation.name: operation
    for group in GROUPS
    for operation in vars(group).values()
    if isinstance(operation, Operation)
}
"""All operations by their names."""


def body_model(name: str) -> type[InputModel]:
    """The model of the body of an operation."""
    found = OPERATIONS[name].body_model
    assert found is not None
    return found
