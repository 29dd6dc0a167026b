"""A user with one object of every kind, and valid requests about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from zlib import crc32

from tellback import Agent, Tellback
from tellback.chat.model import ChatRequest
from tellback.testing import FlowModel, calls, says
from tellback.testing.models import Step
from tellback.testing.nlu import parse_understanding_request
from tellback.types import message_text
from tellback.types.ids import new_id, utc_now
from tellback.types.jobs import ConversationScope, UsageRecord
from tellback.user import User
from tests.support.travel_agents import make_flight_agent

SPEC_AGENT = "greeter"
AGENT = "Wanda"
LOOKUP: dict[str, Any] = {"name": "lookup", "description": "Look up an order.", "parameters": {"type": "object"}}

_KINDS = {
    "ai-conversations": "conversation",
    "messages": "message",
    "spaces": "space",
    "atoms": "atom",
    "entities": "entity",
    "bindings": "binding",
    "jobs": "job",
    "keys": "key",
    "sessions": "session",
    "models": "model",
    "ai-agents": "desk",
}


class EndlessModel(FlowModel):
    """A model that answers every request, and calls the tool `lookup` when asked to."""

    def _answer(self, request: ChatRequest) -> Step:
        if parse_understanding_request(request) is not None or "answer" in (request.output_schema or {}).get(
            "properties", {}
        ):
            return super()._answer(request)
        text = message_text(request.messages[-1])
        if any(tool.name == "lookup" for tool in request.tools) and text.endswith("Use the tool."):
            return calls("lookup", order=7)
        return says("I see.", chunks=2)


def open_tellback(url: str, **kwargs: Any) -> Tellback:
    """Open a Tellback with this model and an agent from a spec."""
    tb = Tellback(url, model=EndlessModel(), embedder=None, extractor="verbatim", worker=False, **kwargs)
    tb.register_agent({"name": SPEC_AGENT, "systemPrompt": "Greet {{userMessage}}."})
    return tb


def flight_agent() -> Agent:
    """Return an agent with routes."""
    return make_flight_agent(model=EndlessModel())[0]


@dataclass(frozen=True, slots=True)
class SampleData:
    """The ids of a user's objects, by kind."""

    user: User
    word: str
    ids: Mapping[str, str]

    def id_of(self, kind: str) -> str:
        """Return the id of that kind; the user's word is a kind as well."""
        return self.word if kind == "word" else self.ids[kind]

    def path(self, template: str) -> dict[str, str]:
        """Return the user's ids for the parameters of a path."""
        return {name: self.ids[kind] for name, kind in path_kinds(template).items()}


def path_kinds(template: str) -> dict[str, str]:
    """Return the kinds of a path's parameters, from the segments before them.

    >>> path_kinds("/ai-memory/spaces/{space_id}/atoms")
    {'space_id': 'space'}
    """
    parts = template.split("/")
    found = {part[1:-1]: _KINDS[before] for before, part in pairwise(parts) if part[:1] == "{"}
    return {**found, "name": "spec"} if template.endswith("/invoke") else found


async def create_sample_data(tb: Tellback, user: User, word: str) -> SampleData:
    """Create one object of every kind, with `word` in all texts."""
    conversations, memory, scope = user.conversations, user.memory, user.scope
    number = crc32(word.encode())
    conversation = await conversations.create("support", f"{word} title", f"talk-{number}", {"source": word})
    message = await conversations.append_user_message(conversation.id, f"{word} said", idempotency_key=f"{word}-key")
    await conversations.append_assistant_turn(conversation.id, f"{word} answered")
    closed = await conversations.create(f"{word}-closed", f"{word} closed")
    await conversations.append_user_message(closed.id, f"{word} goodbye")
    await conversations.close(closed.id)
    space = await memory.create_space(f"{word} space", {"about": word})
    ann = await memory.create_entity(space.id, "PERSON", f"{word} Ann", f"{word} friend", {"k": word})
    bob = await memory.create_entity(space.id, "PERSON", f"{word} Bob")
    atom = await memory.add_atom(space.id, f"{word} lives in Rome", (word, "FACT"), entity_ids=[ann.id, bob.id])
    archived_atom = await memory.add_atom(space.id, f"{word} liked tea", (word, "FACT"))
    await memory.archive_atom(archived_atom.id)
    binding = await memory.create_binding(ConversationScope(f"{word}-bound", scope.user_id), [space.id])
    run = await memory.run_extraction_for_conversation(closed.id, space_id=space.id)
    usage = UsageRecord(new_id("use"), scope, "extraction", utc_now(), run.id, closed.id, f"{word}-model")
    await tb.store.jobs.add_usage([usage])
    await tb.jobs.cancel(str(run.id))  # otherwise turns would wait for jobs that nothing runs
    key = await tb.keys.create(
        "user", name=f"{word} phone", tenant_id=scope.tenant_id, app_id=scope.app_id, user_id=scope.user_id
    )
    return SampleData(
        user,
        word,
        {
            "conversation": conversation.id,
            "closed": closed.id,
            "message": message.id,
            "space": space.id,
            "atom": atom.id,
            "aside": archived_atom.id,
            "entity": ann.id,
            "alias": bob.id,
            "binding": binding.id,
            "job": str(run.id),
            "key": key.key.id,
            "user": scope.user_id,
            "session": f"web-{number}",
            "talk": f"talk-{number}",
            "model": "tellback",
            "spec": SPEC_AGENT,
            "desk": AGENT,
        },
    )


async def start_session(client: Any, data: SampleData) -> None:
    """Start a session of the user with the agent with routes; `client` belongs to the user."""
    body = {"message": f"{data.word} wants to fly", "sessionId": data.ids["session"]}
    answer = await client.post(f"/ai-agents/{AGENT}/respond", json=body)
    assert answer.status_code == 200, answer.text
