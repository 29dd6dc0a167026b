"""Answers that are kept for requests that come again."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from tellback.errors import IdempotencyConflictError, RequestInProgressError
from tellback.stores import IdempotencyClaim, Store, StoredResponse
from tellback.testing.stores.making import DAY, MAYA, NOON, OTHER_SCOPES
from tellback.types.scope import Scope

MINUTE = timedelta(minutes=1)
ANSWER = StoredResponse(201, "application/json", b'{"id": "conv_1"}', {"ETag": '"1"'})


async def begin_request(
    store: Store, key: str = "k", fingerprint: str = "f", scope: Scope = MAYA, now: datetime = NOON
) -> IdempotencyClaim | StoredResponse:
    """Ask for a key, for a minute."""
    return await store.idempotency.begin(scope, key, fingerprint, now=now, lease_until=now + MINUTE)


async def claim_request(
    store: Store, key: str = "k", fingerprint: str = "f", scope: Scope = MAYA, now: datetime = NOON
) -> str:
    """Claim a key that is free; gives the owner's token."""
    found = await begin_request(store, key, fingerprint, scope, now)
    assert isinstance(found, IdempotencyClaim)
    return found.owner


async def make_answered_request(store: Store, scope: Scope, key: str, body: bytes) -> None:
    """A request that was answered."""
    owner = await claim_request(store, key, scope=scope)
    assert await store.idempotency.finish(scope, key, owner, StoredResponse(200, "text/plain", body), now=NOON)


class IdempotencyContract:
    """`KeptAnswers`."""

    async def test_a_request_that_comes_again_is_given_its_answer(self, store: Store) -> None:
        owner = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)
        for _ in range(2):
            assert await begin_request(store, now=NOON + DAY / 2) == ANSWER

    @pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", "é\x00".encode(), b"x" * 1_000_000])
    async def test_an_answer_is_kept_to_the_byte(self, store: Store, body: bytes) -> None:
        answer = StoredResponse(204, "", body)
        await store.idempotency.finish(MAYA, "k", await claim_request(store), answer, now=NOON)
        assert await begin_request(store) == answer

    async def test_a_key_is_for_one_request(self, store: Store) -> None:
        owner = await claim_request(store)
        with pytest.raises(IdempotencyConflictError, match="'k'"):
            await begin_request(store, fingerprint="other")
        with pytest.raises(IdempotencyConflictError):  # nor when the claim has run out: nobody knows what it did
            await begin_request(store, fingerprint="other", now=NOON + 2 * MINUTE)
        await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)
        with pytest.raises(IdempotencyConflictError):
            await begin_request(store, fingerprint="other")
        assert await begin_request(store) == ANSWER

    async def test_who_asks_while_it_is_answered_is_told_so(self, store: Store) -> None:
        await claim_request(store)
        with pytest.raises(RequestInProgressError, match="'k'"):
            await begin_request(store, now=NOON + MINUTE / 2)

    async def test_a_claim_that_ran_out_goes_to_the_next_who_asks(self, store: Store) -> None:
        first = await claim_request(store)
        second = await claim_request(store, now=NOON + MINUTE)
        assert first != second
        assert not await store.idempotency.finish(MAYA, "k", first, StoredResponse(500, "", b"late"), now=NOON + MINUTE)
        await store.idempotency.abandon(MAYA, "k", first)
        with pytest.raises(RequestInProgressError):
            await begin_request(store, now=NOON + MINUTE)
        assert await store.idempotency.finish(MAYA, "k", second, ANSWER, now=NOON + MINUTE)
        assert await begin_request(store, now=NOON + MINUTE) == ANSWER

    async def test_a_claim_that_ran_out_may_still_be_answered_by_its_owner(self, store: Store) -> None:
        owner = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON + 5 * MINUTE)
        assert await begin_request(store, now=NOON + 5 * MINUTE) == ANSWER

    async def test_an_answer_is_given_once(self, store: Store) -> None:
        owner = await claim_request(store)
        assert await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)
        assert not await store.idempotency.finish(MAYA, "k", owner, StoredResponse(500, "", b"again"), now=NOON)
        await store.idempotency.abandon(MAYA, "k", owner)
        assert await begin_request(store) == ANSWER

    async def test_a_key_that_was_given_up_is_free_for_any_request(self, store: Store) -> None:
        owner = await claim_request(store)
        await store.idempotency.abandon(MAYA, "k", owner)
        await store.idempotency.abandon(MAYA, "k", owner)
        assert not await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)
        await claim_request(store, fingerprint="other")

    async def test_a_key_of_another_user_is_another_key(self, store: Store) -> None:
        owner = await claim_request(store)
        for scope in OTHER_SCOPES:
            await claim_request(store, fingerprint="other", scope=scope)
            assert not await store.idempotency.finish(scope, "k", owner, ANSWER, now=NOON)
            await store.idempotency.abandon(scope, "k", owner)
        assert await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)

    async def test_answers_are_kept_for_a_day(self, store: Store) -> None:
        await store.idempotency.finish(MAYA, "k", await claim_request(store), ANSWER, now=NOON)
        assert await begin_request(store, now=NOON + DAY) == ANSWER
        await claim_request(store, fingerprint="other", now=NOON + DAY + MINUTE)

    async def test_old_answers_are_forgotten_a_few_at_a_time(self, store: Store) -> None:
        for n in range(5):
            await make_answered_request(store, (MAYA, *OTHER_SCOPES)[n % 4], f"k{n}", b"")
        await claim_request(store, "young", now=NOON + MINUTE)
        forget = store.idempotency.delete_before
        assert [await forget(NOON + MINUTE, limit=3) for _ in range(3)] == [3, 2, 0]
        with pytest.raises(RequestInProgressError):
            await begin_request(store, "young", now=NOON + MINUTE)

    async def test_an_answer_to_an_erased_user_is_not_kept(self, store: Store) -> None:
        owner = await claim_request(store)
        await claim_request(store, scope=OTHER_SCOPES[0])
        erasure = await store.user_data.erase(MAYA, now=NOON)
        assert erasure.counts["kept_answers"] == 1
        assert not await store.idempotency.finish(MAYA, "k", owner, ANSWER, now=NOON)
        assert (await store.user_data.erase(MAYA, now=NOON)).counts["kept_answers"] == 0
        with pytest.raises(RequestInProgressError):
            await begin_request(store, scope=OTHER_SCOPES[0])

    async def test_of_many_who_ask_at_once_one_begins(self, store: Store, second: Store) -> None:
        for n in range(5):
            asked = [begin_request(opening, f"k{n}") for opening in (store, second) * 6]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert sum(isinstance(each, IdempotencyClaim) for each in found) == 1
            assert sum(isinstance(each, RequestInProgressError) for each in found) == 11

    async def test_of_many_who_take_over_one_does(self, store: Store, second: Store) -> None:
        await claim_request(store)
        asked = [begin_request(opening, now=NOON + 2 * MINUTE) for opening in (store, second) * 6]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(each, IdempotencyClaim) for each in found) == 1
        assert sum(isinstance(each, RequestInProgressError) for each in found) == 11

    async def test_keys_that_come_and_go_are_never_two_peoples(self, store: Store, second: Store) -> None:
        at_work: set[str] = set()

        async def work(opening: Store) -> int:
            done = 0
            for _ in range(25):
                try:
                    owner = await claim_request(opening)
                except RequestInProgressError:
                    await asyncio.sleep(0)
                    continue
                assert not at_work
                at_work.add(owner)
                await asyncio.sleep(0)
                at_work.remove(owner)
                await opening.idempotency.abandon(MAYA, "k", owner)
                done += 1
            return done

        async with asyncio.timeout(30):
            assert sum(await asyncio.gather(*(work(opening) for opening in (store, second) * 3))) > 0
