"""The REST API on each kind of store: memory from a conversation to its erasure, and isolation."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from tellback import Tellback
from tellback.server import create_app
from tellback.user import User
from tellback.wire.base import camel
from tellback.wire.operation import Operation
from tellback.wire.operations import OPERATIONS
from tests.support.rest import RestClient, expect_json, list_all, rest_client

# The server behaves the same on a file and in memory, so the file is enough.
pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


async def test_a_conversation_is_remembered_recalled_and_corrected(tb: Tellback) -> None:
    async with rest_client(tb, "maya", role="app", tenant="acme") as client:
        space = expect_json(await client.post("/ai-memory/spaces", json={"name": "life"}), 201)["id"]
        scope = {"conversationScope": {"namespace": "chat", "userId": "*"}, "memorySpaceIds": [space]}
        expect_json(await client.post("/ai-memory/bindings", json=scope), 201)
        conversation = expect_json(await client.post("/ai-conversations", json={"namespace": "chat"}), 201)["id"]
        turn = {"userContent": "I moved to Lisbon.", "assistant": {"content": "How do you like it?"}}
        turn_response = expect_json(await client.post(f"/ai-conversations/{conversation}/turns", json=turn), 201)
        assert expect_json(await client.post(f"/ai-conversations/{conversation}/close"))["status"] == "closed"
        await tb.jobs.drain(timeout=30)
        assert expect_json(await client.post("/ai-memory/extractions/wait", json={})) == {"done": True}
        [job] = await list_all(client, "/ai-memory/jobs")
        assert (job["status"], job["memorySpaceId"], job["conversationId"]) == ("done", space, conversation)

        path = f"/ai-memory/spaces/{space}"
        found = expect_json(
            await client.post(f"{path}/recall-by-topic", json={"query": "Where does the user live? Lisbon?"})
        )
        atom = next(hit["atom"] for hit in found["hits"] if "Lisbon" in hit["atom"]["text"])
        assert (atom["userId"], atom["sourceConversationId"]) == ("maya", conversation)
        assert turn_response["userMessage"]["id"] in atom["sourceMessageIds"]
        [cited] = atom["sourceMessageIds"]
        assert expect_json(await client.get(f"/ai-conversations/messages/{cited}"))["conversationId"] == conversation

        recall_body = {"memorySpaceId": space, "recallQuery": "Where does the user live? Lisbon?"}
        context = expect_json(await client.post("/ai-working-context", json=recall_body))
        assert "Lisbon" in context["contextBlock"]
        assert atom["id"] in [each["id"] for each in context["atomsUsed"]]

        lisbon, lisboa = [
            expect_json(await client.post(f"{path}/entities", json={"type": "PLACE", "canonicalName": name}), 201)["id"]
            for name in ("Lisbon", "Lisboa")
        ]
        moved = {
            "text": "User moved from Lisbon to Porto.",
            "category": {"name": "home", "kind": "FACT"},
            "entityIds": [lisboa],
            "sourceConversationId": conversation,
            "sourceMessageIds": [cited],
        }
        new = expect_json(await client.post(f"/ai-memory/atoms/{atom['id']}/supersede", json=moved), 201)
        assert (new["supersedes"], new["sourceMessageIds"]) == (atom["id"], [cited])
        merged = expect_json(await client.post(f"/ai-memory/entities/{lisbon}/merge", json={"aliasId": lisboa}))
        assert (merged["id"], merged["aliases"], merged["atomCount"]) == (lisbon, ["Lisboa"], 1)
        entity_result = expect_json(await client.post(f"{path}/recall-by-entity", json={"entityIdOrName": "lisboa"}))
        assert [hit["atom"]["id"] for hit in entity_result["hits"]] == [new["id"]]
        timeline = expect_json(await client.post(f"{path}/recall-timeline", json={"query": "Lisbon"}))
        ids = [hit["atom"]["id"] for hit in timeline["hits"]]
        assert ids.index(atom["id"]) < ids.index(new["id"])

    export = await tb.user("maya", tenant_id="acme").admin.export_user_data()
    assert {atom["id"] for atom in export["atoms"]} >= {atom["id"], new["id"]}
    assert {entity["id"] for entity in export["entities"]} == {lisbon, lisboa}


@pytest.mark.parametrize("path", ["ai-conversations/{id}/run-turn", "ai-agents/{id}/invoke"])
async def test_an_idempotency_key_works_for_paths_of_any_length(tb: Tellback, path: str) -> None:
    id = "".join(
        hashlib.sha512(str(number).encode()).hexdigest() for number in range(50)
    )  # random, because databases compress texts
    async with rest_client(tb, "maya") as client:
        answer = await client.post("/" + path.format(id=id), json={}, headers={"Idempotency-Key": "k-1"})
    assert answer.status_code == 422, answer.text


async def test_names_too_wide_for_an_index_are_rejected_or_found(tb: Tellback) -> None:
    wide = "".join(
        chr(0x10000 + int(hashlib.sha256(str(number).encode()).hexdigest()[:4], 16)) for number in range(500)
    )
    body = {"namespace": wide[:200], "sessionId": wide}
    async with rest_client(tb, "maya") as client:
        answers = [await client.post("/ai-conversations/find-or-create", json=body) for _ in range(2)]
    assert {each.status_code for each in answers} in ({200}, {422}), answers[0].text
    assert len({each.json().get("id") for each in answers}) == 1


async def test_every_paged_list_ends_and_repeats_no_item(tb: Tellback) -> None:
    maya = tb.user("maya")
    spaces = [await maya.memory.create_space(f"space {n}") for n in range(5)]
    atoms = await maya.memory.add_atoms(spaces[0].id, [{"text": f"Fact {n}"} for n in range(5)])
    conversations = [await maya.conversations.create("chat") for _ in range(5)]
    messages = [await maya.conversations.append_user_message(conversations[0].id, f"Line {n}") for n in range(5)]
    bindings = [await maya.memory.create_binding({"namespace": f"n{n}"}, [spaces[0].id]) for n in range(5)]
    for space in spaces[1:]:
        await maya.memory.run_extraction_for_conversation(conversations[0].id, space_id=space.id)
    jobs = await maya.memory.list_jobs()
    async with rest_client(tb) as client:
        lists: list[tuple[str, list[Any]]] = [
            ("/ai-memory/spaces", spaces),
            (f"/ai-memory/spaces/{spaces[0].id}/atoms", atoms[::-1]),
            ("/ai-conversations", conversations[::-1]),
            ("/ai-memory/bindings", bindings),
            ("/ai-memory/jobs", jobs),
        ]
        for path, created in lists:
            for limit in (1, 2, 5, 6):
                found = await list_all(client, path, limit=limit)
                assert [each["id"] for each in found] == [each.id for each in created], path
        path, last_cursor = f"/ai-conversations/{conversations[0].id}/messages", None
        seen: list[str] = []
        while True:
            page = expect_json(
                await client.get(path, params={"limit": 2, **({} if last_cursor is None else {"cursor": last_cursor})})
            )
            seen = [each["id"] for each in page["items"]] + seen
            last_cursor = page["nextCursor"]
            if last_cursor is None:
                break
        assert seen == [message.id for message in messages]


async def made_by_maya(tb: Tellback) -> dict[str, str]:
    """Create one object of every kind; return the ids by the letters of the paths below."""
    maya = tb.user("maya", tenant_id="acme", app_id="web")
    space = await maya.memory.create_space("secret")
    entity = await maya.memory.create_entity(space.id, "PERSON", "Secret")
    other = await maya.memory.create_entity(space.id, "PERSON", "Other")
    atom = await maya.memory.add_atom(space.id, "Secret", entity_ids=[entity.id])
    conversation = await maya.conversations.create("secret", session_id="secret")
    message = await maya.conversations.append_user_message(conversation.id, "Secret")
    binding = await maya.memory.create_binding({"namespace": "secret", "user_id": "maya"}, [space.id])
    run = await maya.memory.run_extraction_for_conversation(conversation.id, space_id=space.id)
    return {
        "s": space.id,
        "e": entity.id,
        "f": other.id,
        "a": atom.id,
        "c": conversation.id,
        "m": message.id,
        "b": binding.id,
        "j": str(run.id),
    }


async def create_own_objects(client: RestClient) -> dict[str, str]:
    space = expect_json(await client.post("/ai-memory/spaces", json={"name": "own"}), 201)["id"]
    entity = {"type": "PERSON", "canonicalName": "Own"}
    conversation = expect_json(await client.post("/ai-conversations", json={"namespace": "own"}), 201)["id"]
    line = {"content": "Own"}
    return {
        "S": space,
        "E": expect_json(await client.post(f"/ai-memory/spaces/{space}/entities", json=entity), 201)["id"],
        "A": expect_json(await client.post(f"/ai-memory/spaces/{space}/atoms", json={"text": "Own"}), 201)["id"],
        "C": conversation,
        "M": expect_json(await client.post(f"/ai-conversations/{conversation}/user-messages", json=line), 201)["id"],
    }


LETTERS = {
    "space": "s",
    "entity": "e",
    "atom": "a",
    "conversation": "c",
    "message": "m",
    "binding": "b",
    "job": "j",
}
"""The letter of each kind: lower case for another user's id, upper case for the caller's."""

BODY_IDS: dict[str, Any] = {
    "aliasId": "e",
    "conversationId": "c",
    "entityIdOrName": "e",
    "entityIds": ["e"],
    "memorySpaceId": "s",
    "memorySpaceIds": ["s"],
    "sourceConversationId": "c",
    "sourceMessageIds": ["m"],
}
"""Body fields that contain ids of the user's objects."""

FREE_IDS = {"sessionId", "templateId", "toolUseId", "traceId"}
"""Ids that callers choose themselves."""

# Cases that the table does not cover: ids combined with others, in lists, and names.
CROSS_SCOPE_REQUESTS: list[tuple[str, str, Any]] = [
    ("GET", "/ai-memory/spaces/{s}/entities/by-name?name=Secret", None),
    ("POST", "/ai-memory/entities/{e}/merge", {"aliasId": "f"}),
    ("POST", "/ai-memory/entities/{e}/merge", {"aliasId": "E"}),
    ("POST", "/ai-memory/spaces/{s}/recall-by-topic", {"query": "Secret"}),
    ("POST", "/ai-memory/spaces/{s}/recall-by-entity", {"entityIdOrName": "Secret"}),
    ("POST", "/ai-memory/spaces/{s}/remember-conversation", {"conversationId": "C"}),
    ("POST", "/ai-memory/spaces/{S}/atoms", {"text": "x", "sourceConversationId": "C", "sourceMessageIds": ["m"]}),
    ("POST", "/ai-memory/spaces/{S}/atoms", {"text": "x", "sourceConversationId": "c", "sourceMessageIds": ["M"]}),
    ("POST", "/ai-memory/spaces/{s}/atoms/batch", {"atoms": [{"text": "x"}]}),
    ("POST", "/ai-memory/spaces/{S}/atoms/batch", {"atoms": [{"text": "x"}, {"text": "y", "sourceMessageIds": ["m"]}]}),
    ("POST", "/ai-memory/atoms/{A}/supersede", {"text": "x", "entityIds": ["E", "e"]}),
    ("POST", "/ai-memory/bindings", {"conversationScope": {"namespace": "own"}, "memorySpaceIds": ["S", "s"]}),
    ("POST", "/ai-memory/extractions", {"conversationId": "c", "memorySpaceId": "S"}),
    ("POST", "/ai-memory/extractions", {"conversationId": "C", "memorySpaceId": "s"}),
    ("POST", "/ai-working-context", {"conversationId": "C", "memorySpaceId": "s"}),
    ("POST", "/ai-working-context", {"memorySpaceId": "s", "recallQuery": "Secret"}),
    ("POST", "/ai-working-context", {"memorySpaceId": "s", "alwaysOnCategoryNames": ["fact"]}),
    ("GET", "/ai-conversations/open?namespace=secret&sessionId=secret", None),
]


def operations_on_ids() -> list[Operation[..., Any]]:
    """Return the operations that take ids of the user's objects."""
    return [
        each
        for each in OPERATIONS.values()
        if each.is_mounted and each.tag != "admin" and set(each.path_kinds.values()) <= LETTERS.keys()
    ]


def body_examples() -> dict[str, dict[str, Any]]:
    """Return the example body of each operation, from OpenAPI."""
    paths = create_app(Tellback(":memory:")).openapi()["paths"]
    found = [operation for methods in paths.values() for operation in methods.values() if "requestBody" in operation]
    return {each["operationId"]: each["requestBody"]["content"]["application/json"]["example"] for each in found}


def table_requests() -> list[tuple[str, str, Any]]:
    """Build requests with another user's id: in each path, and in each body with own ids in the path."""
    requests: list[tuple[str, str, Any]] = []
    bodies = body_examples()
    for operation in operations_on_ids():
        letters = {name: f"{{{LETTERS[kind]}}}" for name, kind in operation.path_kinds.items()}
        unwanted = {*BODY_IDS, "provider"}  # `provider` needs a model, and this server has none
        body = {name: each for name, each in bodies.get(operation.name, {}).items() if name not in unwanted}
        fields = body_fields(operation)
        assert {name for name in fields if name.endswith(("Id", "Ids"))} <= BODY_IDS.keys() | FREE_IDS, operation.name
        required = {name: BODY_IDS[name] for name in fields if name in BODY_IDS and fields[name]}
        query = "?name=Secret" if operation.name == "find_entity_by_name" else ""
        if letters:
            path = operation.path.format(**letters) + query
            requests.append((operation.verb, path, {**body, **required} if operation.body_model else None))
        own = {name: letter.upper() for name, letter in letters.items()}
        requests += [
            (operation.verb, operation.path.format(**own), {**body, **required, name: BODY_IDS[name]})
            for name in fields
            if name in BODY_IDS
        ]
    assert {"/ai-memory/atoms/{a}", "/ai-conversations/{c}/run-turn"} <= {path for _, path, _ in requests}
    return requests


def body_fields(operation: Operation[..., Any]) -> dict[str, bool]:
    """Return the fields of an operation's body, and whether they are required."""
    if operation.body_model is None:
        return {}
    return {camel(name): each.is_required() for name, each in operation.body_model.model_fields.items()}


def fill_ids(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: fill_ids(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [fill_ids(each, ids) for each in value]
    return ids.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("user", "tenant", "app"),
    [("maya", "other", "web"), ("maya", "acme", "other"), ("omar", "acme", "web")],
    ids=["tenant", "app", "user"],
)
async def test_ids_of_another_scope_are_not_found_in_any_place(url: str, user: str, tenant: str, app: str) -> None:
    async with Tellback(url, embedder=None, worker=False) as tb:
        secret = await made_by_maya(tb)
        async with rest_client(tb, user, role="admin", tenant=tenant, app=app) as client:
            ids = secret | await create_own_objects(client)
            users = (tb.user("maya", tenant_id="acme", app_id="web"), tb.user(user, tenant_id=tenant, app_id=app))
            before = [await snapshot(each) for each in users]
            for method, path, body in (*CROSS_SCOPE_REQUESTS, *table_requests()):
                options = {} if body is None else {"json": fill_ids(body, ids)}
                answer = await client.request(method, path.format(**ids), **options)
                assert answer.status_code == 404, f"{method} {path} {body}: {answer.status_code} {answer.text[:200]}"
                assert "Secret" not in answer.text
            for path in ("/ai-memory/spaces", "/ai-memory/bindings", "/ai-memory/jobs", "/ai-conversations"):
                found = {each["id"] for each in await list_all(client, path)}
                assert not found & set(secret.values())
            assert [await snapshot(each) for each in users] == before


async def snapshot(user: User) -> dict[str, Any]:
    """Return all stored data of a user."""
    export = await user.admin.export_user_data()
    return {name: value for name, value in export.items() if name != "exported_at"}


@pytest.mark.parametrize("strange_text", ["%00", "%FF", "%ED%A0%80", "%F0%9F%8C%B1", "'%20OR%201=1--", "x" * 5_000])
async def test_arbitrary_text_in_paths_and_queries_causes_no_store_error(tb: Tellback, strange_text: str) -> None:
    space = await tb.user("maya").memory.create_space()
    async with rest_client(tb) as client:
        for path in (
            f"/ai-memory/spaces?name={strange_text}",
            f"/ai-memory/spaces/{strange_text}",
            f"/ai-memory/spaces/{space.id}/atoms?category={strange_text}",
            f"/ai-memory/spaces/{space.id}/atoms?cursor={strange_text}",
            f"/ai-memory/spaces/{space.id}/entities?query={strange_text}",
            f"/ai-memory/spaces/{space.id}/entities/by-name?name={strange_text}",
            f"/ai-memory/atoms/{strange_text}",
            f"/ai-memory/entities/{strange_text}",
            f"/ai-memory/bindings/{strange_text}",
            f"/ai-memory/jobs/{strange_text}",
            f"/ai-memory/jobs?conversationId={strange_text}",
            f"/ai-memory/jobs?cursor={strange_text}",
            "/ai-memory/jobs?cursor=AAAA",
            f"/ai-memory/spaces/{space.id}/atoms?cursor=AAAA",
            f"/ai-conversations?namespace={strange_text}",
            f"/ai-conversations?cursor={strange_text}",
            "/ai-conversations?cursor=AAAA",
            f"/ai-conversations/open?namespace={strange_text}&sessionId={strange_text}",
            f"/ai-conversations/messages/{strange_text}",
            f"/ai-conversations/{strange_text}/messages",
        ):
            answer = await client.get(path)
            assert answer.status_code < 500, f"{path}: {answer.text[:200]}"
