"""Skills as values: what they take, what they refuse, and how functions become them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tellback.errors import ConfigurationError, SkillError
from tellback.skills import Skill, skill, skills_for
from tellback.tools import Tool, tool


def refund(order: str) -> str:
    """Give the money back."""
    return order


def test_lists_become_tuples_and_functions_become_tools() -> None:
    created = Skill("refunds", "When to refund", when=["angry"], modalities=["text"], tools=[refund], requires=["tone"])
    assert (created.when, created.modalities, created.requires) == (("angry",), ("text",), ("tone",))
    assert [type(entry) for entry in created.tools] == [Tool]
    assert Skill("refunds", "When to refund", when=("angry",)) == Skill("refunds", "When to refund", when=["angry"])


def test_nothing_but_name_and_description_is_needed() -> None:
    bare: Any = Skill("tone", "Our voice", when=None, tools=None, requires=None)  # type: ignore[arg-type]
    assert (bare.when, bare.tools, bare.requires, bare.modalities, bare.body) == ((), (), (), None, None)
    assert hash(bare) == hash(Skill("tone", "Our voice"))


@pytest.mark.parametrize("name", ["", None, 3, " tone", "tone\n", "to\nne", "to\x00ne", "to\u2028ne", "to\x1b[31mne"])
def test_a_name_that_could_not_stand_in_a_line_is_refused(name: Any) -> None:
    with pytest.raises(SkillError, match="name"):
        Skill(name, "Our voice")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("description", None), ("description", 3), ("body", 3), ("body", refund), ("body_fn", "text"), ("fn", "f")),
        *(("when", "reply"), ("when", [3]), ("when", [" "]), ("when", 3), ("when", {"a": 1})),
        *(("description", "a\ud800"), ("description", "a\x00"), ("description", "\x1b[2J"), ("when", ["a\x07"])),
        *(("files", "folder"), ("files", Path("folder"))),
        *(("modalities", "image"), ("requires", "tone"), ("requires", [None])),
        *(("tools", "refund"), ("tools", refund), ("tools", [3]), ("tools", 3), ("tools", [lambda: 1])),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_the_skills_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"name": "tone", "description": "Our voice", field: value}
    with pytest.raises(SkillError, match="tone") as caught:
        Skill(**fields)
    assert caught.value.skill == "tone"


def test_a_text_where_a_list_is_meant_is_shown_how_to_be_one() -> None:
    with pytest.raises(SkillError, match=r"when=\['reply'\]"):
        Skill("tone", "Our voice", when="reply")


def test_a_marked_function_makes_the_body_and_stays_a_function() -> None:
    @skill(description="Read a receipt", when=["expense"], tools=[refund])
    def receipts(attachments: list[str] | None = None) -> str:
        return f"{len(attachments or [])} files"

    created = Skill.from_fn(receipts)
    assert receipts(["a"]) == "1 files"
    assert (created.name, created.body, created.body_fn, created.fn) == ("receipts", None, receipts, receipts)
    assert created == Skill.from_fn(receipts)


def test_with_a_body_the_function_is_only_kept() -> None:
    @skill(description="Our voice", name="customer-tone", body="Be warm.")
    def tone() -> None:
        raise AssertionError

    created = Skill.from_fn(tone)
    assert (created.name, created.body, created.body_fn, created.fn) == ("customer-tone", "Be warm.", None, tone)


def test_the_docstring_stands_in_for_a_description() -> None:
    @skill
    def tone() -> str:
        """Apply our
        voice.

        More about it.
        """
        return "Be warm."

    assert Skill.from_fn(tone).description == "Apply our voice."


def test_a_method_becomes_the_skill_of_its_object() -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @skill(description="How we greet")
        def greeting(self) -> str:
            return f"Welcome to {self.name}."

    body_fn = Skill.from_fn(Shop("Rosa's").greeting).body_fn
    assert body_fn is not None
    assert body_fn() == "Welcome to Rosa's."


def test_a_wrong_mark_is_found_where_it_is_written() -> None:
    with pytest.raises(SkillError, match="when"):

        @skill(description="Our voice", when="reply")
        def tone() -> str:
            return ""

    with pytest.raises(SkillError, match="name"):
        skill(description="x")(lambda: "")
    with pytest.raises(SkillError, match="plain function"):
        skill(description="x", name="x")(tool(refund))


def test_functions_and_skills_mix() -> None:
    @skill(description="Our voice")
    def tone() -> str:
        return ""

    assert [created.name for created in skills_for([Skill("refunds", "When to refund"), tone])] == ["refunds", "tone"]
    with pytest.raises(SkillError, match="two skills"):
        skills_for([Skill("tone", "Another"), tone])


@pytest.mark.parametrize("entries", ["tone", 3, None, {"tone": 1}, [3], ["tone"], Skill("tone", "Our voice")])
def test_what_is_no_list_of_skills_is_refused(entries: Any) -> None:
    with pytest.raises(ConfigurationError):
        skills_for(entries)
    with pytest.raises(SkillError, match="@skill"):
        skills_for([refund])
