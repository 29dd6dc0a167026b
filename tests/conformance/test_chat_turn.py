"""`run_chat_turn` and its steps, on every kind of store."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tellback import (
    ChatOptions,
    InvalidArgumentError,
    NotFoundError,
    Tellback,
    ToolCall,
    events,
    message_text,
    request,
    tool,
)
from tellback.errors import ConversationClosedError, ProviderOverloadedError
from tellback.testing import FunctionModel, ScriptedModel, calls, raises, says
from tellback.turn import (
    TurnConfig,
    TurnInput,
    build_system,
    persist_assistant_turn,
    persist_user_turn,
    reply_payload,
    run_chat_turn,
    stream_llm,
    user_prompt,
)
from tellback.types.conversations import Identity, Session
from tellback.user import User

MAYA = Identity("maya", "Maya")


@pytest.fixture
def maya(tb: Tellback) -> User:
    return tb.user("maya")


def config(user: User, *steps: Any, **changes: Any) -> TurnConfig:
    model = ScriptedModel(steps) if steps else None
    return TurnConfig(user, "helper", chat_opts=ChatOptions(model=model or ""), **changes)


def turn_input(text: str, session: str = "web", **changes: Any) -> TurnInput:
    return TurnInput(Session(session), MAYA, text, **changes)


def model_of(cfg: TurnConfig) -> ScriptedModel:
    assert isinstance(cfg.chat_opts.model, ScriptedModel)
    return cfg.chat_opts.model


async def read_log(user: User, session: str = "web") -> list[tuple[str, str]]:
    conversation = await user.conversations.find("helper", session)
    return (
        [] if conversation is None else [(m.role, m.text) for m in await user.conversations.raw_turns(conversation.id)]
    )


async def create_space_with_facts(user: User, *facts: str, space: str = "default") -> str:
    created = await user.memory.create_space(space)
    for text in facts:
        await user.memory.add_atom(created.id, text)
    return created.id


async def test_a_turn_stores_the_message_and_the_reply(maya: User) -> None:
    cfg = config(maya, says("Hello, Maya!"))
    result = await run_chat_turn(cfg, turn_input("Hi!"))
    assert (result.ok, result.text, str(result), result.status) == (True, "Hello, Maya!", "Hello, Maya!", "completed")
    assert (result.session_id, result.problems, result.pending) == ("web", (), ())
    assert await read_log(maya) == [("user", "Hi!"), ("assistant", "Hello, Maya!")]
    conversation = await maya.conversations.find("helper", "web")
    assert conversation is not None
    assert result.conversation_id == conversation.id
    assert [m.id for m in result.messages] == [m.id for m in await maya.conversations.raw_turns(conversation.id)]
    assert result.message_id == result.messages[0].id
    assert {m.turn_id for m in result.messages} == {result.turn_id}


async def test_a_message_never_recalls_itself(maya: User) -> None:
    """Recall runs before the message is stored, and the message is stored before the model call."""
    await create_space_with_facts(maya, "Maya lives in Lisbon.")
    seen: list[list[tuple[str, str]]] = []

    async def answer(request: Any) -> str:
        seen.append(await read_log(maya))
        assert "Maya lives in Lisbon." in request.system
        assert "zebra" not in request.system
        return "Noted."

    cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=FunctionModel(answer)), system_base="Be kind.")
    words = "I live in Lisbon with a zebra."
    result = await run_chat_turn(cfg, turn_input(words, recall_opts={"min_score": 0}))
    assert seen == [[("user", words)]]
    assert [atom.text for atom in result.atoms_used] == ["Maya lives in Lisbon."]


async def test_recalled_memories_follow_a_heading_in_the_system_prompt(maya: User) -> None:
    await create_space_with_facts(maya, "Maya is vegetarian.")
    cfg = config(maya, says("1"), says("2"), says("3"), system_base="Be kind.")
    ask = "What should a vegetarian like Maya eat?"
    variants: list[dict[str, Any]] = [{}, {"memory_heading": "# Known"}, {"recall_opts": {"min_score": 1.0}}]
    for changes in variants:
        await run_chat_turn(cfg, turn_input(ask, session=str(changes), **changes))
    first, second, third = (str(request.system) for request in model_of(cfg).requests)
    assert first.startswith("Be kind.\n\n## Memory\n\n")
    assert "Maya is vegetarian." in first
    assert second.startswith("Be kind.\n\n# Known\n\n")
    assert third == "Be kind."


async def test_recall_options_select_limit_and_space(maya: User) -> None:
    await create_space_with_facts(maya, "Maya likes tea.", "Maya likes green tea.", "Maya likes tea at five.")
    work_space = await create_space_with_facts(maya, "Maya sells tea.", space="work")
    cfg = config(maya, *["ok"] * 3)
    found = []
    variants: list[dict[str, Any]] = [{"limit": 1}, {"space": "work"}, {"space_id": work_space}]
    for number, opts in enumerate(variants):
        request = turn_input("What tea does Maya like or sell?", str(number), recall_opts={"min_score": 0, **opts})
        found.append([atom.text for atom in (await run_chat_turn(cfg, request)).atoms_used])
    assert len(found[0]) == 1
    assert found[1:] == [["Maya sells tea."], ["Maya sells tea."]]


async def test_a_very_long_message_is_answered(maya: User) -> None:
    await create_space_with_facts(maya, "Maya is vegetarian.")
    cfg = config(maya, says("That is long."))
    result = await run_chat_turn(cfg, turn_input("vegetarian " * 5_000))
    assert (result.text, result.problems) == ("That is long.", ())


async def test_a_space_of_another_user_is_not_found(tb: Tellback, maya: User) -> None:
    foreign = await create_space_with_facts(tb.user("omar"), "Omar's secret is 42.")
    cfg = config(maya, says("never"))
    with pytest.raises(NotFoundError):
        await run_chat_turn(cfg, turn_input("What is the secret?", recall_opts={"space_id": foreign}))
    with pytest.raises(NotFoundError):
        await build_system(cfg, turn_input("What is the secret?", recall_opts={"space_id": foreign}))
    assert model_of(cfg).requests == []
    assert await read_log(maya) == []


async def test_an_override_is_the_whole_prompt_and_nothing_is_recalled(maya: User) -> None:
    await create_space_with_facts(maya, "Maya is vegetarian.")
    cfg = config(maya, says("ok"), system_base="Be kind.")
    result = await run_chat_turn(cfg, turn_input("What does a vegetarian eat?", system_override="Sum it up."))
    assert model_of(cfg).requests[0].system == "Sum it up."
    assert (result.context, result.atoms_used) == (None, ())
    assert await build_system(cfg, turn_input("?", system_override="Sum it up.")) == "Sum it up."


async def test_a_session_continues_and_others_are_separate(maya: User) -> None:
    cfg = config(maya, *(says(str(n)) for n in range(3)))
    first = await run_chat_turn(cfg, turn_input("one"))
    second = await run_chat_turn(cfg, turn_input("two"))
    other = await run_chat_turn(cfg, turn_input("three", session="phone"))
    assert first.conversation_id == second.conversation_id != other.conversation_id
    sent = [[(m.role, message_text(m)) for m in request.messages] for request in model_of(cfg).requests]
    assert sent == [
        [("user", "one")],
        [("user", "one"), ("assistant", "0"), ("user", "two")],
        [("user", "three")],
    ]
    by_conversation_id = TurnInput(
        Session("else", conversation_id=first.conversation_id), MAYA, "four", fallback_text="4"
    )
    assert (await run_chat_turn(cfg, by_conversation_id)).conversation_id == first.conversation_id


async def test_concurrent_first_turns_share_one_conversation(tb: Tellback, maya: User) -> None:
    model = FunctionModel(lambda request: f"re: {message_text(request.messages[-1])}")
    handles = (maya, Tellback(tb.store).user("maya"))
    results = await asyncio.gather(
        *(
            run_chat_turn(TurnConfig(handles[n % 2], "helper", chat_opts=ChatOptions(model=model)), turn_input(str(n)))
            for n in range(6)
        )
    )
    assert len({result.conversation_id for result in results}) == 1
    assert len(await maya.conversations.list("helper")) == 1
    texts = [text for _, text in await read_log(maya)]
    assert len(texts) == 12
    assert all(answer == f"re: {words}" for words, answer in zip(texts[::2], texts[1::2], strict=True))
    assert len(await maya.memory.list_spaces()) == len(await maya.memory.list_bindings()) == 1


@pytest.mark.parametrize("keeps_user", [True, False])
@pytest.mark.parametrize("keeps_reply", [True, False])
async def test_persist_options_select_what_is_stored(maya: User, keeps_user: bool, keeps_reply: bool) -> None:
    cfg = config(maya, says("Hello!"), says("Again."))
    result = await run_chat_turn(cfg, turn_input("Hi", persist_user=keeps_user, persist_assistant=keeps_reply))
    assert (result.ok, result.text, result.problems) == (True, "Hello!", ())
    stored = [("user", "Hi")] * keeps_user + [("assistant", "Hello!")] * keeps_reply
    assert await read_log(maya) == stored
    assert [message_text(m) for m in model_of(cfg).requests[0].messages] == ["Hi"]
    if not stored:
        assert result.conversation_id is None
        assert await maya.conversations.list() == []
        assert await maya.memory.list_spaces() == []
        assert await maya.memory.list_bindings() == []
    await run_chat_turn(cfg, turn_input("And?"))
    assert [(m.role, message_text(m)) for m in model_of(cfg).requests[1].messages] == [*stored, ("user", "And?")]


async def test_any_false_persist_option_stores_nothing(maya: User) -> None:
    zero: Any = 0
    await run_chat_turn(config(maya, says("Hello!")), turn_input("Hi", persist_user=zero, persist_assistant=zero))
    assert await maya.conversations.list() == []


async def test_a_dry_run_reads_the_log_without_writing(maya: User) -> None:
    cfg = config(maya, says("Hello!"), says("Dry."))
    first = await run_chat_turn(cfg, turn_input("Hi"))
    dry_result = await run_chat_turn(cfg, turn_input("And?", persist_user=False, persist_assistant=False))
    assert dry_result.conversation_id == first.conversation_id
    assert [message_text(m) for m in model_of(cfg).requests[1].messages] == ["Hi", "Hello!", "And?"]
    assert len(await read_log(maya)) == 2


@pytest.mark.parametrize("keeps_user", [True, False])
async def test_a_turn_is_answered_if_its_conversation_is_closed_in_the_meantime(maya: User, keeps_user: bool) -> None:
    conversation = await maya.conversations.create("helper")

    async def close() -> str:
        await maya.conversations.close(conversation.id)
        return "closed"

    model = ScriptedModel([calls("close"), says("Done.")])
    cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=model, tools=[close]))
    result = await run_chat_turn(
        cfg, TurnInput(Session("s", conversation.id), MAYA, "Close it", persist_user=keeps_user)
    )
    assert result.text == "Done."
    stored = [m.role for m in await maya.conversations.raw_turns(conversation.id)]
    if keeps_user:
        assert (stored, result.problems) == (["user", "assistant", "tool", "assistant"], ())
    else:
        assert (stored, {problem.step for problem in result.problems}) == (["assistant"], {"store_reply"})


async def test_metadata_and_source_are_stored_with_message_and_reply(maya: User) -> None:
    cfg = config(maya, says("1"), says("2"))
    await run_chat_turn(cfg, turn_input("Hi"))
    await run_chat_turn(
        cfg,
        turn_input(
            "Hi again",
            user_source="mail",
            user_metadata={"lang": "pt", "role": "admin"},
            assistant_source="bot",
            assistant_metadata={"tone": "warm", "role": "user"},
        ),
    )
    conversation = await maya.conversations.find("helper", "web")
    assert conversation is not None
    assert conversation.metadata == {"speakers": {"user": "Maya"}}
    assert [m.metadata for m in await maya.conversations.raw_turns(conversation.id)] == [
        {"source": "helper", "sender": "maya", "role": "user"},
        {"source": "helper", "role": "assistant"},
        {"source": "mail", "sender": "maya", "lang": "pt", "role": "user"},
        {"source": "bot", "tone": "warm", "role": "assistant"},
    ]


async def test_a_fallback_needs_no_model_and_is_stored(maya: User) -> None:
    run_events: list[events.RunEvent] = []
    with events.listen(run_events.append):
        result = await run_chat_turn(config(maya), turn_input("Hi", fallback_text="No key is set."))
    assert (result.ok, result.text, result.status) == (True, "No key is set.", "completed")
    assert await read_log(maya) == [("user", "Hi"), ("assistant", "No key is set.")]
    assert [event.type for event in run_events] == ["reply:start", "reply:delta", "reply:end"]
    assert run_events[-1].data["text"] == "No key is set."
    offline_result = await run_chat_turn(config(maya), turn_input("Hi"))
    assert "becomes a memory" in offline_result.text


async def test_a_fallback_overrides_all_model_options(maya: User) -> None:
    model = ScriptedModel([])
    opts = ChatOptions(model=model, tools=[message_text], output_type=dict[str, int])
    cfg = TurnConfig(maya, "helper", chat_opts=opts)
    assert str(await run_chat_turn(cfg, turn_input("Hi", fallback_text="Later."))) == "Later."
    assert model.requests == []


@pytest.mark.parametrize(
    ("payload", "ids"),
    [
        (None, ("web", None)),
        ({"session_id": "tab-1", "message_id": "m-1"}, ("tab-1", "m-1")),
        ({"sessionId": "tab-1", "messageId": "m-1"}, ("tab-1", "m-1")),
        ({"message_id": "m-1", "more": 1}, ("web", "m-1")),
    ],
)
async def test_every_event_contains_the_clients_ids(
    maya: User, payload: dict[str, Any] | None, ids: tuple[str, str | None]
) -> None:
    request_input = turn_input("Hi", payload=payload)
    assert reply_payload(request_input) == {"session_id": ids[0], "message_id": ids[1]}
    run_events: list[events.RunEvent] = []
    with events.listen(run_events.append):
        result = await run_chat_turn(config(maya, says("Hello!", chunks=3), stream_label="chat"), request_input)
    assert [event.type for event in run_events] == ["reply:start", "reply:delta", "reply:delta", "reply:end"]
    assert [event.data.get("text") for event in run_events] == [None, "Hel", "lo!", "Hello!"]
    reported_ids = {
        (event.data["stream"], event.data["session_id"], event.data["message_id"], event.data["conversation_id"])
        for event in run_events
    }
    assert reported_ids == {("chat", ids[0], ids[1] or result.messages[0].id, result.conversation_id)}
    assert (result.session_id, result.message_id) == (ids[0], ids[1] or result.messages[0].id)


@pytest.mark.parametrize("after", ["", "Hel"])
async def test_a_failing_model_ends_the_turn_and_emits_an_error(maya: User, after: str) -> None:
    run_events: list[events.RunEvent] = []
    failing = raises(ProviderOverloadedError("too busy"), after=after)
    cfg = config(maya, failing, says("Here again."))
    with events.listen(run_events.append), pytest.raises(ProviderOverloadedError):
        await run_chat_turn(cfg, turn_input("Hi"))
    assert [event.type for event in run_events] == ["reply:start", *["reply:delta"] * bool(after), "reply:error"]
    assert run_events[-1].data["error_type"] == "ProviderOverloadedError"
    assert "too busy" in run_events[-1].data["error"]
    assert run_events[-1].data["session_id"] == "web"
    assert await read_log(maya) == [("user", "Hi")]
    assert str(await run_chat_turn(cfg, turn_input("Well?"))) == "Here again."


async def test_a_cancelled_turn_emits_an_error_and_the_next_one_runs(maya: User) -> None:
    turn_started = asyncio.Event()
    run_events: list[events.RunEvent] = []

    async def hang(request: Any) -> str:
        turn_started.set()
        await asyncio.sleep(60)
        return "never"

    cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=FunctionModel(hang)))
    with events.listen(run_events.append):
        turn = asyncio.create_task(run_chat_turn(cfg, turn_input("Hi")))
    await asyncio.wait_for(turn_started.wait(), 10)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert [event.type for event in run_events] == ["reply:start", "reply:error"]
    assert run_events[-1].data["error_type"] == "CancelledError"
    assert str(await run_chat_turn(config(maya, says("ok")), turn_input("Still there?"))) == "ok"


async def test_each_step_can_be_called_directly(maya: User) -> None:
    await create_space_with_facts(maya, "Maya is vegetarian.")
    cfg = config(maya, says("Try the tofu.", chunks=5), system_base="Be kind.")
    request_input = turn_input("What does a vegetarian eat?")
    system = await build_system(cfg, request_input)
    assert "Maya is vegetarian." in system
    assert await maya.conversations.list() == []
    assert await maya.memory.list_bindings() == []
    stored = await persist_user_turn(cfg, request_input)
    run_events: list[events.RunEvent] = []
    with events.listen(run_events.append):
        text = await stream_llm(cfg, reply_payload(request_input), system, user_prompt(request_input))
    stored_reply = await persist_assistant_turn(cfg, request_input, text)
    assert stored_reply is not None
    assert (stored.role, stored_reply.role, stored.turn_id) == ("user", "assistant", stored_reply.turn_id)
    assert (stored.metadata, stored_reply.metadata) == (
        {"source": "helper", "sender": "maya", "role": "user"},
        {"source": "helper", "role": "assistant"},
    )
    assert await read_log(maya) == [("user", request_input.text), ("assistant", "Try the tofu.")]
    assert model_of(cfg).requests[0].system == system
    assert [event.type for event in run_events] == ["reply:start", *["reply:delta"] * 3, "reply:end"]
    assert await persist_assistant_turn(cfg, request_input, "") is None
    assert len(await read_log(maya)) == 2


async def test_a_step_called_directly_raises_its_error(maya: User) -> None:
    cfg = config(maya, raises(ProviderOverloadedError("too busy")))
    run_events: list[events.RunEvent] = []
    with events.listen(run_events.append), pytest.raises(ProviderOverloadedError):
        await stream_llm(cfg, {"session_id": "web"}, "", "Hi")
    assert [event.type for event in run_events] == ["reply:start", "reply:error"]


async def test_a_closed_or_unknown_conversation_is_rejected(maya: User) -> None:
    cfg = config(maya, says("never"))
    nowhere = Session("s", conversation_id="conv_nothing")
    for stored in (True, False):
        with pytest.raises(NotFoundError):
            await run_chat_turn(cfg, TurnInput(nowhere, MAYA, "Hi", persist_user=stored, persist_assistant=stored))
    with pytest.raises(NotFoundError):
        await build_system(cfg, TurnInput(nowhere, MAYA, "Hi"))
    closed = await maya.conversations.create("helper")
    await maya.conversations.close(closed.id)
    with pytest.raises(ConversationClosedError):
        await run_chat_turn(cfg, TurnInput(Session("s", conversation_id=closed.id), MAYA, "Hi"))
    assert model_of(cfg).requests == []


async def test_pending_calls_end_the_turn(maya: User) -> None:
    @tool(requires_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount} for {request.session()}"

    model = ScriptedModel([calls(ToolCall("c1", "pay", {"amount": 5})), says("Paid.")])
    cfg = TurnConfig(maya, "helper", chat_opts=ChatOptions(model=model, tools=[pay]))
    result = await run_chat_turn(cfg, turn_input("Pay 5"))
    assert (result.ok, result.status, [call.id for call in result.pending]) == (False, "approval", ["c1"])
    assert result.conversation_id is not None
    outcome = await maya.conversations.run_turn(result.conversation_id, model, tools=[pay], approvals={"c1": True})
    assert (outcome.text, outcome.turn_id) == ("Paid.", result.turn_id)


def test_invalid_arguments_of_a_turn_are_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="runtime"):
        TurnConfig("maya", "helper")  # type: ignore[arg-type]
    wrong: list[dict[str, Any]] = [{"text": 7}, {"session": "web"}, {"sender": "maya"}, {"ctx_extras": [1]}]
    for kwargs in [*wrong, {"payload": "x"}, {"recall_opts": 5}]:
        with pytest.raises(InvalidArgumentError):
            TurnInput(**{"session": Session("web"), "sender": MAYA, "text": "Hi", **kwargs})


async def test_the_token_budget_also_bounds_the_history(maya: User) -> None:
    cfg = config(maya, says("Yes."))
    conversation = await maya.conversations.create("helper", session_id="web")
    for _ in range(8):
        await maya.conversations.append_turn(conversation.id, "word " * 200, {"content": "word " * 200})
    await run_chat_turn(cfg, turn_input("Still there?", recall_opts={"token_budget": 1_500}))
    sent = model_of(cfg).requests[0].messages
    assert 2 <= len(sent) <= 8
    assert message_text(sent[-1]) == "Still there?"
