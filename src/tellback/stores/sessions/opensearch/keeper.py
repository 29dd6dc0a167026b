"""Changes of sessions. A session's document is where each of them is decided, in one step.

New messages are stored inside that document first, and put into the index of messages after. Whoever changes the
document next makes sure that they are there before dropping them from it. So nothing is lost wherever it breaks off.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tellback.errors import StoreBusyError, StoreError, StoreUnavailableError, TellbackError
from tellback.stores.sessions.opensearch.documents import (
    KEPT_WRITES,
    OURS,
    Document,
    Held,
    Layout,
    document_id,
    now_millis,
)
from tellback.stores.sessions.opensearch.failures import DOUBT, is_lost, refusal
from tellback.stores.sessions.opensearch.link import Link

log = logging.getLogger("tellback.stores")

PATIENCE_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Found:
    """What is held, and which write of it was read."""

    held: Held
    seq_no: int
    primary_term: int


WhichWrite = tuple[str, int, int]
"""The id of a document, and which write of it was read: its number, and the term of its primary."""

Decide = Callable[[Held | None, int], Held | None]
"""Makes of what is held now, at this time, what shall be held; None leaves it as it is. It may be called again."""


@dataclass(slots=True)
class _Tried:
    """What one change tried to store, so that it knows its own write when the answer was lost."""

    deadline: float
    longest: float = 0.01
    last: Held | None = None
    lost: Held | None = None

    async def pause(self, session_id: str) -> None:
        """Wait so that those who met here do not meet again; but not for ever."""
        if asyncio.get_running_loop().time() > self.deadline:
            raise StoreBusyError(
                f"Session {session_id!r} was changed by others for {PATIENCE_SECONDS:g} seconds. Try again."
            )
        await asyncio.sleep(random.uniform(0, self.longest))
        self.longest = min(2 * self.longest, 0.5)

    def named(self, wanted: Held) -> Held:
        """The same with a name for this write."""
        self.last = replace(wanted, writes=(*wanted.writes, uuid.uuid4().hex[:16])[-KEPT_WRITES:])
        return self.last

    def recognized(self, found: Found | None) -> Held | None:
        """What was stored, if one of these was. A client may have sent the last one twice, and say it was refused."""
        if found is None:
            return None
        own = (each for each in (self.last, self.lost) if each is not None and each.writes[-1] in found.held.writes)
        return next(own, None)

    def in_doubt(self, error: StoreError) -> StoreError:
        """The error, and that an earlier attempt may have been stored if so."""
        if self.lost is None or error.in_doubt:
            return error
        return type(error)(f"{error}{DOUBT}", in_doubt=True)


class Keeper:
    """Reads and changes what is held of sessions."""

    def __init__(self, link: Link, layout: Layout, refresh: str) -> None:
        self.link = link
        self.layout = layout
        self._refresh = refresh

    async def find(self, session_id: str, *, brief: bool = False) -> Found | None:
        """What is held of a session now; `brief` leaves out all but which life of it that is."""
        wanted = f"{self.layout.sessions['id']},{OURS}.life,{OURS}.record"
        params = {"_source_includes": wanted} if brief else {}
        answer = await self.link.ask("GET", self._path(session_id), params=params, accept=(404,))
        if "found" not in answer:
            raise refusal(404, answer.get("error"), self.link.place)
        if not answer["found"]:
            return None
        held = self.layout.held_of(answer["_source"])
        return Found(held, answer["_seq_no"], answer["_primary_term"])

    async def lives(self, held: Held) -> bool:
        """Whether it was not deleted since."""
        found = await self.find(held.id, brief=True)
        return found is not None and not found.held.deleted and found.held.life == held.life

    async def change(self, session_id: str, decide: Decide) -> Held | None:
        """Decide on what is held, store that in one step, and give it; decide again if another was faster."""
        tried = _Tried(asyncio.get_running_loop().time() + PATIENCE_SECONDS)
        while True:
            try:
                found = await self.find(session_id)
                own = tried.recognized(found)
                if own is None:
                    held = None if found is None else found.held
                    wanted = decide(held, now_millis())
                    if wanted is None:
                        return None
                    await self._make_room(held)
                    own = tried.named(wanted)
                    if not await self._put(own, found, tried):
                        await tried.pause(session_id)
                        continue
            except StoreError as error:
                raise tried.in_doubt(error) from error.__cause__
            return await self._finished(own)

    async def settle(self, several: Sequence[Held]) -> None:
        """Put messages into their index that are not there yet."""
        now, layout = now_millis(), self.layout
        pending = [(held, each) for held in several for each in held.pending if layout.has_time(each, now)]
        keys = (held.message_key(layout.position_of(each)) for held, each in pending)
        found = await self.link.get_many(layout.messages_index, [{"_id": key, "_source": False} for key in keys])
        missing: dict[str, tuple[Held, list[Document]]] = {}
        for (held, each), there in zip(pending, found, strict=True):
            if not there["found"]:
                missing.setdefault(held.id, (held, []))[1].append(each)
        for held, messages in missing.values():
            await self._index(held, messages)

    async def messages_at(self, held: Held, positions: Sequence[int]) -> list[Document]:
        """The documents of messages that are there, in the order of the positions."""
        pending = {self.layout.position_of(each): each for each in held.pending}
        asked = [each for each in positions if each not in pending]
        found = await self.link.get_many(self.layout.messages_index, ({"_id": held.message_key(n)} for n in asked))
        known = {n: each["_source"] for n, each in zip(asked, found, strict=True) if each["found"]}
        return [each for n in positions if (each := pending.get(n, known.get(n))) is not None]

    async def erase(self, held: Held) -> None:
        """Delete the messages of a session that was deleted, and then what is left of itself."""
        keys = (held.message_key(position) for position in range(1, held.last + 1))
        await self.delete_messages(keys)
        found = await self.find(held.id, brief=True)
        if found is not None and found.held.deleted and found.held.life == held.life:
            await self.remove([(document_id(held.id), found.seq_no, found.primary_term)])

    async def remove(self, documents: Sequence[WhichWrite]) -> int:
        """Delete documents of sessions that are as they were read, and say how many."""
        actions = (
            ("delete", {"_id": id, "if_seq_no": seq_no, "if_primary_term": term}, None)
            for id, seq_no, term in documents
        )
        return await self.link.bulk(actions, self._refresh, self.layout.sessions_index)

    async def _make_room(self, held: Held | None) -> None:
        if held is not None and held.deleted:
            await self.delete_messages(held.message_key(position) for position in range(1, held.last + 1))
        elif held is not None:
            await self.settle([held])

    async def _put(self, held: Held, found: Found | None, tried: _Tried) -> bool:
        """Store what is held if nobody stored anything since it was read, and say whether so."""
        params: dict[str, Any] = {"refresh": self._refresh}
        if found is None:
            params["op_type"] = "create"
        else:
            params |= {"if_seq_no": found.seq_no, "if_primary_term": found.primary_term}
        document = self.layout.session_document(held, now_millis())
        try:
            answer = await self.link.change("POST", self._path(held.id), body=document, params=params, accept=(409,))
        except StoreUnavailableError as error:
            # Whether it was stored, the next look tells; but a server that is slow is not asked again.
            if not error.in_doubt or tried.lost or not is_lost(error.__cause__):
                raise
            tried.lost = held
            return False
        return "error" not in answer

    async def _finished(self, held: Held) -> Held:
        """What was decided is stored: now do what follows from it."""
        if held.deleted:
            try:
                await self.erase(held)
            except TellbackError as error:
                text = f"{error} The session is deleted, but not all of its messages: delete it again, or purge."
                raise StoreUnavailableError(text, in_doubt=True) from error
        elif held.pending:
            try:
                await self._index(held, held.pending)
            except TellbackError as error:
                # They are stored, in the session's document, and the next change puts them into the index.
                log.warning("messages of session %r are not in the index yet: %s", held.id, error)
        return held

    async def _index(self, held: Held, messages: Sequence[Document]) -> None:
        keys = [held.message_key(self.layout.position_of(each)) for each in messages]
        actions = (("index", {"_id": key}, each) for key, each in zip(keys, messages, strict=True))
        await self.link.bulk(actions, self._refresh, self.layout.messages_index)
        if not await self.lives(held):
            # It was deleted meanwhile, perhaps before these came.
            await self.delete_messages(keys)

    async def delete_messages(self, keys: Iterable[str]) -> int:
        """Delete documents of messages, and say how many were there."""
        actions = (("delete", {"_id": key}, None) for key in keys)
        return await self.link.bulk(actions, self._refresh, self.layout.messages_index)

    def _path(self, session_id: str) -> str:
        return f"/{self.layout.sessions_index}/_doc/{document_id(session_id)}"
