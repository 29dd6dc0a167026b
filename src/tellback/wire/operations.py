"""The table of REST operations, from which routes, OpenAPI, the client's methods, tests and the reference are derived.

A new operation needs one entry here, one method of a handle and one test. Each class has the operations of one handle;
the client's handle inherits it, so that an entry is a client method, unless the client defines its own. Entries of the
`…Routes` classes have no such method. `wire.operation` describes what is derived from an entry.

It imports the handles for their methods' signatures, and is imported by `server` and `client`.
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

_TYPE = Argument(description="All types by default.")
_SEQ = Argument(Annotated[int, Field(ge=0, le=2**62)], "The `seq` of a message.")
_WAIT = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]
_RATE = Annotated[int, Field(ge=1, le=MAX_RATE_LIMIT)]
_PERIOD = {
    "since": Argument(description="The start of the period."),
    "until": Argument(description="The end, exclusive."),
}
_OTHER_USER = (None, Argument(text(200) | None, "Another user's id; needs the role 'admin'."))
_EVERYONE = (False, Argument(bool, "All users of the app; needs the role 'admin'."))
_SESSION_ID = Argument(text(MAX_SESSION_ID_LENGTH), example="web-42", name="id")
_IF_MATCH: Any = {"errors": (412,), "headers": ("if_match",), "arguments": {"session_id": _SESSION_ID}}
_APPEND: Any = {"status": 201, "errors": (409,)}
_RECALL: Any = {"errors": (502,), "retry": "read", "is_cancelled_on_disconnect": True}
_TURN_ERRORS = (404, 409, 502, 504)
_STREAM_DOC = (
    "The result of the turn. As a stream: the events `text`, `thinking`, `tool_use_start`, `tool_use_input`,"
    " `tool_use_end` and `stop`; at the end `result`, with the same result, or `error`, with a problem."
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
        raise InvalidArgumentError("This deletes all data permanently: pass confirm=True to confirm.")
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
            "namespace": Argument(str, "The kind of conversation, chosen by you.", example="support-chat"),
            "session_id": Argument(str),
        },
    )
    list = Operation(
        Conversations.list,
        "GET /ai-conversations",
        "list_conversations",
        doc="List the user's conversations, newest first.",
        page="before",
        arguments={"status": Argument(Literal["open", "closed"])},
    )
    get = Operation(Conversations.get, "GET /ai-conversations/{id:conversation}", "get_conversation")
    close = Operation(Conversations.close, "POST /ai-conversations/{id:conversation}/close", "close_conversation")
    append_user_message = Operation(
        Conversations.append_user_message,
        "POST /ai-conversations/{id:conversation}/user-messages",
        doc="Append a message of the user. With an idempotency key, a retry returns the stored message.",
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
        doc="Append the result of your own tool. Results of an agent's tools are appended by the agent.",
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
        doc="Append the user's and the assistant's message of a turn that you ran yourself."
        "\n\nThe field `idempotencyKey` deduplicates the user's message only, the header both messages.",
        **_APPEND,
        arguments={
            "user_content": Argument(example="What's my refund status?"),
            "assistant": Argument(lambda: body_model("append_assistant_turn")),
        },
    )
    append_messages = Operation(
        Conversations.append_messages,
        "POST /ai-conversations/{id:conversation}/messages",
        note=f"up to {MAX_IMPORTED_MESSAGES:,} messages, all or nothing",
        **_APPEND,
        body="ImportMessages",
    )
    messages = Operation(
        Conversations.messages,
        "GET /ai-conversations/{id:conversation}/messages",
        "get_messages",
        doc="List the newest messages, oldest first. `nextCursor` returns the messages before them."
        "\n\nWith `after` (a `seq`), list the messages after it; `nextCursor` then continues forward.",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
    )
    raw_turns = Operation(
        Conversations.raw_turns,
        "GET /ai-conversations/{id:conversation}/raw-turns",
        "get_raw_turns",
        doc="List messages like `GET /ai-conversations/{id}/messages`, including internal ones, as a model sees them.",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
        omit=("include_hidden",),
    )
    pending = Operation(
        Conversations.pending,
        "GET /ai-conversations/{id:conversation}/pending",
        "get_pending_calls",
        doc="List the tool calls that wait for a decision. Decide them with the `approvals` of a turn.",
    )
    refresh_rolling_summary = Operation(
        Conversations.refresh_rolling_summary,
        "POST /ai-conversations/{id:conversation}/rolling-summary",
        doc="Update the rolling summary up to the newest message, with a model if one is configured."
        "\n\nThe model call is cancelled if the client disconnects.",
        errors=(502, 504),
        retry="turn",
        is_cancelled_on_disconnect=True,
        arguments={"model": Argument(text(200), "The default model, or another that the server allows.")},
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
        doc="Close the user's open conversations without recent messages, and return them.",
        note="`olderThan` is in seconds",
        body="CloseStale",
    )


class TurnRoutes:
    """Turns: send a message and get the model's answer."""

    _group = Group("turns")

    chat = route(
        "POST /ai-conversations/chat",
        stands_for="user.chat`, `chat_stream",
        doc="Send a message and get an answer from a model that uses the user's memories."
        "\n\nContinues the user's open conversation of the namespace, or opens one. The client runs `tools`: a"
        " reply with status `approval` has the calls in `pending`; send their `toolResults` with the same `tools`"
        " and the reply's `conversationId`. The turn is cancelled if the client disconnects.",
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
        doc="Store the user's message, call the model, and store its answer."
        "\n\nThe client runs `tools`: a result with status `approval` has the calls in `pending`; send their"
        " `toolResults` with the same `tools`. The turn is cancelled if the client disconnects; stored messages"
        " remain.",
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
            "name": Argument(text(200), "The name of the space; 'default' if omitted.", example="goals"),
            "metadata": Argument(dict[str, Any]),
            "once": Argument(description="Return the existing space of that name, if there is one."),
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
        doc="Add a fact. By default, its importance is 3, its confidence is 1, and it is valid from now on."
        "\n\nCited messages must be the user's own.",
        note="cited messages must be the user's own",
        status=201,
        errors=(502,),
        arguments={"text": Argument(example="User prefers morning meetings")},
    )
    add_atoms = Operation(
        Memory.add_atoms,
        "POST /ai-memory/spaces/{space_id:space}/atoms/batch",
        note=f"up to {MAX_ATOMS} atoms, all or nothing",
        status=201,
        errors=(502,),
        arguments={"atoms": Argument(lambda: several(body_model("add_atom"), MAX_ATOMS))},
    )
    list_atoms = Operation(
        Memory.list_atoms,
        "GET /ai-memory/spaces/{space_id:space}/atoms",
        doc="List active atoms, newest first: those that have not ended or, with `validAt`, those valid at that time."
        "\n\nWith another `status`, or with `includeSuperseded`, atoms that have ended are listed too.",
        page="before",
        omit=("category",),
        arguments={
            "categories": Argument(
                several(text(200), MAX_CATEGORIES), "The name of a category; may be repeated.", name="category"
            ),
            "status": Argument(AtomStatusIn, "ACTIVE by default."),
        },
        prepare=_merge_categories,
    )
    get_atom = Operation(Memory.get_atom, "GET /ai-memory/atoms/{id:atom}")
    delete_atom = Operation(Memory.delete_atom, "DELETE /ai-memory/atoms/{id:atom}")
    supersede_atom = Operation(
        Memory.supersede_atom,
        "POST /ai-memory/atoms/{id:atom}/supersede",
        doc="Replace an atom with a new one. The old one is valid until the new one's `validFrom` (default: now)."
        "\n\nOmitted fields are copied from the old atom, except its sources and `validTo`. Only the last atom of a"
        " chain can be superseded; otherwise the problem has the id of its successor in `data.supersededBy`.",
        status=201,
        errors=(409, 502),
        arguments={"old_id": Argument(name="id"), "text": Argument(example="User prefers morning meetings")},
    )
    archive_atom = Operation(
        Memory.archive_atom,
        "POST /ai-memory/atoms/{id:atom}/archive",
        doc="Archive an atom: it remains stored, but is recalled only with `includeArchived`.",
    )
    restore_atom = Operation(Memory.restore_atom, "POST /ai-memory/atoms/{id:atom}/restore")
    create_entity = Operation(Memory.create_entity, "POST /ai-memory/spaces/{space_id:space}/entities", status=201)
    search_entities = Operation(
        Memory.search_entities,
        "GET /ai-memory/spaces/{space_id:space}/entities",
        doc="List entities, oldest first. With a query, list those whose name or description match, best first."
        "\n\nEach page is ranked again, so changes in the meantime may move entities between pages.",
        note="without a `query`, like `list_entities`",
        page="offset",
        arguments={
            "query": Argument(
                QueryIn, "A text in a name, alias or description. If empty, entities with the most atoms come first."
            ),
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
        doc="List facts that were valid at some time between `from` and `to`, oldest first, including superseded ones.",
        **_RECALL,
        arguments={"entity_id_or_name": Argument(NameIn), "query": Argument(QueryIn)},
        body="RecallTimelineInput",
    )
    remember_conversation = Operation(
        Memory.remember_conversation,
        "POST /ai-memory/spaces/{space_id:space}/remember-conversation",
        doc="Store each message of a conversation as a dated atom with its source, verbatim and without a model."
        "\n\nRepeating it adds only new messages. Returns all atoms of the conversation.",
        errors=(502,),
        retry="turn",
    )
    create_binding = Operation(
        Memory.create_binding,
        "POST /ai-memory/bindings",
        doc="Create a binding, which turns matching conversations into memories."
        "\n\nBinding conversations of all users (`*`) or of another user needs the role 'app' or 'admin'. Their"
        " memories go to their own spaces with the same names, which are created if missing.",
        note="the role `user` cannot bind `*` or other users",
        tag="bindings",
        status=201,
        errors=(404,),
        arguments={"once": Argument(description="Return an equal binding of this user, if there is one.")},
    )
    list_bindings = Operation(Memory.list_bindings, "GET /ai-memory/bindings", tag="bindings", page="whole")
    get_binding = Operation(
        Memory.get_binding,
        "GET /ai-memory/bindings/{id:binding}",
        doc="Get a binding that this user created, or that matches this user's conversations.",
        tag="bindings",
    )
    update_binding = Operation(
        Memory.update_binding,
        "PATCH /ai-memory/bindings/{id:binding}",
        doc="Change when a binding extracts, pause it or resume it. Its scopes and spaces cannot change.",
        note="only bindings that this user created",
        tag="bindings",
    )
    delete_binding = Operation(
        Memory.delete_binding,
        "DELETE /ai-memory/bindings/{id:binding}",
        note="only bindings that this user created",
        tag="bindings",
        status=204,
    )
    run_extraction_for_conversation = Operation(
        Memory.run_extraction_for_conversation,
        "POST /ai-memory/extractions",
        "run_extraction",
        doc="Extract facts from a conversation now, open or closed. Known facts are not added again."
        "\n\nQueues jobs for every matching binding, or for `memorySpaceId` without a binding.",
        note="returns 202 and the jobs",
        tag="jobs",
        status=202,
        errors=(404,),
        arguments={"space_id": Argument(IdIn, name="memory_space_id")},
    )
    wait_for_extraction = Operation(
        Memory.wait_for_extraction,
        "POST /ai-memory/extractions/wait",
        doc="Wait until all closed conversations of the user are extracted, or until the timeout.",
        note=f"up to {MAX_WAIT_SECONDS:.0f} seconds; see `done`",
        tag="jobs",
        retry="read",
        is_cancelled_on_disconnect=True,
        arguments={"timeout": Argument(_WAIT, "The timeout in seconds.", default=MAX_WAIT_SECONDS)},
        result=ExtractionWaited,
    )
    list_jobs = Operation(
        Memory.list_jobs,
        "GET /ai-memory/jobs",
        doc="List the user's jobs, newest first.",
        tag="jobs",
        page="before",
        arguments={"status": Argument(JobStatus), "conversation_id": Argument(text(200))},
        prepare=_default_limit(DEFAULT_JOB_LIMIT),
    )
    get_job = Operation(Memory.get_job, "GET /ai-memory/jobs/{id:job}", tag="jobs")
    retry_job = Operation(Memory.retry_job, "POST /ai-memory/jobs/{id:job}/retry", tag="jobs")
    cancel_job = Operation(Memory.cancel_job, "POST /ai-memory/jobs/{id:job}/cancel", tag="jobs")


class WorkingContextRoutes:
    """`user.working_context`, without arguments that cannot be sent to a server."""

    _group = Group("working context", WorkingContextBuilder, "user.working_context")

    build = Operation(
        WorkingContextBuilder.build,
        "POST /ai-working-context",
        "build_working_context",
        doc="Build the context for a model: the rolling summary, always-on memories, recalled memories and recent"
        " turns, within a token budget."
        "\n\nIf it exceeds the budget, the oldest turns are removed first, then the weakest recalled memories.",
        errors=(404, 502),
        retry="read",
        is_cancelled_on_disconnect=True,
        omit=("count_tokens",),
        body=BuildWorkingContext,
    )


class AgentRoutes:
    """Agents from specs, and agents with routes."""

    _group = Group("agents", access="caller")

    list_agents = route(
        "GET /ai-agents",
        stands_for="user.agents.list",
        doc="List all agents, those from specs first.",
        note="includes agents with routes; `spec` is not sent to the role `user`",
        result=Page[AgentWire],
    )
    get_agent = route(
        "GET /ai-agents/{name:agent}", stands_for="user.agents.get", doc="Get an agent.", result=AgentWire
    )
    invoke_agent = route(
        "POST /ai-agents/{name:agent}/invoke",
        stands_for="user.agents.invoke`, `invoke_stream",
        doc="Run one turn of an agent from a spec, in a new conversation or in `conversationId`."
        "\n\nThe turn is cancelled if the client disconnects; stored messages remain.",
        errors=_TURN_ERRORS,
        retry="turn",
        headers=("accept",),
        body=InvokeAgent,
        result=TurnOutcomeWire,
        events={**DELTA_EVENTS, "result": TurnOutcomeWire},
        events_doc="The result of the turn. As a stream: its deltas, and at the end `result` or `error`.",
    )
    respond = route(
        "POST /ai-agents/{name:agent}/respond",
        stands_for="agent.respond`, `respond_stream",
        doc="Send a message to an agent with routes, in a new session or in `sessionId`."
        "\n\nWith `If-Match`, the request fails with 412 if the session has another ETag. The turn is cancelled if the"
        " client disconnects.",
        note="needs a `message` or `approvals`; `history` is not allowed for the role `user`",
        errors=(*_TURN_ERRORS, 412),
        retry="turn",
        headers=("if_match", "accept"),
        body=RespondTo,
        result=AgentResponseWire,
        events={"delta": AgentDelta, "result": AgentResponseWire},
        events_doc="The answer. As a stream: the events `delta`, and at the end `result` or `error`.",
    )
    get_diagram = route(
        "GET /ai-agents/{name:agent}/diagram",
        stands_for="agent.to_mermaid",
        doc="Draw the routes of an agent as a Mermaid diagram. With a session, its current state is highlighted.",
        extra={"session_id": (None, Argument(text(MAX_SESSION_ID_LENGTH, 1) | None))},
    )
    create_session = route(
        "POST /ai-agents/{name:agent}/sessions",
        stands_for="persistence.create_session",
        doc="Create a session. `respond` with a new id also creates it. Ids are unique among all users of the app.",
        status=201,
        errors=(409,),
        body=CreateSession,
        result=SessionWire,
    )
    list_sessions = route(
        "GET /ai-agents/{name:agent}/sessions",
        stands_for="persistence.get_user_sessions",
        doc="List the user's sessions with this agent, newest first. A page may have fewer items than `limit`, even if"
        " more pages follow.",
        page="offset",
        extra={"status": (None, Argument(SessionStatus | None))},
        result=SessionWire,
    )
    delete_session = route(
        "DELETE /ai-agents/{name:agent}/sessions/{id:session}",
        stands_for="persistence.delete_session",
        doc="Delete a session. Its messages remain in the user's log, if the agent stores its sessions in Tellback.",
        status=204,
        errors=(412,),
        headers=("if_match",),
        arguments={"id": _SESSION_ID},
    )
    get_session_messages = route(
        "GET /ai-agents/{name:agent}/sessions/{id:session}/messages",
        stands_for="persistence.get_session_messages",
        doc="List the newest messages of a session, oldest first. `nextCursor` returns the messages before them.",
        page="newest",
        arguments={"id": _SESSION_ID},
        result=SessionMessageWire,
    )
    load_session_history = route(
        "GET /ai-agents/{name:agent}/sessions/{id:session}/history",
        stands_for="persistence.load_session_history",
        doc="List the events of the last `limit` messages of a session.",
        arguments={"id": _SESSION_ID},
        extra={
            "limit": (
                None,
                Argument(
                    Annotated[int, Field(ge=1)] | None,
                    "The maximum number of messages.",
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
        doc="Get a session. Send its `ETag` as `If-None-Match` here, or as `If-Match` when changing it.",
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
    """Streams of changes."""

    _group = Group("events", access="caller")

    follow_events = route(
        "GET /ai-events",
        stands_for="tb.events.subscribe",
        doc="Stream the user's changes as server-sent events, from now on or after a position."
        "\n\nAn event's name is its type, its id is the position. The first event is `ready`. To resume without"
        " gaps or duplicates, send `Last-Event-ID`, as browsers do, or `after`."
        " Admins can follow all users of their tenant and app.",
        note="`everyone=true`: *admin*",
        headers=("last",),
        extra={
            "after": (None, Argument(text(100) | None, "The position of an event, or 'latest'.", example="latest")),
            "types": (
                None,
                Argument(text(5_000) | None, "Comma-separated event types.", example="message.appended,atom.added"),
            ),
            "everyone": _EVERYONE,
        },
        events=FEED_EVENTS,
        events_doc="The event `ready`, then changes named by their type.",
    )
    follow_job = route(
        "GET /ai-memory/jobs/{id:job}/events",
        stands_for="user.memory.follow_job",
        doc="Stream the job on each change as the event `job`, until it is finished.",
        events={"job": JobWire},
        events_doc="The job after each change.",
    )


class AdminOperations:
    """`user.admin`: erasure and usage of the caller's user or, for admins, of another user."""

    _group = Group("admin", Admin, "user.admin", access="caller")

    delete_user_data = Operation(
        Admin.delete_user_data,
        "POST /ai-admin/delete",
        doc="Permanently delete all data of a user. Repeating it is harmless.",
        note="`confirm` must be true; `userId` of another user: *admin*",
        errors=(507,),
        retry="safe",
        arguments={
            "user_id": Argument(text(200), "The user to delete; the caller's user by default."),
            "confirm": Argument(Literal[True], "Confirms the deletion.", default=REQUIRED),
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
        doc="Get the total usage of model calls for memory, by user, purpose and model.",
        note="`userId` or `everyone=true`: *admin*",
        arguments=_PERIOD,
        extra={"user_id": _OTHER_USER, "everyone": _EVERYONE},
    )


class AppOperations:
    """Operations of the client itself: usage of all users of an app."""

    _group = Group("admin", Admin, "tb")

    usage = Operation(
        Admin.usage, "GET /ai-admin/usage", page="before", fixed_query={"everyone": "true"}, is_mounted=False
    )
    usage_totals = Operation(
        Admin.usage_totals, "GET /ai-admin/usage/totals", fixed_query={"everyone": "true"}, is_mounted=False
    )


class AdminRoutes:
    """The export of a user, and operations on all users of an app that are processed in pages."""

    _group = Group("admin", access="admin", retry="safe")

    export_user_data = route(
        "GET /ai-admin/export",
        stands_for="user.admin.export_user_data",
        doc="Export all data of a user. Field names are those of the store, in snake case.",
        note="`userId` of another user: *admin*",
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
        doc="Close conversations of all users of the app without recent messages."
        " Repeat the request while there is a `nextCursor`.",
        body=CloseEveryonesStale,
        result=StaleClosed,
    )
    replay_conversations = route(
        "POST /ai-admin/replay",
        stands_for="tb.replay",
        doc="Queue conversations of the app for extraction. Repeat the request while there is a `nextCursor`.",
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
    """`client.bindings`: the bindings of all users of an app."""

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
        doc="Create an API key for your tenant and app. The response contains its secret, which is not shown again."
        "\n\nA key of the role 'user' needs a `userId`, others must not have one. If your own credential has an expiry"
        " or a rate limit, the new key has the same by default, and cannot exceed them.",
        note="only this response contains the secret",
        status=201,
        retry="once",  # a repeated request would create a second key with a lost secret
        arguments={
            "name": Argument(text(200), example="Maya's phone"),
            "user_id": Argument(text(200), example="maya"),
            "rate_limit": Argument(_RATE, "Requests per minute; the server's limit by default."),
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
"""All operations by name."""


def body_model(name: str) -> type[InputModel]:
    """Return the body model of an operation."""
    found = OPERATIONS[name].body_model
    assert found is not None
    return found
