"""Spaces, atoms and entities over REST."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tellback import Tellback
from tests.support.rest import RestClient, expect_json, list_all, rest_client


@pytest.fixture
async def tb() -> AsyncIterator[Tellback]:
    async with Tellback(":memory:", embedder=None, worker=False) as opened:
        yield opened


@pytest.fixture
async def rest(tb: Tellback) -> AsyncIterator[RestClient]:
    async with rest_client(tb) as client:
        yield client


@pytest.fixture
async def space(rest: RestClient) -> str:
    return str(expect_json(await rest.post("/ai-memory/spaces", json={"name": "goals"}), 201)["id"])


async def test_a_space_is_created_listed_and_deleted(rest: RestClient, tb: Tellback) -> None:
    created = expect_json(await rest.post("/ai-memory/spaces", json={"name": "goals", "metadata": {"a": [1]}}), 201)
    repeated = expect_json(await rest.post("/ai-memory/spaces", json={"name": "goals", "once": True}), 201)
    assert repeated == created
    assert expect_json(await rest.get(f"/ai-memory/spaces/{created['id']}")) == created
    other = expect_json(await rest.post("/ai-memory/spaces", json={}), 201)
    assert other["name"] == "default"
    assert await list_all(rest, "/ai-memory/spaces", limit=1) == [created, other]
    assert await list_all(rest, "/ai-memory/spaces", name="goals") == [created]
    assert (await rest.delete(f"/ai-memory/spaces/{created['id']}")).status_code == 204
    assert (await rest.get(f"/ai-memory/spaces/{created['id']}")).status_code == 404
    assert (await rest.delete(f"/ai-memory/spaces/{created['id']}")).status_code == 404
    [stored] = await tb.user("maya").memory.list_spaces()
    assert stored.id == other["id"]


async def test_an_atom_is_added_superseded_archived_and_restored(rest: RestClient, space: str) -> None:
    body = {
        "text": "User prefers morning meetings",
        "category": {"name": "preference", "kind": "PREFERENCE"},
        "importance": 4,
        "confidence": 0.95,
        "validFrom": "2026-01-01T00:00:00Z",
    }
    atom = expect_json(await rest.post(f"/ai-memory/spaces/{space}/atoms", json=body), 201)
    assert {name: atom[name] for name in body} == body
    new = {"text": "User prefers evening meetings", "validFrom": "2026-02-01T00:00:00Z"}
    later = expect_json(await rest.post(f"/ai-memory/atoms/{atom['id']}/supersede", json=new), 201)
    assert (later["supersedes"], later["category"], later["importance"]) == (atom["id"], body["category"], 4)
    old = expect_json(await rest.get(f"/ai-memory/atoms/{atom['id']}"))
    assert (old["validTo"], old["supersededBy"]) == ("2026-02-01T00:00:00Z", later["id"])
    conflict = expect_json(await rest.post(f"/ai-memory/atoms/{atom['id']}/supersede", json=new), 409)
    assert (conflict["code"], conflict["data"]["supersededBy"]) == ("atom-superseded", later["id"])
    path = f"/ai-memory/spaces/{space}/atoms"
    assert [each["id"] for each in await list_all(rest, path)] == [later["id"]]
    assert [each["id"] for each in await list_all(rest, path, validAt="2026-01-15T00:00:00Z")] == [atom["id"]]
    assert len(await list_all(rest, path, includeSuperseded=True)) == 2
    assert expect_json(await rest.post(f"/ai-memory/atoms/{later['id']}/archive"))["status"] == "ARCHIVED"
    assert [each["id"] for each in await list_all(rest, path, status="archived")] == [later["id"]]
    assert expect_json(await rest.post(f"/ai-memory/atoms/{later['id']}/restore"))["status"] == "ACTIVE"
    assert expect_json(await rest.delete(f"/ai-memory/atoms/{later['id']}"))["status"] == "DELETED"
    assert (await rest.post(f"/ai-memory/atoms/{later['id']}/restore")).status_code == 404


async def test_many_atoms_are_added_together_and_read_in_pages(rest: RestClient, space: str) -> None:
    path = f"/ai-memory/spaces/{space}/atoms"
    atoms = [{"text": f"Fact {n}", "category": {"name": "odd" if n % 2 else "even", "kind": "fact"}} for n in range(7)]
    created = expect_json(await rest.post(f"{path}/batch", json={"atoms": atoms}), 201)["items"]
    assert [each["text"] for each in created] == [atom["text"] for atom in atoms]
    assert await list_all(rest, path, limit=2) == created[::-1]
    odd = await list_all(rest, path, limit=1, category="odd")
    assert [each["text"] for each in odd] == ["Fact 5", "Fact 3", "Fact 1"]
    assert len(await list_all(rest, path, category=["odd", "even"])) == 7
    bad_atoms = [{"text": "Fine"}, {"text": " "}]
    assert (await rest.post(f"{path}/batch", json={"atoms": bad_atoms})).status_code == 422
    assert len(await list_all(rest, path)) == 7
    assert expect_json(await rest.post(f"{path}/batch", json={"atoms": []}), 201)["items"] == []


async def test_entities_are_created_found_and_merged(rest: RestClient, space: str) -> None:
    path = f"/ai-memory/spaces/{space}/entities"
    ana = expect_json(
        await rest.post(path, json={"type": "PERSON", "canonicalName": "Ana Silva", "aliases": ["Ana"]}), 201
    )
    anna = expect_json(
        await rest.post(path, json={"type": "person", "canonicalName": "Anna", "attributes": {"n": 1}}), 201
    )
    atom_body = {"text": "Anna has a boat.", "entityIds": [anna["id"]]}
    atom = expect_json(await rest.post(f"/ai-memory/spaces/{space}/atoms", json=atom_body), 201)
    merged = expect_json(await rest.post(f"/ai-memory/entities/{ana['id']}/merge", json={"aliasId": anna["id"]}))
    assert (merged["id"], merged["aliases"], merged["atomCount"]) == (ana["id"], ["Ana", "Anna"], 1)
    alias = expect_json(await rest.get(f"/ai-memory/entities/{anna['id']}"))
    assert (alias["status"], alias["mergedInto"], alias["attributes"]) == ("MERGED", ana["id"], {"n": 1})
    assert expect_json(await rest.get(f"/ai-memory/atoms/{atom['id']}"))["entityIds"] == [ana["id"]]
    response = await rest.get(f"{path}/by-name", params={"name": "ANNA", "type": "PERSON"})
    assert expect_json(response)["id"] == ana["id"]
    missing = expect_json(await rest.get(f"{path}/by-name", params={"name": "Bob"}), 404)
    assert missing["data"]["kind"] == "entity"
    found = expect_json(await rest.get(path, params={"query": "silva", "type": "PERSON", "limit": 5}))
    assert [each["id"] for each in found["items"]] == [ana["id"]]
    assert expect_json(await rest.get(path, params={"type": "PLACE"}))["items"] == []


@pytest.mark.parametrize("query", [{}, {"query": "thing"}, {"query": ""}], ids=str)
async def test_all_entities_are_listed(rest: RestClient, space: str, tb: Tellback, query: dict[str, str]) -> None:
    memory = tb.user("maya").memory
    created = [await memory.create_entity(space, "OBJECT", f"Thing {number}") for number in range(53)]
    path = f"/ai-memory/spaces/{space}/entities"
    first = expect_json(await rest.get(path, params=query))
    assert len(first["items"]) == 50
    assert [each["id"] for each in await list_all(rest, path, limit=20, **query)] == [each.id for each in created]
    assert expect_json(await rest.get(path, params={**query, "type": "PLACE"})) == {"items": [], "nextCursor": None}


@pytest.mark.parametrize("cursor", ["!!", "LTE", "eHg"])
async def test_invalid_search_cursors_are_rejected(rest: RestClient, space: str, cursor: str) -> None:
    params = {"query": "thing", "cursor": cursor}
    assert (await rest.get(f"/ai-memory/spaces/{space}/entities", params=params)).status_code == 422


async def test_a_conversation_is_remembered_verbatim(rest: RestClient, space: str, tb: Tellback) -> None:
    conversations = tb.user("maya").conversations
    conversation = await conversations.create("chat")
    message = await conversations.append_user_message(conversation.id, "I keep bees.")
    path = f"/ai-memory/spaces/{space}/remember-conversation"
    [atom] = expect_json(await rest.post(path, json={"conversationId": conversation.id}))["items"]
    assert (atom["text"], atom["sourceConversationId"]) == ("User: I keep bees.", conversation.id)
    assert atom["citations"] == [{"conversationId": conversation.id, "messageIds": [message.id]}]
    empty = await conversations.create("chat")
    unknown = "/ai-memory/spaces/ms_x/remember-conversation"
    assert (await rest.post(unknown, json={"conversationId": empty.id})).status_code == 404


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({}, "text"),
        ({"text": 7}, "text"),
        ({"text": "x", "importance": 6}, "importance"),
        ({"text": "x", "importance": 10**30}, "importance"),
        ({"text": "x", "importance": "4.5"}, "importance"),
        ({"text": "x", "confidence": 1.1}, "confidence"),
        ({"text": "x", "category": {"name": "a", "kind": "GOAL"}}, "category"),
        ({"text": "x", "category": {"name": "a", "kind": "PATTERN"}}, "PATTERN"),
        ({"text": "x", "category": "fact"}, "category"),
        ({"text": "x", "validFrom": "2026-01-01T00:00:00"}, "validFrom"),
        ({"text": "x", "validFrom": "0001-01-01T00:00:00+14:00"}, "valid_from"),
        ({"text": "x", "validFrom": "2026-01-02T00:00:00Z", "validTo": "2026-01-01T00:00:00Z"}, "valid_to"),
        ({"text": "x", "userId": "omar"}, "userId"),
        ({"text": "x", "memorySpaceId": "ms_1"}, "memorySpaceId"),
        ({"text": "x", "entityIds": "ent_1"}, "entityIds"),
        ({"text": "x", "entityIds": ["e"] * 201}, "entityIds"),
        ({"text": "\x00"}, "text"),
        ({"text": "x" * 50_001}, "text"),
    ],
)
async def test_invalid_atoms_are_rejected(rest: RestClient, space: str, body: dict[str, Any], location: str) -> None:
    problem = expect_json(await rest.post(f"/ai-memory/spaces/{space}/atoms", json=body), 422)
    assert problem["code"] == "invalid-argument"
    assert location in problem["detail"]
    assert await list_all(rest, f"/ai-memory/spaces/{space}/atoms") == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "cursor=%FF",
        "cursor=" + "a" * 1_001,
        "status=GONE",
        "validAt=yesterday",
        "validAt=2026-01-01T00:00:00",
        "knownAt=99999-01-01T00:00:00Z",
        "category=" + "x" * 201,
        "category=%00",
    ],
)
async def test_invalid_memory_queries_are_rejected(rest: RestClient, space: str, query: str) -> None:
    answer = await rest.get(f"/ai-memory/spaces/{space}/atoms?{query}")
    assert expect_json(answer, 422)["code"] == "invalid-argument"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/ai-memory/spaces/{}", None),
        ("DELETE", "/ai-memory/spaces/{}", None),
        ("GET", "/ai-memory/spaces/{}/atoms", None),
        ("POST", "/ai-memory/spaces/{}/atoms", {"text": "x"}),
        ("POST", "/ai-memory/spaces/{}/atoms/batch", {"atoms": []}),
        ("GET", "/ai-memory/atoms/{}", None),
        ("DELETE", "/ai-memory/atoms/{}", None),
        ("POST", "/ai-memory/atoms/{}/supersede", {"text": "x"}),
        ("POST", "/ai-memory/atoms/{}/archive", None),
        ("GET", "/ai-memory/spaces/{}/entities", None),
        ("POST", "/ai-memory/spaces/{}/entities", {"type": "PLACE", "canonicalName": "Lisbon"}),
        ("GET", "/ai-memory/spaces/{}/entities/by-name?name=x", None),
        ("GET", "/ai-memory/entities/{}", None),
        ("POST", "/ai-memory/entities/{}/merge", {"aliasId": "ent_x"}),
        ("POST", "/ai-memory/spaces/{}/recall-by-topic", {"query": "x"}),
        ("POST", "/ai-memory/spaces/{}/recall-by-entity", {"entityIdOrName": "x"}),
        ("POST", "/ai-memory/spaces/{}/recall-timeline", {}),
    ],
)
async def test_malformed_ids_are_not_found(rest: RestClient, method: str, path: str, body: Any) -> None:
    for id in ("x", "%00", "%F0%9F%8C%B1", "..%2Fx", "%FF"):
        answer = await rest.request(method, path.format(id), **({} if body is None else {"json": body}))
        assert expect_json(answer, 404)["code"] in ("not-found", "unknown-path")
