"""`Skill`: a named bundle of instructions, and the tools that go with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from tellback.errors import ConfigurationError, SkillError, ToolError
from tellback.skills.files import SkillFolder
from tellback.skills.texts import odd_in
from tellback.tools import Tool, tools_by_name

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__tellback_skill__"


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
        _check_name(self.name)
        if not isinstance(self.description, str):
            raise SkillError(self.name, f"description is text, not {self.description!r:.80}.")
        _check_characters(self.name, "description", self.description)
        if not isinstance(self.body, str | None):
            raise SkillError(self.name, f"body is text, not {self.body!r:.80}; a function goes in body_fn.")
        for what in ("body_fn", "fn"):
            value = getattr(self, what)
            if value is not None and not callable(value):
                raise SkillError(self.name, f"{what} is a function, not {value!r:.80}.")
        if not isinstance(self.files, SkillFolder | None):
            raise SkillError(self.name, f"files is a SkillFolder, not {self.files!r:.80}; load_skills makes one.")
        for what in ("when", "requires"):
            object.__setattr__(self, what, _texts(self.name, what, getattr(self, what)))
        if self.modalities is not None:
            object.__setattr__(self, "modalities", _texts(self.name, "modalities", self.modalities))
        object.__setattr__(self, "tools", _tools(self.name, self.tools))

    @classmethod
    def from_fn(cls, fn: Callable[..., Any]) -> Skill:
        """The skill that a function marked with `@skill` stands for.

        >>> @skill(description="Our voice")
        ... def tone() -> str:
        ...     return "Be warm."
        >>> Skill.from_fn(tone).name
        'tone'
        """
        marks = getattr(fn, _MARK, None)
        if not isinstance(marks, _Marks):
            raise SkillError(_name_of(fn) or repr(fn)[:80], "it is not marked: put @skill(description=...) on it.")
        return marks.made_for(fn)


@dataclass(frozen=True, slots=True)
class _Marks:
    """What `@skill` was told. The skill itself is made later, so that a method becomes the skill of its object."""

    name: str | None
    description: str | None
    fields: Mapping[str, Any]

    def made_for(self, fn: Callable[..., Any]) -> Skill:
        name = self.name if self.name is not None else _name_of(fn)
        about = self.description if self.description is not None else _first_paragraph(fn)
        body_fn = fn if self.fields["body"] is None else None
        return Skill(name, about, body_fn=body_fn, fn=fn, **self.fields)


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
    marks = _Marks(name, description, fields)

    def mark(target: F) -> F:
        made = marks.made_for(target)  # wrong values are found here, where they were written
        kept = {**fields, "tools": made.tools}
        try:
            setattr(target, _MARK, _Marks(name, description, kept))
        except (AttributeError, TypeError) as error:
            raise SkillError(made.name, f"{target!r:.80} cannot be marked: put @skill on a plain function.") from error
        return target

    return mark if fn is None else mark(fn)


def skills_for(entries: Iterable[Skill | Callable[..., Any]]) -> list[Skill]:
    """Skills of a list in which functions marked with `@skill` and `Skill`s are mixed.

    >>> [made.name for made in skills_for([Skill("tone", "Our voice"), Skill("refunds", "When to refund")])]
    ['tone', 'refunds']
    """
    found: dict[str, Skill] = {}
    for entry in entries_of(entries):
        made = _as_skill(entry)
        if made.name in found:
            raise SkillError(made.name, "two skills have this name; rename one of them.")
        found[made.name] = made
    return list(found.values())


def entries_of(value: Any) -> Iterable[Any]:
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


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise SkillError(str(name)[:80], "a skill's name is text, and not empty: pass name=... .")
    if name != name.strip() or not name.isprintable():
        raise SkillError(name[:80], "a skill's name is one line, without spaces around it or control characters.")


def _texts(skill_name: str, what: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        raise SkillError(skill_name, f"{what} is a list of texts, not one text: write {what}=[{value!r:.80}].")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"{what} is a list of texts, not {value!r:.80}.")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise SkillError(skill_name, f"{what} holds {text!r:.80}, which is not text.")
        _check_characters(skill_name, what, text)
    return texts


def _check_characters(skill_name: str, what: str, text: str) -> None:
    odd = odd_in(text)
    if odd is not None:
        raise SkillError(skill_name, f"{what} holds {odd!r}, which is no character of a text; take it out.")


def _tools(skill_name: str, value: Any) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if callable(value) or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"tools is a list of functions, not {value!r:.80}: write tools=[...].")
    try:
        return tuple(tools_by_name(value).values())
    except (ConfigurationError, ToolError) as error:
        raise SkillError(skill_name, f"one of its tools cannot be used. {error}") from error


def _name_of(fn: Any) -> str:
    name = getattr(fn, "__name__", "")
    return "" if name == "<lambda>" else str(name)


def _first_paragraph(fn: Any) -> str:
    about = inspect.getdoc(fn) or ""
    return " ".join(about.partition("\n\n")[0].split())
