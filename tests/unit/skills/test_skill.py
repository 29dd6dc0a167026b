"""Creating skills from values and functions, and rejecting invalid values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tellback.errors import ConfigurationError, SkillError
from tellback.skills import Skill, skill, skills_for
from tellback.tools import Tool, tool


def refund(order: str) -> str:
    """Refund an order."""
    return order


def test_lists_become_tuples_and_functions_become_tools() -> None:
    created = Skill("refunds", "When to refund", when=["angry"], modalities=["text"], tools=[refund], requires=["tone"])
    assert (created.when, created.modalities, created.requires) == (("angry",), ("text",), ("tone",))
    assert [type(entry) for entry in created.tools] == [Tool]
    assert Skill("refunds", "When to refund", when=("angry",)) == Skill("refunds", "When to refund", when=["angry"])


def test_only_name_and_description_are_required() -> None:
    bare: Any = Skill("tone", "Our voice", when=None, tools=None, requires=None)  # type: ignore[arg-type]
    assert (bare.when, bare.tools, bare.requires, bare.modalities, bare.body) == ((), (), (), None, None)
    assert hash(bare) == hash(Skill("tone", "Our voice"))


@pytest.mark.parametrize("name", ["", None, 3, " tone", "tone\n", "to\nne", "to\x00ne", "to\u2028ne", "to\x1b[31mne"])
def test_a_name_with_line_breaks_or_control_characters_is_rejected(name: Any) -> None:
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
def test_a_value_of_the_wrong_type_is_rejected_with_the_skills_name(field: str, value: Any) -> None:
    fields: dict[str, Any] = {"name": "tone", "description": "Our voice", field: value}
    with pytest.raises(SkillError, match="tone") as caught:
        Skill(**fields)
    assert caught.value.skill == "tone"


def test_the_error_for_a_string_instead_of_a_list_shows_the_list() -> None:
    with pytest.raises(SkillError, match=r"when=\['reply'\]"):
        Skill("tone", "Our voice", when="reply")


def test_a_marked_function_generates_the_body_and_stays_callable() -> None:
    @skill(description="Read a receipt", when=["expense"], tools=[refund])
    def receipts(attachments: list[str] | None = None) -> str:
        return f"{len(attachments or [])} files"

    created = Skill.from_fn(receipts)
    assert receipts(["a"]) == "1 files"
    assert (created.name, created.body, created.body_fn, created.fn) == ("receipts", None, receipts, receipts)
    assert created == Skill.from_fn(receipts)


def test_with_a_static_body_the_function_is_not_called() -> None:
    @skill(description="Our voice", name="customer-tone", body="Be warm.")
    def tone() -> None:
        raise AssertionError

    created = Skill.from_fn(tone)
    assert (created.name, created.body, created.body_fn, created.fn) == ("customer-tone", "Be warm.", None, tone)


def test_the_docstring_is_the_default_description() -> None:
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


def test_invalid_decorator_arguments_raise_at_decoration() -> None:
    with pytest.raises(SkillError, match="when"):

        @skill(description="Our voice", when="reply")
        def tone() -> str:
            return ""

    with pytest.raises(SkillError, match="name"):
        skill(description="x")(lambda: "")
    with pytest.raises(SkillError, match="plain function"):
        skill(description="x", name="x")(tool(refund))


def test_skills_for_accepts_functions_and_skills() -> None:
    @skill(description="Our voice")
    def tone() -> str:
        return ""

    assert [created.name for created in skills_for([Skill("refunds", "When to refund"), tone])] == ["refunds", "tone"]
    with pytest.raises(SkillError, match="two skills"):
        skills_for([Skill("tone", "Another"), tone])


@pytest.mark.parametrize("entries", ["tone", 3, None, {"tone": 1}, [3], ["tone"], Skill("tone", "Our voice")])
def test_skills_must_be_a_list(entries: Any) -> None:
    with pytest.raises(ConfigurationError):
        skills_for(entries)
    with pytest.raises(SkillError, match="@skill"):
        skills_for([refund])
