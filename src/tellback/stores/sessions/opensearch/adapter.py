"""`OpenSearchAdapter`: sessions in OpenSearch or Elasticsearch 7, and their messages by words."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from opensearchpy import AsyncOpenSearch

from tellback.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StoreClosedError,
)
from tellback.stores.sessions import checks
from tellback.stores.sessions.opensearch import indices as definitions
from tellback.stores.sessions.opensearch.documents import Held, Layout
from tellback.stores.sessions.opensearch.keeper import Keeper
from tellback.stores.sessions.opensearch.link import Link, checked, place_of
from tellback.stores.sessions.opensearch.purging import purge
from tellback.stores.sessions.opensearch.repositories import Messages, Open, Sessions
from tellback.stores.sessions.opensearch.searching import Searcher
from tellback.stores.sessions.saving import after_turn
from tellback.types.jsontext import is_storable
from tellback.types.sessions import MessageData, SessionData

_REFRESH = {False: "false", True: "true", "wait_for": "wait_for"}
_LONGEST_QUERY = 2_000
"""Characters. More words than a server puts into one query do not fit into that."""


class OpenSearchAdapter:
    """Sessions in OpenSearch or Elasticsearch 7, for those who want to search what was said, or have it anyway.

    `client` is an `AsyncOpenSearch`, which stays its owner's to close, or a URL. `indices` names the two indices, and
    `field_mappings` their fields: `{"sessions": {"user_id": "customer"}}`. With `auto_create_indices=False` both must
    be there, as `index_definitions` says. `refresh` is when a change is seen by searches of others: False within the
    index's refresh interval, True at once, `"wait_for"` returns when it is. This adapter's own lists are complete
    anyway, as it makes what is stored visible before it searches; `fresh_searches=False` saves that work. `session_ttl`
    and `message_ttl` are seconds or a timedelta, and None is for ever; something must call `purge_expired` now and
    then.

    >>> adapter = OpenSearchAdapter("https://app:secret@search.example:9200", indices={"sessions": "shop-sessions"})
    >>> adapter.indices
    {'sessions': 'shop-sessions', 'messages': 'agent_messages'}

    There are no transactions, and none are needed: a session's document is replaced only if it is still the one that
    was read, and the messages of a turn ride in that same write before they get documents of their own. Reading by id
    sees every write at once. What was acknowledged outlives a kill of the server, as its translog is synced with
    each request: leave `index.translog.durability` at `request`.
    """

    def __init__(
        self,
        client: AsyncOpenSearch | str,
        *,
        indices: Mapping[str, str] | None = None,
        auto_create_indices: bool = True,
        refresh: bool | Literal["wait_for"] = False,
        fresh_searches: bool = True,
        field_mappings: Mapping[str, Mapping[str, str]] | None = None,
        session_ttl: timedelta | float | None = None,
        message_ttl: timedelta | float | None = None,
    ) -> None:
        if refresh not in (True, False, "wait_for"):
            raise ConfigurationError(f"refresh is True, False or 'wait_for', not {refresh!r:.80}.")
        self._client = checked(client)
        self._create = auto_create_indices
        self._refresh = _REFRESH[refresh]
        self._fresh = fresh_searches
        self.indices = definitions.names(indices)
        self._layout = Layout(
            self.indices["sessions"],
            self.indices["messages"],
            *definitions.fields(field_mappings),
            _millis("session_ttl", session_ttl),
            _millis("message_ttl", message_ttl),
        )
        self._opened: Open | None = None
        self.session_repository = Sessions(self._open, self._layout)
        self.message_repository = Messages(self._open, self._layout)

    def __repr__(self) -> str:
        return f"OpenSearchAdapter({place_of(self._client)!r}, indices={self.indices!r})"

    @property
    def index_definitions(self) -> dict[str, dict[str, Any]]:
        """What each index is created with, by its name: for those who create them themselves."""
        return {
            self.indices["sessions"]: definitions.session_definition(self._layout.sessions),
            self.indices["messages"]: definitions.message_definition(self._layout.messages),
        }

    async def initialize(self) -> None:
        """Connect, and create the indices that are missing."""
        current = self._opened
        if current is not None and current.link.loop.is_closed():
            await self._give_up(current)
            current = None
        link = Link.to(self._client) if current is None else current.link
        try:
            for name, definition in self.index_definitions.items():
                await definitions.prepare(link, name, definition, create=self._create)
        except BaseException:
            if current is None:
                await link.close()
            raise
        if current is not None:
            return
        if self._opened is None:
            keeper = Keeper(link, self._layout, self._refresh)
            self._opened = Open(link, keeper, Searcher(keeper, fresh=self._fresh))
        else:  # another call of this was faster
            await link.close()

    async def disconnect(self) -> None:
        """Close the connections that were opened here."""
        if self._opened is not None:
            await self._give_up(self._opened)

    async def save(self, session: SessionData, messages: Sequence[MessageData]) -> SessionData:
        """Store a session after a turn, and the messages of that turn, in one step."""
        checks.session(session)
        new = checks.messages(messages, session.id)

        def decide(held: Held | None, now: int) -> Held:
            saved = after_turn(None if held is None else held.living(now), session, new)
            return self._layout.stored(held, session.id, saved, new, now)

        return self._layout.given_back(await self._open().keeper.change(session.id, decide))

    async def purge_expired(self) -> int:
        """Delete what is past its time, and finish what broke off."""
        return await purge(self._open().keeper)

    async def search_messages(
        self, text: str, *, user_id: str | None = None, limit: int | None = 20
    ) -> list[MessageData]:
        """Messages that have some of these words, the best first: of a user, or of all of them.

        A message without a user is found as one of its session's user.
        """
        if not isinstance(text, str) or not text.strip() or not is_storable(text) or len(text) > _LONGEST_QUERY:
            raise InvalidArgumentError(
                f"text is words to search for, at most {_LONGEST_QUERY} characters: {text!r:.80}"
            )
        owner = checks.optional_id("user_id", user_id)
        found = await self._open().searcher.messages(text, owner, checks.limit_of(limit))
        return [self._layout.message_of(each) for each in found]

    def _open(self) -> Open:
        if self._opened is None:
            raise StoreClosedError("The OpenSearch adapter is not open: call initialize() first.")
        return self._opened

    async def _give_up(self, opened: Open) -> None:
        self._opened = None
        # Connections of a loop that has ended went with it.
        with contextlib.suppress(RuntimeError) if opened.link.loop.is_closed() else contextlib.nullcontext():
            await opened.link.close()


def _millis(what: str, ttl: timedelta | float | None) -> int | None:
    seconds = checks.ttl(what, ttl)
    return None if seconds is None else math.ceil(seconds * 1000)
