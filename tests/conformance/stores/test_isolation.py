"""No sequence of calls reads or changes data of another scope."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tellback import NotFoundError, Tellback, TellbackError
from tellback.testing import ScriptedModel, says
from tellback.user import User

pytestmark = pytest.mark.slow

NAMES = ("a", "b")
SCOPES = [(tenant, app, user) for tenant in NAMES for app in NAMES for user in NAMES]


@pytest.fixture
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def machine(tb: Tellback, runner: asyncio.Runner) -> type[RuleBasedStateMachine]:
    scopes = st.sampled_from(SCOPES)

    class Isolation(RuleBasedStateMachine):
        """Users write texts that contain their scope, and try every existing id."""

        conversations = Bundle("conversations")
        messages = Bundle("messages")

        def __init__(self) -> None:
            super().__init__()
            self.owner: dict[str, tuple[str, str, str]] = {}
            self.closed: set[str] = set()

        def user(self, scope: tuple[str, str, str]) -> User:
            tenant, app, user = scope
            return tb.user(user, tenant_id=tenant, app_id=app)

        def run(self, awaitable: Any) -> Any:
            return runner.run(awaitable)

        def run_checked(self, scope: tuple[str, str, str], id: str, awaitable: Any) -> Any:
            """Run a call; for other users it must behave as if the id did not exist."""
            if self.owner[id] != scope:
                with pytest.raises(NotFoundError):
                    self.run(awaitable)
                return None
            if id in self.closed:
                with contextlib.suppress(TellbackError):
                    self.run(awaitable)
                return None
            return self.run(awaitable)

        @rule(target=conversations, scope=scopes)
        def create(self, scope: tuple[str, str, str]) -> str:
            conversation = self.run(self.user(scope).conversations.create("chat", metadata={"of": list(scope)}))
            self.owner[conversation.id] = scope
            return str(conversation.id)

        @rule(target=messages, scope=scopes, id=conversations, key=st.sampled_from([None, "k"]))
        def append(self, scope: tuple[str, str, str], id: str, key: str | None) -> tuple[str, str] | None:
            awaitable = self.user(scope).conversations.append_user_message(id, repr(scope), idempotency_key=key)
            stored = self.run_checked(scope, id, awaitable)
            return None if stored is None else (id, stored.id)

        @rule(scope=scopes, id=conversations)
        def turn(self, scope: tuple[str, str, str], id: str) -> None:
            conversations = self.user(scope).conversations
            model = ScriptedModel([says(repr(scope))])
            outcome = self.run_checked(
                scope, id, conversations.run_turn(id, model=model, user_text=repr(scope), wait=0)
            )
            if outcome is not None:
                assert {m.text for m in outcome.appended_messages} == {repr(scope)}
                assert {m.content for m in model.requests[0].messages} == {repr(scope)}

        @rule(scope=scopes, id=conversations)
        def read(self, scope: tuple[str, str, str], id: str) -> None:
            conversations = self.user(scope).conversations
            seen = self.run(conversations.get(id))
            assert (seen is None) == (self.owner[id] != scope)
            found = self.run_checked(scope, id, conversations.raw_turns(id, include_hidden=True))
            assert {m.text for m in found or ()} <= {repr(scope)}

        @rule(scope=scopes, pair=messages)
        def read_message(self, scope: tuple[str, str, str], pair: tuple[str, str] | None) -> None:
            if pair is not None:
                found = self.run(self.user(scope).conversations.message(pair[1]))
                assert (found is None) == (self.owner[pair[0]] != scope)

        @rule(scope=scopes, id=conversations)
        def summarise(self, scope: tuple[str, str, str], id: str) -> None:
            self.run_checked(scope, id, self.user(scope).conversations.refresh_rolling_summary(id))

        @rule(scope=scopes, id=consumes(conversations))
        def close(self, scope: tuple[str, str, str], id: str) -> None:
            self.run_checked(scope, id, self.user(scope).conversations.close(id))
            if self.owner[id] == scope:
                self.closed.add(id)

        @rule(scope=scopes)
        def close_stale(self, scope: tuple[str, str, str]) -> None:
            for conversation in self.run(self.user(scope).conversations.close_stale(0)):
                assert self.owner.get(conversation.id, scope) == scope
                self.closed.add(conversation.id)

        @rule(scope=scopes)
        def follow(self, scope: tuple[str, str, str]) -> None:
            tenant, app, user = scope
            for event in self.run(tb.events.read(limit=10_000, tenant_id=tenant, app_id=app, user_id=user)):
                assert self.owner.get(event.subject_id, scope) == scope

        @invariant()
        def everyone_lists_their_own(self) -> None:
            for scope in SCOPES:
                for conversation in self.run(self.user(scope).conversations.list()):
                    assert conversation.metadata["of"] == list(scope)
                    assert (conversation.tenant_id, conversation.app_id, conversation.user_id) == scope

    return Isolation


def test_no_sequence_of_calls_crosses_a_scope(url: str, loop: asyncio.Runner) -> None:
    tb = Tellback(url)
    loop.run(tb.open())
    try:
        example_settings = settings(
            max_examples=8 if url.startswith("postgresql") else 25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine(tb, loop), settings=example_settings)
    finally:
        loop.run(tb.close())
