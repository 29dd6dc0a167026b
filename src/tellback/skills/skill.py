"""`Skill`: a named bundle of instructions, and the tools that go with them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from tellback.errors import ConfigurationError, SkillError, ToolError
from tellback.skills.folder import SkillFolder
from tellback.tools import Tool, tools_by_name

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but for tabs and line ends, which forge what a terminal shows, and lone surrogates."""

F = TypeVar("F", bound=Callable[..., Any])

_METADATA_ATTRIBUTE = "__tellback_skill__"


def strip_control_characters(text: str) -> str:
    """The text without control characters and halves of characters.

    >>> strip_control_characters("Be \\x1b[31mwarm\\x00.")
    'Be [31mwarm.'
    """
    return _CONTROL_CHARACTERS.sub("", text)


def find_control_character(text: str) -> str | None:
    """The first character that is none of a text, or None.

    >>> find_control_character("Our voice"), find_control_character("Our\\x07voice")
    (None, '\\x07')
    """
    match = _CONTROL_CHARACTERS.search(text)
    return None if match is None else match.group()


@dataclass(frozen=True, slots=True)
class Skill:
    """Instructions that a model pulls into its context when it judges that they apply.

    `description` and `when` (trigger phrases) are what it judges by; `modalities` are the kinds of input the skill is
    good for, None meaning text. `body` is returned as it is; `body_fn` makes it from the context instead, its
    parameters filled by name. `tools` can be called once the skill was read or applied. `requires` names skills that
    are read with it. `fn` is the function it was made of, if any; `meta` holds whatever else is known about it.
    `files` is the folder it was loaded from, if that holds other files for the model to read.

    >>> Skill("tone", "Apply our voice", when=["customer reply"], body="Be warm and plain.").when
    ('customer reply',)
    """

    name: str
    description: str
    when: Sequence[str] = ()
    modalities: Sequence[str] | None = None
    body: str | None = None
    body_fn: Callable[..., Any] | None = None
    tools: Sequence[Tool | Callable[..., Any]] = ()
    requires: Sequence[str] = ()
    fn: Callable[..., Any] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    files: SkillFolder | None = None

    def __post_init__(self) -> None:
        _validate_name(self.name)
        if not isinstance(self.description, str):
            raise SkillError(self.name, f"description is text, not {self.description!r:.80}.")
        _validate_characters(self.name, "description", self.description)
        if not isinstance(self.body, str | None):
            raise SkillError(self.name, f"body is text, not {self.body!r:.80}; a function goes in body_fn.")
        for field_name in ("body_fn", "fn"):
            value = getattr(self, field_name)
            if value is not None and not callable(value):
                raise SkillError(self.name, f"{field_name} is a function, not {value!r:.80}.")
        if not isinstance(self.files, SkillFolder | None):
            raise SkillError(self.name, f"files is a SkillFolder, not {self.files!r:.80}; load_skills makes one.")
        for field_name in ("when", "requires"):
            object.__setattr__(self, field_name, _validate_texts(self.name, field_name, getattr(self, field_name)))
        if self.modalities is not None:
            object.__setattr__(self, "modalities", _validate_texts(self.name, "modalities", self.modalities))
        object.__setattr__(self, "tools", _validate_tools(self.name, self.tools))

    @classmethod
    def from_fn(cls, fn: Callable[..., Any]) -> Skill:
        """The skill that a function marked with `@skill` stands for.

        >>> @skill(description="Our voice")
        ... def tone() -> str:
        ...     return "Be warm."
        >>> Skill.from_fn(tone).name
        'tone'
        """
        metadata = getattr(fn, _METADATA_ATTRIBUTE, None)
        if not isinstance(metadata, _SkillMetadata):
            raise SkillError(
                _skill_function_name(fn) or repr(fn)[:80], "it is not marked: put @skill(description=...) on it."
            )
        return metadata.build_skill(fn)


@dataclass(frozen=True, slots=True)
class _SkillMetadata:
    """What `@skill` was told. The skill itself is made later, so that a method becomes the skill of its object."""

    name: str | None
    description: str | None
    fields: Mapping[str, Any]

    def build_skill(self, fn: Callable[..., Any]) -> Skill:
        name = self.name if self.name is not None else _skill_function_name(fn)
        description = self.description if self.description is not None else _first_paragraph(fn)
        body_fn = fn if self.fields["body"] is None else None
        return Skill(name, description, body_fn=body_fn, fn=fn, **self.fields)


@overload
def skill(fn: F, /) -> F: ...
@overload
def skill(
    *,
    description: str | None = None,
    when: Sequence[str] = (),
    name: str | None = None,
    modalities: Sequence[str] | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    requires: Sequence[str] = (),
    body: str | None = None,
) -> Callable[[F], F]: ...
def skill(
    fn: F | None = None,
    /,
    *,
    description: str | None = None,
    when: Sequence[str] = (),
    name: str | None = None,
    modalities: Sequence[str] | None = None,
    tools: Sequence[Tool | Callable[..., Any]] = (),
    requires: Sequence[str] = (),
    body: str | None = None,
) -> F | Callable[[F], F]:
    """Mark a function as a skill; it can still be called as before.

    The function makes the body: it returns the text, and its parameters are filled from the context. With `body`, that
    text is the body and the function is never called. Its name and docstring stand in for `name` and `description`.

    >>> @skill(description="Read a receipt", when=["expense"], modalities=["image", "pdf"])
    ... def receipts(attachments: list | None = None) -> str:
    ...     return f"Read the {len(attachments or [])} files."
    >>> receipts([1, 2]), Skill.from_fn(receipts).modalities
    ('Read the 2 files.', ('image', 'pdf'))
    """
    fields = {"when": when, "modalities": modalities, "tools": tools, "requires": requires, "body": body}
    metadata = _SkillMetadata(name, description, fields)

    def mark(target: F) -> F:
        built = metadata.build_skill(target)  # wrong values are found here, where they were written
        stored_fields = {**fields, "tools": built.tools}
        try:
            setattr(target, _METADATA_ATTRIBUTE, _SkillMetadata(name, description, stored_fields))
        except (AttributeError, TypeError) as error:
            raise SkillError(built.name, f"{target!r:.80} cannot be marked: put @skill on a plain function.") from error
        return target

    return mark if fn is None else mark(fn)


def skills_for(entries: Iterable[Skill | Callable[..., Any]]) -> list[Skill]:
    """Skills of a list in which functions marked with `@skill` and `Skill`s are mixed.

    >>> [made.name for made in skills_for([Skill("tone", "Our voice"), Skill("refunds", "When to refund")])]
    ['tone', 'refunds']
    """
    found: dict[str, Skill] = {}
    for entry in validate_entries(entries):
        converted = _as_skill(entry)
        if converted.name in found:
            raise SkillError(converted.name, "two skills have this name; rename one of them.")
        found[converted.name] = converted
    return list(found.values())


def validate_entries(value: Any) -> Iterable[Any]:
    """The value, if it can be a list of skills at all."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"Skills are given as a list, not as {value!r:.80}: write [...].")
    return value


def _as_skill(entry: Any) -> Skill:
    if isinstance(entry, Skill):
        return entry
    if not callable(entry):
        raise ConfigurationError(f"{entry!r:.80} is not a skill: pass a Skill or a function marked with @skill.")
    return Skill.from_fn(entry)


def _validate_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise SkillError(str(name)[:80], "a skill's name is text, and not empty: pass name=... .")
    if name != name.strip() or not name.isprintable():
        raise SkillError(name[:80], "a skill's name is one line, without spaces around it or control characters.")


def _validate_texts(skill_name: str, field_name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        raise SkillError(
            skill_name, f"{field_name} is a list of texts, not one text: write {field_name}=[{value!r:.80}]."
        )
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"{field_name} is a list of texts, not {value!r:.80}.")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise SkillError(skill_name, f"{field_name} holds {text!r:.80}, which is not text.")
        _validate_characters(skill_name, field_name, text)
    return texts


def _validate_characters(skill_name: str, field_name: str, text: str) -> None:
    character = find_control_character(text)
    if character is not None:
        raise SkillError(skill_name, f"{field_name} holds {character!r}, which is no character of a text; take it out.")


def _validate_tools(skill_name: str, value: Any) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if callable(value) or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"tools is a list of functions, not {value!r:.80}: write tools=[...].")
    try:
        return tuple(tools_by_name(value).values())
    except (ConfigurationError, ToolError) as error:
        raise SkillError(skill_name, f"one of its tools cannot be used. {error}") from error


def _skill_function_name(fn: Any) -> str:
    name = getattr(fn, "__name__", "")
    return "" if name == "<lambda>" else str(name)


def _first_paragraph(fn: Any) -> str:
    docstring = inspect.getdoc(fn) or ""
    return " ".join(docstring.partition("\n\n")[0].split())
