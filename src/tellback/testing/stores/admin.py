"""The contract of API keys, rate windows, idempotency keys, and the export and erasure of user data."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from tellback.errors import IdempotencyConflictError, NotFoundError, RequestInProgressError
from tellback.stores import IdempotencyClaim, Store, StoredResponse
from tellback.stores.values import COLLECTIONS, Collection, erasure_subject
from tellback.testing.stores.factories import (
    DAY,
    FACT,
    MAYA,
    NOON,
    OTHER_SCOPES,
    add_atoms,
    append_drafts,
    append_message,
    make_atom,
    make_binding,
    make_conversation,
    make_draft,
    make_entity,
    make_space,
    present,
    read_all_events,
)
from tellback.types.access import ApiKey, Scope
from tellback.types.conversations import Conversation, SessionData
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ANY, Binding, ConversationScope, UsageRecord
from tellback.types.memory import AtomStatus

DIGEST = "0123456789abcdef" * 4

MINUTE = timedelta(minutes=1)
ANSWER = StoredResponse(201, "application/json", b'{"id": "conv_1"}', {"ETag": '"1"'})

Records = list[dict[str, Any]]


def make_key(scope: Scope = MAYA, **fields: Any) -> ApiKey:
    """Build an API key of one user."""
    key = ApiKey(new_id("key"), "Phone", scope.tenant_id, scope.app_id, "user", NOON, scope.user_id)
    return replace(key, **fields)


def make_app_key(scope: Scope = MAYA, **fields: Any) -> ApiKey:
    """Build an API key for all users of an app."""
    return make_key(scope, **{"role": "app", "user_id": None, **fields})


class AccessContract:
    """Tests of `ApiKeys` and `RateWindows`."""

    async def test_a_key_is_stored_with_the_digest_of_its_secret(self, store: Store) -> None:
        key = make_key(name="Maya's phone 📱", expires_at=NOON + DAY, rate_limit=60)
        assert await store.api_keys.create(key, DIGEST) == key
        stored = present(await store.api_keys.get(key.id))
        assert (stored.key, stored.digest) == (key, DIGEST)
        assert DIGEST not in repr(stored)
        assert await store.api_keys.get("key_of_nobody") is None

    async def test_keys_are_listed_by_tenant_and_app(self, store: Store) -> None:
        keys = [make_key(), make_app_key(), *(make_app_key(scope, role="admin") for scope in OTHER_SCOPES)]
        for key in keys:
            await store.api_keys.create(key, DIGEST)
        assert await store.api_keys.list_keys() == keys
        assert await store.api_keys.list_keys(tenant_id="acme", app_id="support") == keys[:3]
        assert await store.api_keys.list_keys(tenant_id="acme") == keys[:4]
        assert await store.api_keys.list_keys(app_id="support", tenant_id="globex") == keys[4:]
        assert await store.api_keys.list_keys(tenant_id="nobody") == []

    async def test_revoking_a_key_again_keeps_the_first_time(self, store: Store) -> None:
        key = await store.api_keys.create(make_app_key(), DIGEST)
        revoked = await store.api_keys.revoke(key.id, now=NOON + DAY)
        assert revoked == replace(key, revoked_at=NOON + DAY)
        assert await store.api_keys.revoke(key.id, now=NOON + 2 * DAY) == revoked
        stored = present(await store.api_keys.get(key.id))
        assert stored.key == revoked

    @pytest.mark.parametrize(
        "named", [{"tenant_id": "globex"}, {"app_id": "sales"}, {"tenant_id": "acme", "app_id": "x"}]
    )
    async def test_a_key_of_another_tenant_or_app_is_unknown(self, store: Store, named: dict[str, str]) -> None:
        key = await store.api_keys.create(make_app_key(), DIGEST)
        for _ in range(2):
            with pytest.raises(NotFoundError):
                await store.api_keys.revoke(key.id, **named, now=NOON)
            assert await store.api_keys.list_keys() == [key]
        await store.api_keys.revoke(key.id, tenant_id="acme", app_id="support", now=NOON)
        with pytest.raises(NotFoundError):
            await store.api_keys.revoke(key.id, **named, now=NOON)
        with pytest.raises(NotFoundError):
            await store.api_keys.revoke("key_of_nobody", now=NOON)

    async def test_key_events_belong_to_the_keys_user(self, store: Store) -> None:
        own, apps = make_key(), make_app_key()
        for key in (own, apps):
            await store.api_keys.create(key, DIGEST)
            for _ in range(2):
                await store.api_keys.revoke(key.id, now=NOON)
        events = [(event.type, event.subject_id, event.scope.user_id) for event in await read_all_events(store)]
        assert events == [
            *(("key.created", own.id, "maya"), ("key.revoked", own.id, "maya")),
            *(("key.created", apps.id, ""), ("key.revoked", apps.id, "")),
        ]

    async def test_erasing_a_user_deletes_only_that_users_keys(self, store: Store) -> None:
        keys = [make_key(), make_app_key(), *(make_key(scope) for scope in OTHER_SCOPES)]
        for key in keys:
            await store.api_keys.create(key, DIGEST)
        erasure = await store.user_data.erase(MAYA, now=NOON)
        assert erasure.counts["api_keys"] == 1
        assert await store.api_keys.list_keys() == keys[1:]

    async def test_grants_never_exceed_the_limit_of_a_window(self, store: Store) -> None:
        take = store.rate_windows.take
        assert [await take("key_1", 7, 4, 10) for _ in range(4)] == [4, 4, 2, 0]
        assert await take("key_2", 7, 20, 10) == 10
        assert await take("key_1", 8, 4, 10) == 4
        assert await take("key_1", 7, 4, 11) == 1
        assert await take("key_1", 7, 4, 5) == 0
        assert [await take("key_1", 9, *limits) for limits in ((0, 5), (-1, 5), (5, 0), (5, -1))] == [0, 0, 0, 0]
        assert await take("key_1", 9, 5, 5) == 5

    async def test_windows_are_separate_and_old_ones_are_deleted(self, store: Store) -> None:
        take = store.rate_windows.take
        for window in range(100, 105):
            assert [await take("a", window, 3, 4), await take("b", window, 3, 4)] == [3, 3]
        assert [await take("a", window, 3, 4) for window in range(100, 105)] == [1] * 5
        assert await take("c", 120, 1, 4) == 1
        assert [await take(name, window, 3, 4) for name in "ab" for window in range(100, 105)] == [3] * 10

    async def test_open_stores_share_a_limit(self, store: Store, second: Store) -> None:
        calls = [opening.rate_windows.take("key_1", 1, 7, 100) for opening in (store, second) * 20]
        granted = await asyncio.gather(*calls)
        assert sum(granted) == 100
        assert sorted(granted, reverse=True) == [7] * 14 + [2] + [0] * 25


async def begin_request(
    store: Store, key: str = "k", fingerprint: str = "f", scope: Scope = MAYA, now: datetime = NOON
) -> IdempotencyClaim | StoredResponse:
    """Begin a request with a key, for a minute."""
    return await store.idempotency.begin(scope, key, fingerprint, now=now, lease_until=now + MINUTE)


async def claim_request(
    store: Store, key: str = "k", fingerprint: str = "f", scope: Scope = MAYA, now: datetime = NOON
) -> str:
    """Claim an unused key, and return the claim's token."""
    found = await begin_request(store, key, fingerprint, scope, now)
    assert isinstance(found, IdempotencyClaim)
    return found.claim_token


async def make_answered_request(store: Store, scope: Scope, key: str, body: bytes) -> None:
    """Store a response for a key."""
    claim_token = await claim_request(store, key, scope=scope)
    assert await store.idempotency.finish(scope, key, claim_token, StoredResponse(200, "text/plain", body), now=NOON)


class IdempotencyContract:
    """Tests of `IdempotencyStore`."""

    async def test_a_repeated_request_gets_the_stored_response(self, store: Store) -> None:
        claim_token = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)
        for _ in range(2):
            assert await begin_request(store, now=NOON + DAY / 2) == ANSWER

    @pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", "é\x00".encode(), b"x" * 1_000_000])
    async def test_a_response_is_stored_byte_for_byte(self, store: Store, body: bytes) -> None:
        answer = StoredResponse(204, "", body)
        await store.idempotency.finish(MAYA, "k", await claim_request(store), answer, now=NOON)
        assert await begin_request(store) == answer

    async def test_a_key_cannot_be_used_for_another_request(self, store: Store) -> None:
        claim_token = await claim_request(store)
        with pytest.raises(IdempotencyConflictError, match="'k'"):
            await begin_request(store, fingerprint="other")
        with pytest.raises(IdempotencyConflictError):  # even if the claim has expired: it may have had effects
            await begin_request(store, fingerprint="other", now=NOON + 2 * MINUTE)
        await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)
        with pytest.raises(IdempotencyConflictError):
            await begin_request(store, fingerprint="other")
        assert await begin_request(store) == ANSWER

    async def test_a_repeated_request_in_progress_raises_an_error(self, store: Store) -> None:
        await claim_request(store)
        with pytest.raises(RequestInProgressError, match="'k'"):
            await begin_request(store, now=NOON + MINUTE / 2)

    async def test_an_expired_claim_can_be_taken_over(self, store: Store) -> None:
        first = await claim_request(store)
        second = await claim_request(store, now=NOON + MINUTE)
        assert first != second
        assert not await store.idempotency.finish(MAYA, "k", first, StoredResponse(500, "", b"late"), now=NOON + MINUTE)
        await store.idempotency.abandon(MAYA, "k", first)
        with pytest.raises(RequestInProgressError):
            await begin_request(store, now=NOON + MINUTE)
        assert await store.idempotency.finish(MAYA, "k", second, ANSWER, now=NOON + MINUTE)
        assert await begin_request(store, now=NOON + MINUTE) == ANSWER

    async def test_an_expired_claim_can_still_be_finished_by_its_owner(self, store: Store) -> None:
        claim_token = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON + 5 * MINUTE)
        assert await begin_request(store, now=NOON + 5 * MINUTE) == ANSWER

    async def test_a_response_is_stored_once(self, store: Store) -> None:
        claim_token = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)
        assert not await store.idempotency.finish(MAYA, "k", claim_token, StoredResponse(500, "", b"again"), now=NOON)
        await store.idempotency.abandon(MAYA, "k", claim_token)
        assert await begin_request(store) == ANSWER

    async def test_an_abandoned_key_is_free_for_any_request(self, store: Store) -> None:
        claim_token = await claim_request(store)
        await store.idempotency.abandon(MAYA, "k", claim_token)
        await store.idempotency.abandon(MAYA, "k", claim_token)
        assert not await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)
        await claim_request(store, fingerprint="other")

    async def test_keys_of_different_users_are_separate(self, store: Store) -> None:
        claim_token = await claim_request(store)
        for scope in OTHER_SCOPES:
            await claim_request(store, fingerprint="other", scope=scope)
            assert not await store.idempotency.finish(scope, "k", claim_token, ANSWER, now=NOON)
            await store.idempotency.abandon(scope, "k", claim_token)
        assert await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)

    async def test_responses_are_stored_for_a_day(self, store: Store) -> None:
        await store.idempotency.finish(MAYA, "k", await claim_request(store), ANSWER, now=NOON)
        assert await begin_request(store, now=NOON + DAY) == ANSWER
        await claim_request(store, fingerprint="other", now=NOON + DAY + MINUTE)

    async def test_expired_responses_are_deleted_in_batches(self, store: Store) -> None:
        for n in range(5):
            await make_answered_request(store, (MAYA, *OTHER_SCOPES)[n % 4], f"k{n}", b"")
        await claim_request(store, "young", now=NOON + MINUTE)
        forget = store.idempotency.delete_before
        assert [await forget(NOON + MINUTE, limit=3) for _ in range(3)] == [3, 2, 0]
        with pytest.raises(RequestInProgressError):
            await begin_request(store, "young", now=NOON + MINUTE)

    async def test_a_response_to_an_erased_user_is_not_stored(self, store: Store) -> None:
        claim_token = await claim_request(store)
        await claim_request(store, scope=OTHER_SCOPES[0])
        erasure = await store.user_data.erase(MAYA, now=NOON)
        assert erasure.counts["idempotent_responses"] == 1
        assert not await store.idempotency.finish(MAYA, "k", claim_token, ANSWER, now=NOON)
        assert (await store.user_data.erase(MAYA, now=NOON)).counts["idempotent_responses"] == 0
        with pytest.raises(RequestInProgressError):
            await begin_request(store, scope=OTHER_SCOPES[0])

    async def test_concurrent_begins_of_a_key_succeed_once(self, store: Store, second: Store) -> None:
        for n in range(5):
            calls = [begin_request(opening, f"k{n}") for opening in (store, second) * 6]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(each, IdempotencyClaim) for each in found) == 1
            assert sum(isinstance(each, RequestInProgressError) for each in found) == 11

    async def test_concurrent_takeovers_of_a_key_succeed_once(self, store: Store, second: Store) -> None:
        await claim_request(store)
        calls = [begin_request(opening, now=NOON + 2 * MINUTE) for opening in (store, second) * 6]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(each, IdempotencyClaim) for each in found) == 1
        assert sum(isinstance(each, RequestInProgressError) for each in found) == 11

    async def test_a_key_never_has_two_claims(self, store: Store, second: Store) -> None:
        at_work: set[str] = set()

        async def work(opening: Store) -> int:
            done = 0
            for _ in range(25):
                try:
                    claim_token = await claim_request(opening)
                except RequestInProgressError:
                    await asyncio.sleep(0)
                    continue
                assert not at_work
                at_work.add(claim_token)
                await asyncio.sleep(0)
                at_work.remove(claim_token)
                await opening.idempotency.abandon(MAYA, "k", claim_token)
                done += 1
            return done

        async with asyncio.timeout(30):
            assert sum(await asyncio.gather(*(work(opening) for opening in (store, second) * 3))) > 0


async def read_records(store: Store, scope: Scope, collection: Collection, **options: Any) -> Records:
    """Return a collection as a list."""
    return [record async for record in store.user_data.records(scope, collection, **options)]


async def export_all(store: Store, scope: Scope) -> dict[str, Records]:
    """Return every collection as a list."""
    return {name: await read_records(store, scope, name) for name in COLLECTIONS}


async def make_user_binding(store: Store, scope: Scope, *user_ids: str, space_ids: tuple[str, ...] = ()) -> Binding:
    """Create a binding for some users."""
    scopes = [ConversationScope("chat", user_id) for user_id in user_ids]
    names = {"memory_space_ids": space_ids, "memory_space_names": ("notes",)}
    return await make_binding(store, scope=scope, scopes=scopes, **names)


async def make_user_data(store: Store, scope: Scope) -> None:
    """Create data of every kind."""
    conversation = await make_conversation(store, scope, title="Talk")
    drafts = [make_draft("Hi"), make_draft("Hello", "assistant"), make_draft("Psst", "system", visibility="hidden")]
    await append_drafts(store, conversation.id, *drafts, scope=scope)
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
    """Tests of `UserData`."""

    async def test_an_export_contains_all_records_of_every_status(self, store: Store) -> None:
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
        assert [closing["valid_to"] for closing in rome["validity_ends"]] == [rome["valid_to"]]
        assert [entity["status"] for entity in found["entities"]] == ["ACTIVE", "MERGED"]
        assert [binding["created_by"] for binding in found["bindings"]] == ["maya"]
        assert [len(found[name]) for name in ("conversations", "sessions", "jobs", "usage")] == [1, 1, 1, 1]
        [key] = found["api_keys"]
        assert (key["role"], key["user_id"], "digest" in key) == ("user", "maya", False)
        first, second = found["idempotent_responses"]
        assert (first["key"], first["status"], first["body"]) == ("key-1", 200, '{"said": "Hi"}')
        assert (second["key"], second["body_base64"]) == ("key-2", "/wA=")
        events = [event for event in await read_all_events(store) if event.scope == MAYA]
        assert [event["position"] for event in found["events"]] == [event.position for event in events]

    async def test_children_of_one_parent_can_be_exported_and_vectors_are_optional(self, store: Store) -> None:
        await make_user_data(store, MAYA)
        conversation, other = await make_conversation(store), await make_conversation(store, OTHER_SCOPES[0])
        await append_message(store, conversation.id, "Only this")
        await append_message(store, other.id, "Not this", OTHER_SCOPES[0])
        [message] = await read_records(store, MAYA, "messages", parent_id=conversation.id)
        assert message["content"] == [{"type": "text", "text": "Only this"}]
        assert await read_records(store, MAYA, "messages", parent_id=other.id) == []
        space = (await read_records(store, MAYA, "spaces"))[0]
        first = (await read_records(store, MAYA, "atoms", parent_id=space["id"], include_vectors=True))[0]
        assert first["vectors"] == {"e": "ADwAPAA8ADw="}

    async def test_many_records_are_exported_once_and_in_order(self, store: Store, conversation: Conversation) -> None:
        drafts = [make_draft("x" * (20_000 if n % 50 == 0 else 10)) for n in range(450)]
        await append_drafts(store, conversation.id, *drafts)
        space = await make_space(store)
        await add_atoms(store, space, *(make_atom(str(n)) for n in range(450)))
        found = await export_all(store, MAYA)
        assert [message["seq"] for message in found["messages"]] == list(range(1, 451))
        assert [atom["text"] for atom in found["atoms"]] == [str(n) for n in range(450)]
        assert len({event["position"] for event in found["events"]}) == len(found["events"]) == 902

    async def test_erasing_a_user_deletes_its_data_and_no_other(self, store: Store) -> None:
        for scope in (MAYA, *OTHER_SCOPES):
            await make_user_data(store, scope)
        before = [await export_all(store, scope) for scope in OTHER_SCOPES]
        erasure = await store.user_data.erase(MAYA, now=utc_now())
        assert all(records == [] for records in (await export_all(store, MAYA)).values())
        assert [await export_all(store, scope) for scope in OTHER_SCOPES] == before
        assert {name: erasure.counts[name] for name in COLLECTIONS} == {
            name: len(before[0][name]) for name in COLLECTIONS
        }
        counted = {"atom_vectors": 1, "atom_entities": 1, "atom_validity_ends": 1, "entity_names": 2}
        assert {name: erasure.counts[name] for name in counted} == counted
        assert len(erasure.job_ids) == 1
        assert await store.jobs.get(None, erasure.job_ids[0]) is None

    async def test_an_erasure_writes_one_anonymous_event_and_can_be_repeated(self, store: Store) -> None:
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

    async def test_shared_bindings_are_kept_without_the_erased_user(self, store: Store) -> None:
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
        left = present(await store.bindings.get(omar, everyones.id))
        assert (left.created_by, left.memory_space_ids, left.memory_space_names) == (None, (), ("notes",))
        assert left.updated_at == everyones.updated_at
        shared = present(await store.bindings.get(omar, both.id))
        assert [scope.user_id for scope in shared.conversation_scope] == ["omar"]
        assert await store.bindings.get(omar, his.id) == his
        assert await store.bindings.get(OTHER_SCOPES[2], elsewhere.id) == elsewhere
        assert await read_records(store, omar, "bindings") == seen
        assert (await store.user_data.erase(MAYA, now=utc_now())).counts["bindings"] == 0

    async def test_exported_bindings_contain_no_other_users(self, store: Store) -> None:
        space = await make_space(store, OTHER_SCOPES[0])
        await make_user_binding(store, OTHER_SCOPES[0], "maya", "omar", "nina", ANY, space_ids=(space.id,))
        await make_user_binding(store, OTHER_SCOPES[0], ANY)
        [binding] = await read_records(store, MAYA, "bindings")
        assert [scope["user_id"] for scope in binding["conversation_scope"]] == ["maya", ANY]
        assert (binding["created_by"], binding["memory_space_ids"]) == (None, [])

    async def test_writes_during_an_erasure_fail_or_are_complete(self, store: Store, second: Store) -> None:
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
