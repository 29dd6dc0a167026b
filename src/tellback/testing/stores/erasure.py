"""All that is kept of a user: handed out whole, and erased without a trace for anyone else."""

from __future__ import annotations

import asyncio
from typing import Any

from tellback.errors import NotFoundError
from tellback.stores import Store
from tellback.stores.ports.admin import COLLECTIONS, Collection, erasure_subject
from tellback.testing.stores.access import make_key
from tellback.testing.stores.answers import make_answered_request
from tellback.testing.stores.making import (
    DAY,
    FACT,
    MAYA,
    NOON,
    OTHER_SCOPES,
    add_atoms,
    append_message,
    make_atom,
    make_conversation,
    make_draft,
    make_entity,
    make_space,
    make_turn,
    read_all_events,
)
from tellback.types.bindings import ANY, Binding, ConversationScope, ExtractionPolicy
from tellback.types.ids import new_id
from tellback.types.jobs import UsageRecord
from tellback.types.memory import AtomStatus
from tellback.types.scope import Scope
from tellback.types.sessions import SessionData
from tellback.types.times import utc_now

Records = list[dict[str, Any]]


async def read_records(store: Store, scope: Scope, collection: Collection, **options: Any) -> Records:
    """A collection as a list."""
    return [record async for record in store.user_data.records(scope, collection, **options)]


async def export_all(store: Store, scope: Scope) -> dict[str, Records]:
    """Every collection as a list."""
    return {name: await read_records(store, scope, name) for name in COLLECTIONS}


async def make_user_binding(store: Store, scope: Scope, *user_ids: str, space_ids: tuple[str, ...] = ()) -> Binding:
    """A binding about some users."""
    scopes = tuple(ConversationScope("chat", user_id) for user_id in user_ids)
    now = utc_now()
    binding = Binding(
        id=new_id("bind"),
        tenant_id=scope.tenant_id,
        app_id=scope.app_id,
        conversation_scope=scopes,
        memory_space_ids=space_ids,
        memory_space_names=("notes",),
        extraction_policy=ExtractionPolicy(),
        created_at=now,
        updated_at=now,
        created_by=scope.user_id,
    )
    return await store.bindings.create(scope, binding)


async def make_user_data(store: Store, scope: Scope) -> None:
    """Something of everything that is kept."""
    conversation = await make_conversation(store, scope, title="Talk")
    drafts = [make_draft("Hi"), make_draft("Hello", "assistant"), make_draft("Psst", "system", visibility="hidden")]
    await store.conversations.append(scope, conversation.id, make_turn(*drafts), now=utc_now())
    space = await make_space(store, scope)
    ann, anna = await make_entity(store, space, "Ann"), await make_entity(store, space, "Anna")
    vector = b"\x00\x3c" * 4
    first = make_atom("Lives in Rome", entity_ids=(ann.id, anna.id), embedder="e", vector=vector, origin="talk/1")
    await add_atoms(store, space, first, make_atom("Archived"), make_atom("Deleted"))
    await store.memories.supersede(scope, first.id, make_atom("Lives in Lisbon", valid_from=NOON + DAY), now=utc_now())
    atoms = {atom["text"]: atom["id"] for atom in await read_records(store, scope, "atoms")}
    await store.memories.set_status(scope, atoms["Archived"], AtomStatus.ARCHIVED, now=utc_now())
    await store.memories.set_status(scope, atoms["Deleted"], AtomStatus.DELETED, now=utc_now())
    await store.memories.merge(scope, ann.id, anna.id, now=utc_now())
    deleted_space = await make_space(store, scope, "gone")
    await add_atoms(store, deleted_space, make_atom("In a deleted space"))
    await store.memories.delete_space(scope, deleted_space.id, now=utc_now())
    await store.sessions.create(scope, SessionData("web-42-" + scope.user_id, scope.user_id, collected_data={"a": 1}))
    await make_user_binding(store, scope, scope.user_id, space_ids=(space.id,))
    [job] = await store.jobs.plan(
        scope, conversation.id, version="v1", space_id=space.id, window_length=9_999, now=utc_now()
    )
    await store.jobs.add_usage(
        [UsageRecord(new_id("use"), scope, "extraction", utc_now(), job.id, conversation.id, "m")]
    )
    await store.api_keys.create(make_key(scope), "d" * 64)
    await make_answered_request(store, scope, "key-1", b'{"said": "Hi"}')
    await make_answered_request(store, scope, "key-2", b"\xff\x00")


class UserDataContract:
    """`UserData`."""

    async def test_everything_of_a_user_is_handed_out_whatever_its_status(self, store: Store) -> None:
        for scope in (MAYA, *OTHER_SCOPES):
            await make_user_data(store, scope)
        found = await export_all(store, MAYA)
        assert [message["visibility"] for message in found["messages"]] == ["user", "user", "hidden"]
        assert found["messages"][0]["content"] == [{"type": "text", "text": "Hi"}]
        assert [space["status"] for space in found["spaces"]] == ["ACTIVE", "DELETED"]
        assert [(atom["text"], atom["status"]) for atom in found["atoms"]] == [
            *(("Lives in Rome", "ACTIVE"), ("Archived", "ARCHIVED"), ("Deleted", "DELETED")),
            *(("Lives in Lisbon", "ACTIVE"), ("In a deleted space", "ACTIVE")),
        ]
        rome, lisbon = found["atoms"][0], found["atoms"][3]
        assert (rome["superseded_by"], rome["embedders"], rome["origin"]) == (lisbon["id"], ["e"], "talk/1")
        assert rome["category"] == {"name": FACT.name, "kind": FACT.kind.value}
        assert [closing["valid_to"] for closing in rome["closings"]] == [rome["valid_to"]]
        assert [entity["status"] for entity in found["entities"]] == ["ACTIVE", "MERGED"]
        assert [binding["created_by"] for binding in found["bindings"]] == ["maya"]
        assert [len(found[name]) for name in ("conversations", "sessions", "jobs", "usage")] == [1, 1, 1, 1]
        [key] = found["api_keys"]
        assert (key["role"], key["user_id"], "digest" in key) == ("user", "maya", False)
        first, second = found["kept_answers"]
        assert (first["key"], first["status"], first["body"]) == ("key-1", 200, '{"said": "Hi"}')
        assert (second["key"], second["body_base64"]) == ("key-2", "/wA=")
        told = [event for event in await read_all_events(store) if event.scope == MAYA]
        assert [event["position"] for event in found["events"]] == [event.position for event in told]

    async def test_parts_are_handed_out_alone_and_vectors_when_asked_for(self, store: Store) -> None:
        await make_user_data(store, MAYA)
        conversation, other = await make_conversation(store), await make_conversation(store, OTHER_SCOPES[0])
        await append_message(store, conversation.id, "Only this")
        await append_message(store, other.id, "Not this", OTHER_SCOPES[0])
        [message] = await read_records(store, MAYA, "messages", of=conversation.id)
        assert message["content"] == [{"type": "text", "text": "Only this"}]
        assert await read_records(store, MAYA, "messages", of=other.id) == []
        space = (await read_records(store, MAYA, "spaces"))[0]
        first = (await read_records(store, MAYA, "atoms", of=space["id"], include_vectors=True))[0]
        assert first["vectors"] == {"e": "ADwAPAA8ADw="}

    async def test_many_records_come_once_each_and_in_order(self, store: Store) -> None:
        conversation = await make_conversation(store)
        drafts = [make_draft("x" * (20_000 if n % 50 == 0 else 10)) for n in range(450)]
        await store.conversations.append(MAYA, conversation.id, make_turn(*drafts), now=utc_now())
        space = await make_space(store)
        await add_atoms(store, space, *(make_atom(str(n)) for n in range(450)))
        found = await export_all(store, MAYA)
        assert [message["seq"] for message in found["messages"]] == list(range(1, 451))
        assert [atom["text"] for atom in found["atoms"]] == [str(n) for n in range(450)]
        assert len({event["position"] for event in found["events"]}) == len(found["events"]) == 902

    async def test_an_erased_user_is_gone_and_others_are_as_they_were(self, store: Store) -> None:
        for scope in (MAYA, *OTHER_SCOPES):
            await make_user_data(store, scope)
        before = [await export_all(store, scope) for scope in OTHER_SCOPES]
        erasure = await store.user_data.erase(MAYA, now=utc_now())
        assert all(records == [] for records in (await export_all(store, MAYA)).values())
        assert [await export_all(store, scope) for scope in OTHER_SCOPES] == before
        assert {name: erasure.counts[name] for name in COLLECTIONS} == {
            name: len(before[0][name]) for name in COLLECTIONS
        }
        counted = {"atom_vectors": 1, "atom_entities": 1, "atom_closings": 1, "entity_names": 2}
        assert {name: erasure.counts[name] for name in counted} == counted
        assert len(erasure.job_ids) == 1
        assert await store.jobs.get(None, erasure.job_ids[0]) is None

    async def test_an_erasure_tells_one_event_of_nobody_and_is_harmless_twice(self, store: Store) -> None:
        await make_user_data(store, MAYA)
        latest = await store.events.latest()
        erasure = await store.user_data.erase(MAYA, now=utc_now())
        [event] = await read_all_events(store)
        assert (event.type, event.subject_id) == ("user.erased", erasure_subject(MAYA))
        assert event.scope == Scope(MAYA.tenant_id, MAYA.app_id, "")
        assert event.data == {table: count for table, count in erasure.counts.items() if table != "events"}
        assert event.position > latest
        for scope in (MAYA, OTHER_SCOPES[0]):
            again = await store.user_data.erase(scope, now=utc_now())
            assert (sum(again.counts.values()), again.job_ids) == (0, ())
            assert again.counts.keys() == erasure.counts.keys()
        assert await read_all_events(store) == [event]
        conversation = await make_conversation(store)
        assert [event.subject_id for event in await read_all_events(store)][1:] == [conversation.id]

    async def test_bindings_that_others_need_stay_without_the_erased_user(self, store: Store) -> None:
        omar = OTHER_SCOPES[0]
        space = await make_space(store)
        own = await make_user_binding(store, MAYA, "maya")
        everyones = await make_user_binding(store, MAYA, ANY, space_ids=(space.id,))
        both = await make_user_binding(store, omar, "maya", "omar")
        his = await make_user_binding(store, omar, "omar")
        about_her = await make_user_binding(store, omar, "maya")
        elsewhere = await make_user_binding(store, OTHER_SCOPES[2], "maya")
        seen = [binding for binding in await read_records(store, omar, "bindings") if binding["id"] != about_her.id]
        erasure = await store.user_data.erase(MAYA, now=utc_now())
        assert erasure.counts["bindings"] == 4
        assert await store.bindings.get(MAYA, own.id) is None
        assert await store.bindings.get(omar, about_her.id) is None
        left = await store.bindings.get(omar, everyones.id)
        assert left is not None
        assert (left.created_by, left.memory_space_ids, left.memory_space_names) == (None, (), ("notes",))
        assert left.updated_at == everyones.updated_at
        shared = await store.bindings.get(omar, both.id)
        assert shared is not None
        assert [scope.user_id for scope in shared.conversation_scope] == ["omar"]
        assert await store.bindings.get(omar, his.id) == his
        assert await store.bindings.get(OTHER_SCOPES[2], elsewhere.id) == elsewhere
        assert await read_records(store, omar, "bindings") == seen
        assert (await store.user_data.erase(MAYA, now=utc_now())).counts["bindings"] == 0

    async def test_a_user_sees_no_other_in_the_bindings_handed_out(self, store: Store) -> None:
        space = await make_space(store, OTHER_SCOPES[0])
        await make_user_binding(store, OTHER_SCOPES[0], "maya", "omar", "nina", ANY, space_ids=(space.id,))
        await make_user_binding(store, OTHER_SCOPES[0], ANY)
        [binding] = await read_records(store, MAYA, "bindings")
        assert [scope["user_id"] for scope in binding["conversation_scope"]] == ["maya", ANY]
        assert (binding["created_by"], binding["memory_space_ids"]) == (None, [])

    async def test_what_is_written_beside_an_erasure_is_refused_or_whole(self, store: Store, second: Store) -> None:
        conversations = [await make_conversation(store) for _ in range(4)]
        spaces = [await make_space(store, name=str(n)) for n in range(4)]
        written = [asyncio.Event() for _ in range(4)]

        async def write(n: int) -> None:
            while True:
                try:
                    await append_message(second, conversations[n].id, "still here")
                    await add_atoms(second, spaces[n], make_atom("still here"))
                    written[n].set()
                except NotFoundError:
                    return

        async with asyncio.timeout(40), asyncio.TaskGroup() as group:
            for n in range(4):
                group.create_task(write(n))
            for each in written:
                await each.wait()
            await store.user_data.erase(MAYA, now=utc_now())
        left = await export_all(store, MAYA)
        assert all(records == [] for records in left.values())
