"""Spaces and atoms on every store: valid and invalid values, and deletion."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tellback import Tellback
from tellback.errors import AtomSupersededError, InvalidArgumentError, NotFoundError
from tellback.types.memory import AtomStatus, Category, CategoryKind
from tests.integration.memory.helpers import DAY, NOON, Clock, count_events, recall_everywhere, texts

DIET = {"name": "diet", "kind": "PREFERENCE"}

STRANGE_TEXTS = [
    "naïve Ünïcode 🦜 \u202e right to left",
    "' OR 1=1; DROP TABLE atoms; --",
    "%s ${x} {{x}} \\ \" ' ` \t\r\n end",
    "日本語だけ",
    "\u0301\u0302 only combining",
    ":speaker: ::: nobody",
    "a" * 50_000,
    "🦜 " * 25_000,
    "?!…",
]


async def test_a_space_is_created_listed_found_and_deleted(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space("notes 🦜", {"colour": "blue", "n": [1, None]})
    assert space == await memory.get_space(space.id)
    assert (space.name, space.metadata, space.atom_count, space.user_id) == (
        "notes 🦜",
        {"colour": "blue", "n": [1, None]},
        0,
        "maya",
    )
    assert (await memory.create_space("notes 🦜", once=True)).id == space.id
    other = await memory.create_space()
    assert other.name == "default"
    assert await memory.list_spaces() == [space, other]
    assert await memory.list_spaces("default") == [other]
    assert await memory.list_spaces("none") == []
    await memory.add_atom(space.id, "Has a parrot.")
    await memory.recall_by_topic(space.id, "parrot")
    await memory.delete_space(space.id)
    assert await memory.get_space(space.id) is None
    assert await memory.list_spaces() == [other]
    with pytest.raises(NotFoundError):
        await memory.delete_space(space.id)
    assert (await memory.create_space("notes 🦜", once=True)).id != space.id


@pytest.mark.parametrize(
    "kwargs",
    [{"name": ""}, {"name": " "}, {"name": 5}, {"name": "x" * 201}, {"name": "a\x00b"}]
    + [{"metadata": value} for value in ("text", {1: 2}, {"x": float("nan")}, {"x": object()}, {"x": "y" * 20_000})],
)
async def test_invalid_spaces_raise_invalid_argument_error(kwargs: dict[str, Any]) -> None:
    async with Tellback(":memory:") as tb:
        memory = tb.user("maya").memory
        with pytest.raises(InvalidArgumentError, match=next(iter(kwargs))):
            await memory.create_space(**kwargs)
        assert await memory.list_spaces() == []


async def test_unusual_texts_are_stored_unchanged_and_found_by_their_words(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    added = [await memory.add_atom(space.id, text) for text in STRANGE_TEXTS]
    assert [atom.text for atom in added] == STRANGE_TEXTS
    for atom in added:
        assert await memory.get_atom(atom.id) == atom
    assert texts(await memory.list_atoms(space.id)) == STRANGE_TEXTS[::-1]
    for query in STRANGE_TEXTS:
        result = await memory.recall_by_topic(space.id, query, limit=100)
        assert {hit.atom.id for hit in result} == {atom.id for atom in added}
        if query not in ("?!…", STRANGE_TEXTS[4]):
            assert result.hits[0].atom.text == query, query[:40]
        await memory.recall_timeline(space.id, query=query)
        await memory.recall_by_entity(space.id, query[:500])
        await memory.search_entities(space.id, query)


async def test_an_atom_stores_all_its_arguments(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ann = await memory.create_entity(space.id, "person", "Ann")
    zone = timezone(timedelta(hours=5, minutes=30))
    atom = await memory.add_atom(
        space.id,
        "Eats with Ann.",
        DIET,
        importance=5,
        confidence=0,
        valid_from=datetime(2026, 1, 1, 5, 30, tzinfo=zone),
        source_conversation_id="conv_1",
        source_message_ids=(id for id in ["m2", "m1", "m2"]),
        entity_ids=[ann.id, ann.id],
        valid_to="2027-01-01T00:00:00.000001Z",
    )
    assert atom == await memory.get_atom(atom.id)
    assert atom.category == Category("diet", CategoryKind.PREFERENCE)
    assert (atom.importance, atom.confidence, atom.status) == (5, 0.0, AtomStatus.ACTIVE)
    assert atom.valid_from == datetime(2026, 1, 1, tzinfo=UTC)
    assert atom.valid_from.tzinfo is UTC
    assert atom.valid_to == datetime(2027, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert (atom.source_conversation_id, atom.source_message_ids) == ("conv_1", ("m2", "m1"))
    assert (atom.entity_ids, atom.created_at, atom.updated_at) == ((ann.id,), NOON, NOON)
    plain = await memory.add_atom(space.id, "Has a bicycle.")
    assert (plain.category, plain.importance, plain.confidence) == (Category("fact", CategoryKind.FACT), 3, 1.0)
    assert (plain.valid_from, plain.valid_to, plain.source_message_ids, plain.entity_ids) == (NOON, None, (), ())
    found = await memory.get_space(space.id)
    assert found is not None
    assert found.atom_count == 2
    recalled = (await memory.recall_by_topic(space.id, "Who eats with Ann?")).hits[0].atom
    assert recalled == atom


INVALID_ATOMS: list[tuple[dict[str, Any], str]] = [
    *(({"text": text}, "text") for text in ("", " \n", None, 5, b"x", "x" * 50_001, "a\x00b", "\ud800")),
    *(({"category": value}, "category") for value in ("diet", {}, {"name": "x"}, {"name": "x", "kind": "NO"})),
    ({"category": {"name": "", "kind": "FACT"}}, "category's name"),
    ({"category": {"name": 5, "kind": "FACT"}}, "category's name"),
    ({"category": {"name": "x", "kind": "FACT", "more": 1}}, "category"),
    ({"category": {"name": "x", "kind": "PATTERN"}}, "PATTERN"),
    ({"category": {"name": "x", "kind": "pattern"}}, "PATTERN"),
    ({"category": Category("x", CategoryKind.PATTERN)}, "PATTERN"),
    *(({"importance": value}, "importance") for value in (0, 6, -1, 2.5, True, "3")),
    *(({"confidence": value}, "confidence") for value in (-0.1, 1.1, float("nan"), float("inf"), True, "1")),
    ({"valid_from": datetime(2026, 1, 1)}, "valid_from.*timezone"),
    ({"valid_from": "2026-01-01"}, "valid_from.*timezone"),
    *(({"valid_from": value}, "valid_from") for value in ("soon", 5, "9999-12-31T23:59:59-23:59")),
    ({"valid_to": "yesterday"}, "valid_to"),
    ({"valid_from": "2026-01-02T00:00:00Z", "valid_to": "2026-01-02T00:00:00Z"}, "valid_to"),
    ({"source_conversation_id": 5}, "source_conversation_id"),
    *(({"source_message_ids": value}, "source_message_ids") for value in ("m1", [None], ["\x00"], [""])),
    *(({"entity_ids": value}, "entity_ids") for value in ("ent_1", [5])),
]


@pytest.mark.parametrize(("kwargs", "names"), INVALID_ATOMS)
async def test_an_invalid_atom_raises_an_error_that_names_the_argument(kwargs: dict[str, Any], names: str) -> None:
    async with Tellback(":memory:") as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        before = await count_events(tb)
        with pytest.raises(InvalidArgumentError, match=names):
            await memory.add_atom(space.id, **{"text": "Likes tea.", **kwargs})
        with pytest.raises(InvalidArgumentError, match=names):
            await memory.add_atoms(space.id, [{"text": "Likes tea."}, {"text": "Likes tea.", **kwargs}])
        assert await memory.list_atoms(space.id) == []
        assert await count_events(tb) == before


INVALID_ATOM_LISTS: list[Any] = [
    "text",
    None,
    5,
    {"text": "x"},
    ["text"],
    [None],
    [{}],
    [{"txt": "x"}],
    [{"text": "x", 5: 6}],
    [{"text": "x", "id": "y"}],
]


@pytest.mark.parametrize("atoms", INVALID_ATOM_LISTS)
async def test_invalid_items_of_add_atoms_are_rejected(atoms: Any) -> None:
    async with Tellback(":memory:") as tb:
        memory = tb.user("maya").memory
        space = await memory.create_space()
        with pytest.raises(InvalidArgumentError, match="atom"):
            await memory.add_atoms(space.id, atoms)
        assert await memory.list_atoms(space.id) == []


async def test_unknown_ids_are_not_found_in_memory(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    unknown: list[Any] = ["ms_x", "", "\x00", "\ud800", None, 5, space]
    for id in unknown:
        assert await memory.get_space(id) is None
        assert await memory.get_atom(id) is None
        assert await memory.get_entity(id) is None
        attempts = [
            memory.delete_space(id),
            memory.add_atom(id, "Likes tea."),
            memory.add_atoms(id, [{"text": "Likes tea."}]),
            memory.list_atoms(id),
            memory.create_entity(id, "PERSON", "Ann"),
            memory.find_entity_by_name(id, None, "Ann"),
            memory.search_entities(id, "Ann"),
            memory.recall_by_topic(id, "tea"),
            memory.recall_by_entity(id, "Ann"),
            memory.recall_timeline(id),
            memory.remember_conversation(id, "conv"),
            memory.remember_conversation(space.id, id),
            memory.supersede_atom(id, "Likes tea."),
            memory.archive_atom(id),
            memory.restore_atom(id),
            memory.delete_atom(id),
            memory.merge_entities(id, id),
        ]
        for attempt in attempts:
            with pytest.raises(NotFoundError):
                await attempt
    with pytest.raises(NotFoundError, match="entity"):
        await memory.add_atom(space.id, "Likes tea.", entity_ids=["ent_x"])
    with pytest.raises(NotFoundError, match="atom"):
        await memory.list_atoms(space.id, before="atom_x")
    assert await memory.list_atoms(space.id) == []


async def test_many_atoms_are_added_together_or_not_at_all(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    added = await memory.add_atoms(space.id, ({"text": f"Fact {n}.", "importance": 1 + n % 5} for n in range(300)))  # type: ignore[arg-type]
    assert [atom.text for atom in added] == [f"Fact {n}." for n in range(300)]
    assert texts(await memory.list_atoms(space.id)) == [f"Fact {n}." for n in reversed(range(300))]
    before = await count_events(tb)
    with pytest.raises(NotFoundError):
        await memory.add_atoms(space.id, [{"text": "Fact x."}, {"text": "Fact y.", "entity_ids": ["ent_x"]}])
    assert await count_events(tb) == before
    assert len(await memory.list_atoms(space.id)) == 300
    assert len(await memory.recall_by_topic(space.id, "fact", limit=1000)) == 300
    assert await memory.add_atoms(space.id, []) == []


async def test_atoms_are_listed_by_page_category_status_and_time(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    memory = tb.user("maya").memory
    space = await memory.create_space()
    atoms = []
    for n in range(9):
        clock.advance()
        atoms.append(
            await memory.add_atom(space.id, str(n), {"name": "abc"[n % 3], "kind": "FACT"}, valid_from=NOON + n * DAY)
        )
    await memory.archive_atom(atoms[4].id)
    await memory.delete_atom(atoms[5].id)
    seen: list[str] = []
    page = await memory.list_atoms(space.id, limit=2)
    while page:
        assert len(page) <= 2
        seen += texts(page)
        page = await memory.list_atoms(space.id, limit=2, before=page[-1])
    assert seen == ["8", "7", "6", "3", "2", "1", "0"]
    assert texts(await memory.list_atoms(space.id, "a")) == ["6", "3", "0"]
    assert texts(await memory.list_atoms(space.id, Category("b", CategoryKind.RULE))) == ["7", "1"]
    assert texts(await memory.list_atoms(space.id, {"name": "b", "kind": "FACT"}, categories=["c", "b"])) == [
        "8",
        "7",
        "2",
        "1",
    ]
    assert texts(await memory.list_atoms(space.id, status="archived")) == ["4"]
    assert texts(await memory.list_atoms(space.id, status=AtomStatus.ARCHIVED, valid_at=NOON)) == []
    assert texts(await memory.list_atoms(space.id, valid_at=NOON + DAY)) == ["1", "0"]
    assert texts(await memory.list_atoms(space.id, known_at=atoms[2].created_at)) == ["2", "1", "0"]
    assert await memory.list_atoms(space.id, limit=0) == []
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"limit": -1}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": "2"}, "limit"),
        ({"status": "GONE"}, "status"),
        ({"category": ""}, "category"),
        ({"category": 5}, "category"),
        ({"categories": "a"}, "categories"),
        ({"categories": [None]}, "categories"),
        ({"valid_at": datetime(2026, 1, 1)}, "valid_at.*timezone"),
        ({"known_at": "then"}, "known_at"),
        ({"before": 5}, "before"),
    ]
    for kwargs, names in wrong:
        with pytest.raises(InvalidArgumentError, match=names):
            await memory.list_atoms(space.id, **kwargs)


async def test_superseding_inherits_omitted_arguments_and_links_the_atoms(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ann, bob = [await memory.create_entity(space.id, "PERSON", name) for name in ("Ann", "Bob")]
    old = await memory.add_atom(
        space.id, "Lives in Rome.", DIET, 5, 0.5, "2026-01-01T00:00:00Z", "conv_1", ["m1"], [ann.id]
    )
    later = clock.advance(DAY)
    new = await memory.supersede_atom(old.id, "Lives in Oslo.")
    assert (new.category, new.importance, new.confidence, new.entity_ids) == (old.category, 5, 0.5, (ann.id,))
    assert (new.source_conversation_id, new.source_message_ids) == (None, ())
    assert (new.valid_from, new.valid_to, new.created_at, new.supersedes) == (later, None, later, old.id)
    closed = await memory.get_atom(old.id)
    assert closed is not None
    assert (closed.valid_to, closed.superseded_at, closed.superseded_by) == (later, later, new.id)
    assert closed.status is AtomStatus.ACTIVE
    with pytest.raises(AtomSupersededError) as caught_error:
        await memory.supersede_atom(old.id, "Lives in Bern.")
    assert caught_error.value.superseded_by == new.id
    clock.advance()
    last = await memory.supersede_atom(
        new.id, "Ate in Bern.", {"name": "trip", "kind": "episode"}, 1, 0.25, NOON, "conv_2", ["m2"], [bob.id]
    )
    assert (last.category.kind, last.importance, last.confidence) == (CategoryKind.EPISODE, 1, 0.25)
    assert (last.entity_ids, last.source_message_ids) == ((bob.id,), ("m2",))
    wrong: list[dict[str, Any]] = [
        {"importance": 9},
        {"category": {"name": "x", "kind": "PATTERN"}},
        {"text": " "},
    ]
    for kwargs in wrong:
        with pytest.raises(InvalidArgumentError):
            await memory.supersede_atom(last.id, **{"text": "Lives on.", **kwargs})
    assert texts(await memory.list_atoms(space.id)) == ["Ate in Bern."]
    assert texts(await memory.recall_by_topic(space.id, "Where?")) == ["Ate in Bern."]
    assert texts(await memory.recall_timeline(space.id)) == ["Lives in Rome.", "Ate in Bern.", "Lives in Oslo."]
    found = await memory.get_entity(bob.id)
    assert found is not None
    assert (found.atom_count, found.last_seen_at) == (1, NOON)


async def test_no_recall_returns_a_deleted_atom(tb: Tellback) -> None:
    clock = Clock()
    tb.clock = clock
    maya = tb.user("maya")
    memory = maya.memory
    space = await memory.create_space()
    ann = await memory.create_entity(space.id, "PERSON", "Ann")
    conversation = await maya.conversations.create("chat")
    for text in ("Ann keeps bees.", "I keep a heron.", "Ann sold her boat."):
        clock.advance()
        await maya.conversations.append_user_message(conversation.id, text)
    conversation_atoms = await memory.remember_conversation(space.id, conversation.id)
    atoms = [
        await memory.add_atom(space.id, f"Ann likes {thing}.", DIET, 5, valid_from=NOON, entity_ids=[ann.id])
        for thing in ("tea", "plums", "rye")
    ]
    clock.advance()
    plums = await memory.supersede_atom(atoms[1].id, "Ann likes figs.")
    await memory.recall_by_topic(space.id, "What does Ann like?")
    time_before = clock.advance()

    deleted_atoms = [conversation_atoms[1], atoms[0], atoms[1], plums]
    for atom in deleted_atoms:
        await memory.delete_atom(atom.id)
    forgotten = {atom.text for atom in deleted_atoms}
    option_sets: list[dict[str, Any]] = [
        {},
        {"valid_at": time_before},
        {"known_at": time_before},
        {"valid_at": NOON, "known_at": time_before},
        {"category_names": ["diet", "turn"]},
    ]
    for options in option_sets:
        for query in ("What does Ann like: tea, figs or plums?", "heron"):
            found = await recall_everywhere(memory, space.id, query, ann.id, **options)
            assert not found & forgotten, options
    for name in ("Ann", "tea", "heron", "User"):
        assert not set(texts(await memory.recall_by_entity(space.id, name, 1000))) & forgotten
    assert not set(texts(await memory.list_atoms(space.id))) & forgotten
    assert not set(texts(await memory.list_atoms(space.id, status="ARCHIVED"))) & forgotten
    for kwargs in ({}, {"now": time_before}, {"template_id": "messages"}):
        context = await maya.working_context.build(
            conversation.id,
            space.id,
            "Ann tea heron figs plums",
            recent_turns=0,
            recall_limit=100,
            always_on_category_names=["diet", "turn"],
            **kwargs,
        )
        assert not {atom.text for atom in context.atoms_used} & forgotten
        assert not any(text in context.context_block for text in forgotten)
    for atom in deleted_atoms:
        for attempt in (
            memory.delete_atom(atom.id),
            memory.restore_atom(atom.id),
            memory.archive_atom(atom.id),
            memory.supersede_atom(atom.id, "Back again."),
        ):
            with pytest.raises(NotFoundError):
                await attempt
    repeated = await memory.remember_conversation(space.id, conversation.id)
    assert texts(repeated) == ["User: Ann keeps bees.", "User: Ann sold her boat."]
    assert "User: I keep a heron." not in await recall_everywhere(memory, space.id, "heron")
    space_now, entity = await memory.get_space(space.id), await memory.get_entity(ann.id)
    assert space_now is not None
    assert entity is not None
    assert (space_now.atom_count, entity.atom_count) == (3, 1)


async def test_archived_atoms_are_recalled_only_on_request(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    ann = await memory.create_entity(space.id, "PERSON", "Ann")
    tea = await memory.add_atom(space.id, "Ann likes tea.", entity_ids=[ann.id])
    await memory.add_atom(space.id, "Ann has a bicycle.", entity_ids=[ann.id])
    archived = await memory.archive_atom(tea.id)
    assert archived.status is AtomStatus.ARCHIVED
    assert await memory.archive_atom(tea.id) == archived
    assert texts(await memory.recall_by_topic(space.id, "tea")) == ["Ann has a bicycle."]
    assert texts(await memory.recall_by_entity(space.id, "Ann")) == ["Ann has a bicycle."]
    assert texts(await memory.recall_timeline(space.id, "Ann")) == ["Ann has a bicycle."]
    assert texts(await memory.recall_by_topic(space.id, "tea", include_archived=True))[0] == "Ann likes tea."
    assert set(texts(await memory.recall_by_entity(space.id, "Ann", include_archived=True))) == {
        "Ann likes tea.",
        "Ann has a bicycle.",
    }
    restored = await memory.restore_atom(tea.id)
    assert restored == await memory.restore_atom(tea.id)
    assert texts(await memory.recall_by_topic(space.id, "tea"))[0] == "Ann likes tea."
    await memory.archive_atom(tea.id)
    new = await memory.supersede_atom(tea.id, "Ann likes coffee.")
    assert new.status is AtomStatus.ACTIVE
    assert "Ann likes tea." not in texts(await memory.recall_by_topic(space.id, "tea", include_archived=True))


async def test_none_means_the_default(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space(name=None, metadata=None)
    assert space.name == "default"
    atom = await memory.add_atom(
        space.id,
        "Likes tea.",
        category=None,
        importance=None,
        confidence=None,
        valid_from=None,
        source_conversation_id=None,
        source_message_ids=None,
        entity_ids=None,
        valid_to=None,
    )
    assert (atom.category.name, atom.importance, atom.confidence) == ("fact", 3, 1.0)
    [second] = await memory.add_atoms(space.id, [{"text": "Likes milk.", "importance": None, "category": None}])
    assert second.importance == 3
    new = await memory.supersede_atom(atom.id, "Likes coffee.", source_message_ids=None, importance=None)
    assert await memory.list_atoms(space.id, category=None, status=None, valid_at=None, limit=None) == [new, second]
    assert await memory.search_entities(space.id, query=None, type=None, limit=None) == []
    for result in (
        await memory.recall_by_topic(space.id, "coffee", limit=None, category_names=None, min_importance=None),
        await memory.recall_by_topic(space.id, "coffee", category_names=[], min_importance=0),
        await memory.recall_by_entity(space.id, "coffee", limit=None, category_names=None),
        await memory.recall_timeline(space.id, query="coffee", limit=None, from_=None, to=None),
    ):
        assert new.id in [found.id for found in result.atoms]


async def test_a_category_is_a_value_a_mapping_or_a_name_and_a_kind(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    for category in (Category("diet", "fact"), {"name": "diet", "kind": "fact"}, ("diet", "FACT")):  # type: ignore[arg-type]
        atom = await memory.add_atom(space.id, "Eats fish.", category)
        assert atom.category == Category("diet", CategoryKind.FACT)
    assert len(await memory.list_atoms(space.id, category={"name": "diet"})) == 3
    assert len(await memory.list_atoms(space.id, category=atom.category)) == 3


async def test_ended_atoms_are_listed_if_archived_or_on_request(tb: Tellback) -> None:
    memory = tb.user("maya").memory
    space = await memory.create_space()
    old = await memory.add_atom(space.id, "Lives in Rome.")
    new = await memory.supersede_atom(old.id, "Lives in Oslo.")
    assert [atom.id for atom in await memory.list_atoms(space.id)] == [new.id]
    assert [atom.id for atom in await memory.list_atoms(space.id, include_superseded=True)] == [new.id, old.id]
    await memory.archive_atom(old.id)
    assert [atom.id for atom in await memory.list_atoms(space.id, status="ARCHIVED")] == [old.id]
