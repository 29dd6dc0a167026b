"""The table of the REST operations: routes, OpenAPI, the client's methods, tests and the reference come from it.

A new operation is one entry here, one method of a handle and one test. The classes group what one handle of the client
has; the client's handles inherit them. It imports the handles for their methods' signatures, and is imported by
`server` and `client` alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tellback import validation
from tellback.admin import Admin
from tellback.api_keys import AppKeys
from tellback.conversations import Conversations
from tellback.errors import InvalidArgumentError
from tellback.jobs.handle import AppJobs
from tellback.memory.bindings import AppBindings
from tellback.memory.memory import DEFAULT_ENTITY_LIMIT, Memory
from tellback.memory.working_context import WorkingContextBuilder
from tellback.types.jobs import JobStatus
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
from tellback.wire.base import AtomStatusIn, IdIn, InputModel, NameIn, QueryIn
from tellback.wire.operation import Operation, route
from tellback.wire.values import ExtractionWaited, Replayed, StaleClosed

Arguments = dict[str, Any]

_TYPE = Argument(description="Of all types, if not said.")
_SEQ = Argument(Annotated[int, Field(ge=0, le=2**62)], "The `seq` of a message.")
_WAIT = Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)]
_RATE = Annotated[int, Field(ge=1, le=MAX_RATE_LIMIT)]
_SINCE = Argument(description="From this moment on.")
_UNTIL = Argument(description="Before this moment.")
_OTHER_USER = Argument(text(200) | None, "Another user's: that needs the role 'admin'.")
_EVERYONE = Argument(bool, "Of all users of the app: that needs the role 'admin'.")


def _merge_categories(arguments: Arguments) -> Arguments:
    category = arguments["category"]
    names = [] if category is None else [category if isinstance(category, str) else encode_category(category)["name"]]
    return {**arguments, "categories": [*names, *(arguments["categories"] or ())] or None}


def _search_arguments(arguments: Arguments) -> Arguments:
    limit = DEFAULT_ENTITY_LIMIT if arguments["limit"] is None else arguments["limit"]
    return {**arguments, "query": arguments["query"] or "", "limit": limit}


def _resolve_usage(arguments: Arguments) -> Arguments:
    usage = validation.parse_usage(arguments["usage"], arguments["provider"], arguments["model"])
    return {**arguments, "usage": usage}


def _require_confirmation(arguments: Arguments) -> Arguments:
    if arguments["confirm"] is not True:
        raise InvalidArgumentError("All data would be deleted for good: pass confirm=True if that is meant.")
    return arguments


class MemoryOperations:
    """`user.memory`: spaces, atoms, entities, recall, bindings and jobs."""

    _tag = "memory"
    _handle = Memory

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
    get_space = Operation(Memory.get_space, "GET /ai-memory/spaces/{id:space}", doc="A space.")
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
    get_atom = Operation(Memory.get_atom, "GET /ai-memory/atoms/{id:atom}", doc="An atom, whatever its status.")
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
    remember_conversation = Operation(
        Memory.remember_conversation,
        "POST /ai-memory/spaces/{space_id:space}/remember-conversation",
        doc="Remember a conversation word for word, without any model: each message becomes a dated, cited atom."
        "\n\nDoing it again adds only what was said since. Gives all of its atoms.",
        errors=(502,),
        retry="turn",
    )
    create_entity = Operation(
        Memory.create_entity,
        "POST /ai-memory/spaces/{space_id:space}/entities",
        status=201,
        arguments={"description": Argument(str)},
    )
    search_entities = Operation(
        Memory.search_entities,
        "GET /ai-memory/spaces/{space_id:space}/entities",
        doc="All entities, the oldest first; with a query, those whose names or description match, the best first."
        "\n\nWhat matches is ranked anew for each page: what changes meanwhile may move an entity to another page.",
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
        doc="The entity called that, by its own name or by an alias; case, accents and spacing do not matter.",
        note="by `name` and `type`; 404 if there is none",
        arguments={"type": _TYPE, "name": Argument(text(500), default=REQUIRED)},
        missing=("entity", ("name",)),
    )
    get_entity = Operation(
        Memory.get_entity,
        "GET /ai-memory/entities/{id:entity}",
        doc="An entity, also one that was merged: `mergedInto` names the one that stands for it.",
    )
    merge_entities = Operation(
        Memory.merge_entities,
        "POST /ai-memory/entities/{id:entity}/merge",
        doc="Let this entity stand for another: atoms about the alias become atoms about it, and the names are kept.",
        arguments={"canonical_id": Argument(name="id")},
        body="MergeEntity",
    )
    recall_by_topic = Operation(
        Memory.recall_by_topic,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-topic",
        errors=(502,),
        retry="read",
        is_cancelled_on_disconnect=True,
        body="RecallByTopicInput",
    )
    recall_by_entity = Operation(
        Memory.recall_by_entity,
        "POST /ai-memory/spaces/{space_id:space}/recall-by-entity",
        doc="Everything about an entity, the newest first. A name that no entity has recalls what mentions it.",
        retry="read",
        body="RecallByEntityInput",
    )
    recall_timeline = Operation(
        Memory.recall_timeline,
        "POST /ai-memory/spaces/{space_id:space}/recall-timeline",
        doc="How things changed: what held at some moment from `from` to `to`, the oldest first, even if it is over.",
        errors=(502,),
        retry="read",
        is_cancelled_on_disconnect=True,
        arguments={"entity_id_or_name": Argument(NameIn), "query": Argument(QueryIn)},
        body="RecallTimelineInput",
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
    get_binding = Operation(
        Memory.get_binding,
        "GET /ai-memory/bindings/{id:binding}",
        doc="A binding that this user made, or that is about this user's conversations.",
        tag="bindings",
    )
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
        doc="End a binding of this user, for everyone it is about; memories it made stay.",
        note="of those this user made",
        tag="bindings",
        status=204,
    )
    run_extraction_for_conversation = Operation(
        Memory.run_extraction_for_conversation,
        "POST /ai-memory/extractions",
        name="run_extraction",
        doc="Extract a conversation now, open or closed, as often as you like: what is known is not added again."
        "\n\nEvery enabled binding that matches gives its jobs; or name a space, and no binding is needed.",
        note="202 with its jobs",
        tag="jobs",
        status=202,
        errors=(404,),
        arguments={"space_id": Argument(IdIn, name="memory_space_id")},
    )
    list_jobs = Operation(
        Memory.list_jobs,
        "GET /ai-memory/jobs",
        doc="The user's jobs, the newest first.",
        tag="jobs",
        page="before",
        arguments={"status": Argument(JobStatus), "conversation_id": Argument(text(200))},
        prepare=lambda arguments: {**arguments, "limit": 100 if arguments["limit"] is None else arguments["limit"]},
    )
    get_job = Operation(
        Memory.get_job, "GET /ai-memory/jobs/{id:job}", doc="A job of the user, as it stands now.", tag="jobs"
    )
    retry_job = Operation(Memory.retry_job, "POST /ai-memory/jobs/{id:job}/retry", tag="jobs")
    cancel_job = Operation(Memory.cancel_job, "POST /ai-memory/jobs/{id:job}/cancel", tag="jobs")
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


class WorkingContextRoutes:
    """`user.working_context`, without what cannot be sent to a server."""

    _tag = "working context"
    _handle = WorkingContextBuilder

    build = Operation(
        WorkingContextBuilder.build,
        "POST /ai-working-context",
        name="build_working_context",
        doc="Put together the rolling summary, always-on memories, recalled memories and recent turns, within a token"
        " budget.\n\nOver budget, the oldest turns go first, then the weakest memories that were recalled.",
        errors=(404, 502),
        retry="read",
        is_cancelled_on_disconnect=True,
        omit=("count_tokens",),
        body=BuildWorkingContext,
    )


class ConversationOperations:
    """`user.conversations`: the log."""

    _tag = "conversations"
    _handle = Conversations

    create = Operation(
        Conversations.create,
        "POST /ai-conversations",
        name="create_conversation",
        doc="Open a conversation.",
        status=201,
        arguments={
            "namespace": Argument(str, "Your name for this kind of conversation.", example="support-chat"),
            "session_id": Argument(str),
        },
    )
    find = Operation(
        Conversations.find,
        "GET /ai-conversations/open",
        name="find_conversation",
        doc="The newest open conversation of a namespace and session.",
        note="by `namespace` and `sessionId`; 404 if there is none",
        errors=(404,),
        missing=("open conversation", ("session_id", "namespace")),
    )
    find_or_create = Operation(
        Conversations.find_or_create, "POST /ai-conversations/find-or-create", name="find_or_create_conversation"
    )
    get = Operation(
        Conversations.get,
        "GET /ai-conversations/{id:conversation}",
        name="get_conversation",
        doc="A conversation.",
    )
    list = Operation(
        Conversations.list,
        "GET /ai-conversations",
        name="list_conversations",
        doc="The user's conversations, the newest first.",
        page="before",
        arguments={"status": Argument(Literal["open", "closed"])},
    )
    close = Operation(Conversations.close, "POST /ai-conversations/{id:conversation}/close", name="close_conversation")
    close_stale = Operation(
        Conversations.close_stale,
        "POST /ai-conversations/close-stale",
        name="close_stale_conversations",
        doc="Close the user's open conversations in which nothing happened for that long, and give them.",
        note="with `olderThan` in seconds: this user's",
        body="CloseStale",
    )
    append_user_message = Operation(
        Conversations.append_user_message,
        "POST /ai-conversations/{id:conversation}/user-messages",
        doc="Append what the person said. With an idempotency key, a retry gives the message that was stored first.",
        status=201,
        errors=(409,),
        retry="own",
        arguments={"content": Argument(example="Hi, where's my refund?")},
    )
    append_assistant_turn = Operation(
        Conversations.append_assistant_turn,
        "POST /ai-conversations/{id:conversation}/assistant-turns",
        status=201,
        errors=(409,),
        arguments={"content": Argument(example="Looking it up now...")},
        prepare=_resolve_usage,
    )
    append_tool_result = Operation(
        Conversations.append_tool_result,
        "POST /ai-conversations/{id:conversation}/tool-results",
        doc="Append what a tool of yours gave; what an agent's tools give is for the agent to append.",
        status=201,
        errors=(409,),
        arguments={"content": Argument(example="shipped")},
    )
    append_system_message = Operation(
        Conversations.append_system_message,
        "POST /ai-conversations/{id:conversation}/system-messages",
        status=201,
        errors=(409,),
        arguments={"content": Argument(example="The user is on the free plan.")},
    )
    append_turn = Operation(
        Conversations.append_turn,
        "POST /ai-conversations/{id:conversation}/turns",
        doc="Append both sides of a turn that you ran yourself."
        "\n\nWith `idempotencyKey` the user's message is stored once, and the assistant's is a new one each time; with"
        " the header both are.",
        status=201,
        errors=(409,),
        arguments={
            "user_content": Argument(example="What's my refund status?"),
            "assistant": Argument(lambda: body_model("append_assistant_turn")),
        },
    )
    message = Operation(
        Conversations.message,
        "GET /ai-conversations/messages/{message_id:message}",
        name="get_message",
        doc="One message by its id: what a citation points to.",
    )
    pending = Operation(
        Conversations.pending,
        "GET /ai-conversations/{id:conversation}/pending",
        name="get_pending_calls",
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
    append_messages = Operation(
        Conversations.append_messages,
        "POST /ai-conversations/{id:conversation}/messages",
        doc="Append many messages in one transaction, for imports: all are stored, or none."
        "\n\nA user's message begins a turn.",
        note=f"up to {MAX_IMPORTED_MESSAGES:,}, all or none",
        status=201,
        errors=(409,),
        body="ImportMessages",
    )
    messages = Operation(
        Conversations.messages,
        "GET /ai-conversations/{id:conversation}/messages",
        name="get_messages",
        doc="The newest messages, oldest first: what a chat shows. `nextCursor` leads to those before them."
        "\n\nWith `after` (a `seq`) they are those that follow it, and `nextCursor` leads on from there.",
        note="`before` and `after` are a `seq`",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
    )
    raw_turns = Operation(
        Conversations.raw_turns,
        "GET /ai-conversations/{id:conversation}/raw-turns",
        name="get_raw_turns",
        page="newest",
        arguments={"before": _SEQ, "after": _SEQ},
        omit=("include_hidden",),
    )


class AdminOperations:
    """`user.admin`: erasure and usage, of the caller's user or, for admins, of another."""

    _tag = "admin"
    _handle = Admin

    delete_user_data = Operation(
        Admin.delete_user_data,
        "POST /ai-admin/delete",
        doc="Delete all that is kept of a user, for good. Deleting again is harmless.",
        note="`confirm` must be true; others' with `userId`: *admin*",
        errors=(507,),
        access="caller",
        retry="safe",
        arguments={
            "user_id": Argument(text(200), "The credential's own user, if not given."),
            "confirm": Argument(Literal[True], "That it is meant.", default=REQUIRED),
        },
        prepare=_require_confirmation,
    )
    usage = Operation(
        Admin.usage,
        "GET /ai-admin/usage",
        name="get_usage",
        doc="What model calls for memory cost, call by call and the newest first.",
        note="`userId` or `everyone=true`: *admin*",
        access="caller",
        page="before",
        arguments={"since": _SINCE, "until": _UNTIL, "job_id": Argument(text(200))},
        extra={"user_id": (None, _OTHER_USER), "everyone": (False, _EVERYONE)},
    )
    usage_totals = Operation(
        Admin.usage_totals,
        "GET /ai-admin/usage/totals",
        name="get_usage_totals",
        doc="What model calls for memory cost, added up by user, purpose and model.",
        note="`userId` or `everyone=true`: *admin*",
        access="caller",
        arguments={"since": _SINCE, "until": _UNTIL},
        extra={"user_id": (None, _OTHER_USER), "everyone": (False, _EVERYONE)},
    )


class AppOperations:
    """What the client itself has: usage of all users of an app, for admins."""

    _tag = "admin"
    _handle = Admin

    usage = Operation(
        Admin.usage, "GET /ai-admin/usage", page="before", fixed_query={"everyone": "true"}, is_mounted=False
    )
    usage_totals = Operation(
        Admin.usage_totals, "GET /ai-admin/usage/totals", fixed_query={"everyone": "true"}, is_mounted=False
    )


class AdminRoutes:
    """What the client calls in ways of its own: an export into a file, and what goes on page by page."""

    _tag = "admin"

    export_user_data = route(
        "GET /ai-admin/export",
        doc="All that is kept of a user. Its fields are named as in the store.",
        note="`format` is `json` or `zip`; others' with `userId`: *admin*",
        stands_for="user.admin.export_user_data",
        errors=(507,),
        access="caller",
        extra={
            "user_id": (None, _OTHER_USER),
            "format": ("json", Argument(Literal["json", "zip"])),
            "include_vectors": (False, Argument(bool)),
        },
    )
    close_everyones_stale = route(
        "POST /ai-admin/close-stale",
        doc="Close the app's conversations in which nothing happened for so long. Ask again while there is a"
        " `nextCursor`.",
        stands_for="rc.close_stale",
        access="admin",
        retry="safe",
        body=CloseEveryonesStale,
        result=StaleClosed,
    )
    replay_conversations = route(
        "POST /ai-admin/replay",
        doc="Queue the app's conversations to be extracted again. Ask again while there is a `nextCursor`.",
        stands_for="rc.replay",
        status=202,
        access="admin",
        retry="safe",
        body=ReplayConversations,
        result=Replayed,
    )


class JobOperations:
    """`client.jobs`: the jobs of all users of an app."""

    _tag = "admin"
    _handle = AppJobs

    list = Operation(
        AppJobs.list,
        "GET /ai-admin/jobs",
        name="list_everyones_jobs",
        doc="Jobs of all users of the app, or of one, the newest first.",
        access="admin",
        page="before",
        arguments={"conversation_id": Argument(text(200)), "user_id": Argument(text(200))},
    )
    get = Operation(
        AppJobs.get,
        "GET /ai-admin/jobs/{id:job}",
        name="get_anyones_job",
        doc="A job of any user of the app.",
        access="admin",
    )
    retry = Operation(
        AppJobs.retry,
        "POST /ai-admin/jobs/{id:job}/retry",
        name="retry_anyones_job",
        doc="Queue a job that is over again, as if it were new.",
        access="admin",
        retry="safe",
    )
    cancel = Operation(
        AppJobs.cancel,
        "POST /ai-admin/jobs/{id:job}/cancel",
        name="cancel_anyones_job",
        doc="End a job that has not ended yet.",
        access="admin",
        retry="safe",
    )


class BindingOperations:
    """`client.bindings`: the bindings of an app, whoever made them."""

    _tag = "admin"
    _handle = AppBindings

    list = Operation(
        AppBindings.list,
        "GET /ai-admin/bindings",
        name="list_everyones_bindings",
        doc="The bindings of the app, whoever made them, the oldest first.",
        access="admin",
        page="whole",
    )
    get = Operation(
        AppBindings.get,
        "GET /ai-admin/bindings/{id:binding}",
        name="get_anyones_binding",
        doc="A binding of the app.",
        access="admin",
    )
    update = Operation(
        AppBindings.update,
        "PATCH /ai-admin/bindings/{id:binding}",
        name="update_anyones_binding",
        doc="Change when a binding extracts, or pause it.",
        access="admin",
        retry="safe",
        body=lambda: body_model("update_binding"),
    )
    delete = Operation(
        AppBindings.delete,
        "DELETE /ai-admin/bindings/{id:binding}",
        name="delete_anyones_binding",
        access="admin",
        status=204,
        retry="safe",
    )


class KeyOperations:
    """`client.keys`: the API keys of an app."""

    _tag = "admin"
    _handle = AppKeys

    create = Operation(
        AppKeys.create,
        "POST /ai-admin/keys",
        name="create_key",
        doc="Make an API key for your tenant and app. Its secret is in the answer, and nowhere else."
        "\n\nOne of the role 'user' is fixed to `userId`, others take none. A credential that ends, or has a limit of"
        " its own, makes keys that end with it, and have its limit at most.",
        note="the secret is in the answer, and nowhere else",
        status=201,
        access="admin",
        retry="once",  # the secret of a key that was made twice would be lost, and the key would not
        arguments={
            "name": Argument(text(200), example="Maya's phone"),
            "user_id": Argument(text(200), example="maya"),
            "rate_limit": Argument(_RATE, "Requests a minute; by default what the server has for all."),
        },
    )
    list = Operation(
        AppKeys.list,
        "GET /ai-admin/keys",
        name="list_keys",
        doc="The keys of your tenant and app, also revoked and expired ones, the oldest first.",
        access="admin",
        page="whole",
    )
    get = Operation(
        AppKeys.get,
        "GET /ai-admin/keys/{id:API key}",
        name="get_key",
        doc="A key of your tenant and app.",
        access="admin",
    )
    revoke = Operation(
        AppKeys.revoke, "DELETE /ai-admin/keys/{id:API key}", name="revoke_key", access="admin", retry="safe"
    )


def body_model(name: str) -> type[InputModel]:
    """The model of the body of an operation."""
    found = OPERATIONS[name].body_model
    assert found is not None
    return found


GROUPS: tuple[type[Any], ...] = (
    ConversationOperations,
    MemoryOperations,
    WorkingContextRoutes,
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
