"""Spaces, atoms, entities, recall and the timeline on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tellback import Tellback
from tests.unit.cli.conftest import Cli

pytestmark = pytest.mark.slow

Json = Callable[..., Any]
ErrorOutput = Callable[..., str]


def remember(as_json: Json, text: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = as_json("atoms", "add", text, "--user", "maya", *options)
    return found


def add_people(*names: str) -> list[str]:
    """Create entities with a memory each, and return their ids."""

    async def created() -> list[str]:
        async with Tellback("tellback.db", worker=False) as tb:
            memory = tb.user("maya").memory
            space = await memory.create_space("default", once=True)
            found = []
            for name in names:
                entity = await memory.create_entity(space.id, "PERSON", name, f"{name} is a friend.")
                await memory.add_atom(space.id, f"{name} plays the cello.", entity_ids=[entity.id])
                found.append(entity.id)
            return found

    return asyncio.run(created())


@pytest.mark.parametrize("alias", ["memory", "memories"])
def test_memory_and_memories_are_aliases_of_atoms(as_json: Json, alias: str) -> None:
    created = remember(as_json, "Maya is vegetarian.")
    assert [each["id"] for each in as_json(alias, "list", "--user", "maya")] == [created["id"]]


def test_an_added_memory_is_listed_shown_and_recalled(cli: Cli, as_json: Json) -> None:
    created = remember(as_json, "Maya is vegetarian.", "--category", "preference", "--importance", "5")
    assert created["category"] == {"name": "preference", "kind": "PREFERENCE"}
    remember(as_json, "Maya lives in Lisbon.", "--from", "2026-03")
    rows = as_json("atoms", "list", "--user", "maya")
    assert [each["text"] for each in rows] == ["Maya lives in Lisbon.", "Maya is vegetarian."]
    assert rows[0]["valid_from"] == "2026-03-01T00:00:00+00:00"
    assert [each["text"] for each in as_json("atoms", "list", "--user", "maya", "-c", "preference")] == [
        created["text"]
    ]

    output = cli("atoms", "show", created["id"], "--user", "maya").stdout
    assert "Maya is vegetarian." in output
    assert "importance" in output
    found = as_json("recall", "what does she eat? vegetarian", "--user", "maya", "-n", "1")
    assert found["mode"] == "BY_TOPIC"
    [hit] = found["hits"]
    assert hit["atom"]["id"] == created["id"]
    assert 0 < hit["score"] <= 1
    assert hit["explanation"]
    explained = cli("recall", "vegetarian", "--user", "maya", "--explain").stdout
    assert "in log-odds" in explained
    assert "importance +" in explained


def test_users_cannot_see_each_others_memories(as_json: Json, error_output: ErrorOutput) -> None:
    created = remember(as_json, "Maya is vegetarian.")
    assert "There is no atom" in error_output("atoms", "show", created["id"], "--user", "tom")
    assert "User 'tom' has no memory space. Check --user" in error_output("recall", "food", "--user", "tom")


def test_superseded_memories_stay_in_the_history(cli: Cli, as_json: Json) -> None:
    old = remember(as_json, "Maya lives in Lisbon.", "--from", "2026-03")
    new = as_json("atoms", "supersede", old["id"], "Maya lives in Porto.", "--from", "2026-09", "--user", "maya")
    assert new["supersedes"] == old["id"]
    atom = as_json("atoms", "show", new["id"], "--user", "maya")
    assert [each["text"] for each in atom["history"]] == ["Maya lives in Lisbon.", "Maya lives in Porto."]
    assert "2026-03-01 to 2026-09-01: Maya lives in Lisbon." in cli("atoms", "show", old["id"], "-u", "maya").stdout
    assert [each["text"] for each in as_json("atoms", "list", "--user", "maya")] == ["Maya lives in Porto."]
    assert len(as_json("atoms", "list", "--user", "maya", "--all")) == 2
    [then] = as_json("atoms", "list", "--user", "maya", "--at", "2026-05-01")
    assert then["id"] == old["id"]

    times = cli("timeline", "where does Maya live?", "--user", "maya").stdout.splitlines()[1:]
    assert [line.split()[0] for line in times] == ["2026-03-01", "2026-09-01"]
    early = as_json("timeline", "--user", "maya", "--from", "2026-03", "--to", "2026-04")
    assert [hit["atom"]["id"] for hit in early["hits"]] == [old["id"]]
    current = as_json("timeline", "--user", "maya", "--current")
    assert [hit["atom"]["id"] for hit in current["hits"]] == [new["id"]]


def test_archived_memories_are_hidden_until_restored(cli: Cli, as_json: Json) -> None:
    created = remember(as_json, "Maya is vegetarian.")
    assert f"Archived {created['id']}" in cli("atoms", "archive", created["id"], "--user", "maya").stdout
    assert as_json("atoms", "list", "--user", "maya") == []
    assert [each["id"] for each in as_json("atoms", "list", "--user", "maya", "--archived")] == [created["id"]]
    assert "No matching memories." in cli("recall", "vegetarian", "--user", "maya").stderr
    assert as_json("atoms", "archive", created["id"], "--restore", "--user", "maya")["status"] == "ACTIVE"
    assert len(as_json("atoms", "list", "--user", "maya")) == 1


def test_spaces_are_created_once_and_selected_by_name_or_id(cli: Cli, as_json: Json, error_output: ErrorOutput) -> None:
    work = as_json("spaces", "create", "work", "--user", "maya")
    assert as_json("spaces", "create", "work", "--user", "maya")["id"] == work["id"]
    remember(as_json, "The office is in Porto.", "--space", "work")
    remember(as_json, "Without --space, the only space is used.")
    assert len(as_json("atoms", "list", "--user", "maya", "--space", work["id"])) == 2
    remember(as_json, "Maya sings.", "--space", "choir")
    assert "work" in cli("spaces", "list", "--user", "maya").stdout
    assert error_output("atoms", "list", "--user", "maya") == (
        "There is no memory space 'default' for this user. Available spaces: 'work', 'choir'. Choose one with --space."
    )
    assert "Available spaces: 'work', 'choir'" in error_output("recall", "x", "--space", "wrok", "--user", "maya")


def test_entities_are_listed_searched_shown_and_merged(cli: Cli, as_json: Json, error_output: ErrorOutput) -> None:
    lena, helen = add_people("Lena", "Helena")
    assert {each["id"] for each in as_json("entities", "list", "--user", "maya", "--type", "person")} == {lena, helen}
    assert as_json("entities", "list", "--user", "maya", "--type", "place") == []
    assert as_json("entities", "search", "helena", "--user", "maya")[0]["id"] == helen
    output = cli("entities", "show", "lena", "--user", "maya").stdout
    assert "Lena plays the cello." in output
    merged = as_json("entities", "merge", "Lena", helen, "--user", "maya")
    assert (merged["id"], merged["aliases"]) == (lena, ["Helena"])
    assert "Lena" in cli("entities", "list", "--user", "maya").stdout
    recalled = as_json("recall", "--entity", "Helena", "--user", "maya")
    assert {hit["atom"]["text"] for hit in recalled["hits"]} == {"Lena plays the cello.", "Helena plays the cello."}
    assert len(as_json("entities", "show", "Helena", "--user", "maya")["atoms"]) == 2
    assert "There is no entity 'Bob'" in error_output("entities", "show", "Bob", "--user", "maya")


def test_control_characters_in_stored_text_are_escaped(cli: Cli, as_json: Json) -> None:
    created = remember(as_json, "[red]Wipe[/red] \x1b]0;owned\x07 now")
    for command in (("atoms", "list"), ("recall", "wipe"), ("timeline",), ("atoms", "show", created["id"])):
        output = cli(*command, "--user", "maya").stdout
        assert "[red]Wipe[/red] \\x1b]0;owned\\x07 now" in output
        assert "\x1b" not in output
        assert "\x1b" not in cli(*command, "--user", "maya", "--json").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["recall"], "Pass either a topic"),
        (["recall", "x", "--entity", "Lena"], "Pass either a topic"),
        (["recall", "x", "--at", "someday"], "'someday' is not a valid time"),
        (["timeline", "--from", "soon"], "'soon' is not a valid time"),
        (["timeline", "--from", "2026-05", "--to", "2026-03"], "is later than --to"),
        (["atoms", "add", "x", "--category", "gossip"], "'gossip' is not a kind of memory"),
        (["atoms", "add", "x", "--importance", "9"], "--importance"),
        (["atoms", "add", " "], "text"),
        (["atoms", "show", "atom_x"], "There is no atom 'atom_x'"),
        (["atoms", "supersede", "atom_x", "y"], "There is no atom 'atom_x'"),
        (["entities", "list", "--type", "robot"], "--type"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(
    arguments: list[str], words: str, as_json: Json, error_output: ErrorOutput
) -> None:
    remember(as_json, "Maya is vegetarian.")
    output = error_output(*arguments, "--user", "maya")
    assert words in output.replace("│ ", "").replace(" │", "")
