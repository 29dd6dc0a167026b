"""Parsing and checking of a model's output."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellback.chat.output import InvalidOutput
from tellback.memory.extraction.parser import (
    BLANK,
    NOT_FROM_USER,
    NOT_QUOTED,
    TOO_LONG,
    ExtractionOutput,
    is_quoted,
    parse_extraction,
    parse_period,
)
from tellback.memory.extraction.transcript import render_transcript
from tellback.memory.extraction.values import Change, ExtractedEntity, ExtractedFact, Extraction
from tellback.types.memory import Category, CategoryKind, EntityType
from tellback.validation import MAX_NAME_LENGTH, MAX_TEXT_LENGTH
from tests.unit.memory.extraction.factories import fact_output, make_window

TRANSCRIPT = render_transcript(
    make_window(
        "I moved to Lisbon yesterday!", "You must love the sea, then.", "Yes, I do. 👍", "Shall I remember that?"
    )
)


def parse_facts(*facts: dict[str, Any], entities: tuple[dict[str, Any], ...] = (), quotes: bool = False) -> Extraction:
    return parse_extraction(
        ExtractionOutput.model_validate({"facts": facts, "entities": entities}), TRANSCRIPT, quotes=quotes
    )


def parse_one(*facts: dict[str, Any], **options: Any) -> ExtractedFact:
    (found,) = parse_facts(*facts, **options).facts
    return found


def test_all_fields_of_a_fact_are_parsed() -> None:
    output = fact_output(
        category=" Home ",
        messages=["m1", "m3", "m1"],
        subject="user",
        attribute="home city",
        value="Lisbon",
        single=True,
        change="changed",
        since="2026-03-04",
        importance=4,
        confidence=0.95,
        entities=["lisbon", "Atlantis"],
    )
    lisbon = {"name": "Lisbon", "type": "place", "aliases": ["Lisboa", "lisboa", "LISBON"], "description": "a city"}
    assert parse_facts(output, entities=(lisbon,)) == Extraction(
        (
            ExtractedFact(
                "User lives in Lisbon.",
                Category("home", CategoryKind.FACT),
                ("msg_1", "msg_3"),
                4,
                0.95,
                datetime(2026, 3, 4, tzinfo=UTC),
                None,
                ("Lisbon",),
                "user",
                "home city",
                "Lisbon",
                True,
                Change.CHANGED,
            ),
        ),
        (ExtractedEntity("Lisbon", EntityType.PLACE, ("Lisboa",), "a city"),),
    )


def test_an_empty_output_is_an_empty_extraction() -> None:
    assert parse_facts() == Extraction()


def test_an_unknown_citation_raises_invalid_output() -> None:
    with pytest.raises(InvalidOutput, match=r"facts\.1 \('User sings\.'\): messages: .*no message 'm9', 'x'; .*m1, m2"):
        parse_facts(fact_output(), fact_output("User sings.", messages=["m1", "m9", "x"]))


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidOutput, match=r"facts\.0 .*'soon' is not a date.*facts\.1 .*no message 'm9'"):
        parse_facts(fact_output(since="soon"), fact_output(messages=["m9"]))


def test_facts_stated_only_by_the_assistant_are_left_out() -> None:
    found = parse_facts(fact_output("User loves the sea.", messages=["m2", "m4"]), fact_output())
    assert [(omitted.text, omitted.why) for omitted in found.left_out] == [("User loves the sea.", NOT_FROM_USER)]
    assert len(found.facts) == 1


def test_facts_confirmed_by_the_user_are_kept() -> None:
    assert parse_one(fact_output("User loves the sea.", messages=["m2", "m3"])).message_ids == ("msg_2", "msg_3")


@pytest.mark.parametrize(
    ("since", "until", "valid_from", "valid_to"),
    [
        ("2020", None, "2020-01-01T00:00", None),
        ("2020-05", "2021", "2020-05-01T00:00", "2021-01-01T00:00"),
        (" 2020-05-06 ", "", "2020-05-06T00:00", None),
        ("2020-05-06T10:30:00+02:00", None, "2020-05-06T08:30", None),
        ("2020-05-06 10:30", None, "2020-05-06T10:30", None),
        (None, "2019", None, "2019-01-01T00:00"),
        ("2020", "2020", "2020-01-01T00:00", "2021-01-01T00:00"),
        ("2020-12", "2020", "2020-12-01T00:00", "2021-01-01T00:00"),
        ("2026-03-04", "2026-03-04", "2026-03-04T00:00", "2026-03-05T00:00"),
    ],
)
def test_dates_months_and_years_are_parsed(
    since: str | None, until: str | None, valid_from: str | None, valid_to: str | None
) -> None:
    found = parse_one(fact_output(since=since, until=until))
    expected = [None if text is None else datetime.fromisoformat(f"{text}+00:00") for text in (valid_from, valid_to)]
    assert [found.valid_from, found.valid_to] == expected


@pytest.mark.parametrize(
    "dates",
    [
        {"since": "March"},
        {"since": "0000"},
        {"until": "2026-13"},
        {"since": "2021", "until": "2020"},
        {"until": "0001-01-01"},
        {"since": "0001"},
        {"since": "0999-12"},
        {"since": "1000-01-01T00:00:00+14:00"},
    ],
)
def test_invalid_dates_raise_invalid_output(dates: dict[str, str]) -> None:
    with pytest.raises(InvalidOutput, match=r"facts\.0 .*(since|until): "):
        parse_facts(fact_output(**dates))


@given(st.one_of(st.text(max_size=30), st.datetimes().map(str), st.dates().map(str), st.from_regex(r"\d{4}(-\d\d)?")))
def test_a_date_is_a_period_in_utc_or_rejected(text: str) -> None:
    try:
        begins, ends = parse_period(text)
    except ValueError:
        return
    assert begins.tzinfo is UTC
    assert datetime(1000, 1, 1, tzinfo=UTC) <= begins <= ends


def test_quotes_must_be_in_the_users_messages() -> None:
    found = parse_facts(
        fact_output("a", quote="i moved   to LISBON"),
        fact_output("b", quote="I moved to Lisbon yesterday [2026-03-04]!"),
        fact_output("c", messages=["m2", "m3"], quote="Yes, I do"),
        fact_output("d", messages=["m3"], quote="👍"),
        fact_output("e", quote="I moved … yesterday"),
        fact_output("f", quote="I moved to Porto"),
        fact_output("g", messages=["m2", "m3"], quote="love the sea"),
        fact_output("h", messages=["m3"], quote="I moved to Lisbon"),
        fact_output("i", quote=" "),
        fact_output("j", quote="…"),
        fact_output("k", quote="yesterday … I moved"),
        quotes=True,
    )
    assert [each.text for each in found.facts] == ["a", "b", "c", "d", "e"]
    assert [(omitted.text, omitted.why) for omitted in found.left_out] == [(text, NOT_QUOTED) for text in "fghijk"]


def test_a_missing_quote_raises_invalid_output() -> None:
    with pytest.raises(InvalidOutput, match=r"facts\.0 .*quote"):
        parse_facts(fact_output(), quotes=True)


# An ellipsis splits a quote into parts, and a part of one word is ignored.
_WITHOUT_ELLIPSIS = st.text(max_size=20).filter(lambda text: not any(mark in text for mark in ("…", "...")))


@given(st.text(max_size=40), _WITHOUT_ELLIPSIS, st.text(max_size=40))
def test_quoted_words_are_found(before: str, quote: str, after: str) -> None:
    # Unicode normalization may combine adjacent letters, so separate them.
    assert is_quoted(f"so {quote} said", f"{before} so {quote} said {after}")


@given(st.text(max_size=20).filter(lambda text: any(map(str.isalnum, text))))
def test_a_whole_message_is_a_valid_quote(text: str) -> None:
    assert is_quoted(text, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("i", "Am I rich? Hi"),
        ("rich", "Am I rich? Hi"),
        ("I am", "Hi, amanda"),
        ("I can", "I can't swim."),
        ("I can", "I can\u2019t swim."),
        ("he art", "the artist"),
        ("i … a", "I sold a car."),
        (".", "I sold a car."),
        ("?!", "What?!"),
        ("我", "我住在里斯本"),
    ],
)
def test_a_single_word_or_a_part_of_one_is_not_a_valid_quote(quote: str, text: str) -> None:
    assert not is_quoted(quote, text)


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("yes", "Yes!"),
        ("I don't", "I  DON\u2019T know"),
        ("dont know", "I don't know"),
        ("住在里斯本", "我住在里斯本。"),
        ("… sold a car", "I sold a car."),
        ("me: 'hello there'", "She told me: “Hello, there”"),
        ("👍", "Yes 👍"),
    ],
)
def test_two_words_or_a_whole_message_are_a_valid_quote(quote: str, text: str) -> None:
    assert is_quoted(quote, text)


def test_facts_with_invalid_texts_are_left_out() -> None:
    found = parse_facts(
        fact_output(" \n\x00"), fact_output("x" * (MAX_TEXT_LENGTH + 1)), fact_output("y" * MAX_TEXT_LENGTH)
    )
    assert [omitted.why for omitted in found.left_out] == [BLANK, TOO_LONG]
    assert all(len(omitted.text) <= MAX_TEXT_LENGTH for omitted in found.left_out)
    assert len(found.facts) == 1


def test_characters_that_cannot_be_stored_are_removed() -> None:
    found = parse_one(
        fact_output("User\x00 lives\nin \ud800Lisbon.", value="Lis\x00bon", subject="user", attribute="home")
    )
    assert (found.text, found.value) == ("User lives in Lisbon.", "Lisbon")


def test_duplicate_facts_are_merged() -> None:
    found = parse_one(
        fact_output("User likes tea.", importance=2, confidence=0.5),
        fact_output("user likes  tea", messages=["m3"], importance=4, confidence=0.9),
    )
    assert (found.text, found.message_ids, found.importance, found.confidence) == (
        "User likes tea.",
        ("msg_1", "msg_3"),
        4,
        0.9,
    )


def test_the_same_words_about_another_day_are_another_fact() -> None:
    run = "User went running."
    assert len(parse_facts(fact_output(run, since="2026-03-01"), fact_output(run, since="2026-03-02")).facts) == 2


@pytest.mark.parametrize("slot", [{"subject": "user"}, {"attribute": "age"}, {"subject": " ", "attribute": "age"}])
def test_only_a_named_attribute_can_be_single(slot: dict[str, str]) -> None:
    assert not parse_one(fact_output(single=True, **slot)).single


def test_a_slot_name_that_is_too_long_is_dropped() -> None:
    assert parse_one(fact_output(subject="user", attribute="a" * (MAX_NAME_LENGTH + 1))).attribute is None


@pytest.mark.parametrize("category", ["", "  ", "turn", "PATTERN"])
def test_a_reserved_or_empty_category_is_named_after_its_kind(category: str) -> None:
    assert parse_one(fact_output(category=category, kind="RULE")).category == Category("rule", CategoryKind.RULE)


def test_facts_refer_to_entities_by_any_name() -> None:
    anna = {"name": "Anna Silva", "type": "PERSON", "aliases": ["Anna", "my sister"]}
    duplicate = {"name": "anna silva", "type": "PERSON", "aliases": ["Annie"], "description": "the user's sister"}
    found = parse_facts(fact_output(entities=["anna", "ANNIE", "Anna Silva"]), entities=(anna, duplicate))
    assert found.facts[0].entities == ("Anna Silva",)
    assert found.entities == (
        ExtractedEntity("Anna Silva", EntityType.PERSON, ("Anna", "my sister", "Annie"), "the user's sister"),
    )


def test_entities_without_facts_are_dropped() -> None:
    sea = {"name": "sea", "type": "PLACE"}
    found = parse_facts(
        fact_output("User loves the sea.", messages=["m2"], entities=["sea"]), fact_output(), entities=(sea,)
    )
    assert found.entities == ()


def test_entities_without_a_usable_name_are_dropped() -> None:
    found = parse_facts(
        fact_output(entities=["", "x" * 600]),
        entities=({"name": " ", "type": "PERSON"}, {"name": "x" * 600, "type": "PERSON"}),
    )
    assert (found.entities, found.facts[0].entities) == ((), ())


TEXT = st.text(max_size=12)
MAYBE = st.none() | TEXT
FACTS = st.fixed_dictionaries(
    {
        "messages": st.lists(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), min_size=1, max_size=3),
        "text": TEXT,
        "kind": st.sampled_from(["FACT", "RULE", "INTENTION", "EPISODE", "PREFERENCE"]),
        "category": TEXT,
        "quote": TEXT,
        "subject": MAYBE,
        "attribute": MAYBE,
        "value": MAYBE,
        "single": st.booleans(),
        "since": st.sampled_from([None, "2020", "2021-02", "2021-02-03", "x"]),
        "until": st.sampled_from([None, "2020", "2021-02", "2021-02-03"]),
        "entities": st.lists(TEXT, max_size=2),
    }
)
ENTITIES = st.fixed_dictionaries({"name": TEXT, "type": st.just("PERSON"), "aliases": st.lists(TEXT, max_size=2)})


@given(st.lists(FACTS, max_size=5), st.lists(ENTITIES, max_size=4), st.booleans())
def test_any_model_output_gives_a_consistent_extraction(
    facts: list[dict[str, Any]], entities: list[dict[str, Any]], quotes: bool
) -> None:
    try:
        found = parse_facts(*facts, entities=tuple(entities), quotes=quotes)
    except InvalidOutput:
        return
    assert len(found.facts) + len(found.left_out) <= len(facts)
    names = {entity.name for entity in found.entities}
    for each in found.facts:
        assert each.text.strip()
        assert each.category.name.strip()
        assert {"msg_1", "msg_3"} & set(each.message_ids)
        assert set(each.entities) <= names
        assert each.valid_to is None or each.valid_from is None or each.valid_from < each.valid_to
