"""The index, list and search of skills."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tellback.skills import Skill, build_index, find_skill, index_line, list_skills_of, search_skills_of

TONE = Skill("customer-tone", "Apply our voice", when=["reply", "marketing"])
ESCALATION = Skill("escalation", "Decide when to escalate", when=["refund", "angry"])
characters = st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\r\t")
texts = st.text(characters, max_size=30)
phrases = st.lists(st.text(characters, min_size=1, max_size=10).filter(str.strip), max_size=3)


def test_the_index_has_a_header_and_a_line_per_skill() -> None:
    assert build_index([TONE, ESCALATION]) == (
        "Available skills you can read with read_skill(name):\n"
        "- customer-tone: Apply our voice (when: reply, marketing)\n"
        "- escalation: Decide when to escalate (when: refund, angry)"
    )
    assert build_index([]) == ""


def test_empty_fields_are_omitted_from_an_index_line() -> None:
    assert index_line(Skill("tone", "")) == "- tone"
    assert index_line(Skill("tone", "Our voice", modalities=["text"])) == "- tone: Our voice"
    assert index_line(Skill("see", "Look", modalities=["image", "pdf"])) == "- see: Look [modalities: image, pdf]"


@given(texts, phrases, phrases)
def test_a_description_cannot_add_a_line_to_the_index(description: str, when: list[str], modalities: list[str]) -> None:
    indexed = Skill("tone", description, when=when, modalities=modalities)
    assert len(build_index([indexed]).splitlines()) == 2


def test_ten_thousand_skills_are_indexed_and_searched() -> None:
    many = [Skill(f"skill-{n}", f"Does the thing {n}", when=[f"case {n}"]) for n in range(10_000)]
    assert build_index(many).count("\n") == 10_000
    assert len(list_skills_of(many)) == 10_000
    assert search_skills_of(many, "case 9876", limit=1)[0].name == "skill-9876"
    assert len(search_skills_of(many, "thing " * 100_000)) == 10


def test_a_skill_is_found_by_its_exact_name() -> None:
    assert find_skill([TONE, ESCALATION], "escalation") is ESCALATION
    assert find_skill([TONE, ESCALATION], "Escalation") is None


def test_list_skills_of_returns_name_description_and_triggers() -> None:
    assert list_skills_of([TONE]) == [
        {"name": "customer-tone", "description": "Apply our voice", "when": ["reply", "marketing"]}
    ]


def test_names_score_more_than_triggers_and_triggers_more_than_descriptions() -> None:
    pool = [Skill("a", "about refund"), Skill("b", "", when=["REFUND now"]), Skill("refund-it", "")]
    assert [found.name for found in search_skills_of(pool, "Refund")] == ["refund-it", "b", "a"]
    assert [found.name for found in search_skills_of(pool, "Refund", min_score=2)] == ["refund-it", "b"]
    assert search_skills_of(pool, "Refund", limit=0) == search_skills_of(pool, "weather") == []
    assert search_skills_of(pool, "") == []


@given(st.lists(texts, max_size=8), texts, st.integers(-1, 10), st.integers(0, 4))
def test_search_keeps_the_order_of_equal_matches_and_the_limit(
    descriptions: list[str], query: str, limit: int, min_score: int
) -> None:
    pool = [Skill(f"s{index}", text) for index, text in enumerate(descriptions)]
    found = search_skills_of(pool, query, limit, min_score)
    assert len(found) <= max(limit, 0)
    assert found == search_skills_of(pool, query.upper().casefold(), limit, min_score) or not query.isascii()
    twins = [Skill(f"{index}!", "the very same") for index in range(5)]
    assert search_skills_of(twins, "very same") == twins
