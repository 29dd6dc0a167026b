"""`Skill`: a named set of instructions and tools; `SkillFolder`: the files of a skill."""

from __future__ import annotations

import codecs
import inspect
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from tellback.errors import ConfigurationError, SkillError, ToolError
from tellback.tools import Tool, tools_by_name

MAX_FILE_BYTES = 100_000
"""Maximum number of bytes of a file that the model receives."""
MAX_LISTED_FILES = 200
MAX_VISITED_FILES = 5_000
_SAMPLE_BYTES = 1_024
_MAX_PATH_CHARS = 200
_DRIVE = re.compile(r"[A-Za-z]:")
# Do not block on a pipe, follow a link, or acquire a controlling terminal.
_OPEN_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """The folder a skill was loaded from, identified by device and inode: a folder that replaces it is rejected.

    `names` are the relative paths of the files that a model may read; with `has_more`, the list is incomplete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     _ = Path(root, "greetings.md").write_text("Say hello.")
    ...     folder = SkillFolder.at(Path(root))
    ...     print(folder.names, folder.text("greetings.md", "tone"))
    ('greetings.md',) Say hello.
    """

    root: str
    device: int
    inode: int
    names: tuple[str, ...] = ()
    has_more: bool = False

    @classmethod
    def at(cls, path: Path) -> SkillFolder:
        """Open the folder at this path and list its files."""
        root = os.path.realpath(path)
        status = os.stat(root)
        folder = cls(root, status.st_dev, status.st_ino)
        names, has_more = _list_files(folder)
        return replace(folder, names=names, has_more=has_more)

    def text(self, path: str, skill: str) -> str:
        """Return a file's text, truncated if it is long. Raises `SkillError` for other data or a file outside."""
        data, size = self.read(path, MAX_FILE_BYTES, skill)
        text = _decode_text(data, size, path, skill)
        return text if size <= len(data) else f"{text}\n\n[Truncated: these are the first {len(data)} of {size} bytes.]"

    def read(self, path: str, limit: int, skill: str) -> tuple[bytes, int]:
        """Read up to `limit` bytes of a regular file inside the folder, and its size; reject anything else."""
        parts = _split_path(path, skill)
        try:
            real = os.path.realpath(os.path.join(self.root, *parts), strict=True)
            inside = os.path.relpath(real, self.root).split(os.sep)
            if any(part.startswith(".") for part in inside):  # also rejects ".."
                raise SkillError(
                    skill, f"{path!r:.200} is a link that leads out of the skill's folder, or to a hidden file."
                )
            if not stat.S_ISREG(os.lstat(real).st_mode):
                raise SkillError(skill, f"{path!r:.200} is not a regular file.")
            descriptor = self._open_below(inside, skill)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise SkillError(skill, f"{path!r:.200} is not a regular file.")
                data = file.read(limit)
                return data, max(status.st_size, len(data))
        except (OSError, ValueError) as error:  # ValueError: an invalid file name
            reason = getattr(error, "strerror", None) or "invalid file name"
            raise SkillError(skill, f"the file {path!r:.200} cannot be read: {reason}.") from error

    def _open_below(self, parts: list[str], skill: str) -> int:
        """Open a file one path component at a time, so that a folder that was replaced by a link is not followed."""
        if os.open not in os.supports_dir_fd:
            self._validate_same_folder(os.stat(self.root, follow_symlinks=False), skill)
            return os.open(os.path.join(self.root, *parts), _OPEN_FLAGS)
        parent = os.open(self.root, _OPEN_FLAGS | os.O_DIRECTORY)
        try:
            self._validate_same_folder(os.fstat(parent), skill)
            for part in parts[:-1]:
                child = os.open(part, _OPEN_FLAGS | os.O_DIRECTORY, dir_fd=parent)
                os.close(parent)
                parent = child
            return os.open(parts[-1], _OPEN_FLAGS, dir_fd=parent)
        finally:
            os.close(parent)

    def _validate_same_folder(self, status: os.stat_result, skill: str) -> None:
        if (status.st_dev, status.st_ino) != (self.device, self.inode):
            raise SkillError(skill, f"the folder {self.root} was replaced after it was loaded; load it again.")


def _list_files(folder: SkillFolder) -> tuple[tuple[str, ...], bool]:
    """Return the sorted paths of the files a model may read, without SKILL.md, and whether there are more."""
    found: list[str] = []
    for visited, path in enumerate(_walk_files(folder.root)):
        if visited == MAX_VISITED_FILES or (path and len(found) == MAX_LISTED_FILES):
            return tuple(sorted(found)), True
        if path:
            with suppress(SkillError):  # not text
                data, size = folder.read(path, _SAMPLE_BYTES, "")
                _decode_text(data, size, path, "")
                found.append(path)
    return tuple(sorted(found)), False


def _walk_files(root: str) -> Iterator[str]:
    """Yield the path of each file that could be listed, and an empty text for every other entry."""
    for directory, folders, names in os.walk(root):
        yield ""
        folders[:] = sorted(name for name in folders if _is_visible(name))
        for name in sorted(names):
            path = Path(directory, name).relative_to(root).as_posix()
            yield path if _is_visible(name) and path != "SKILL.md" and len(path) <= _MAX_PATH_CHARS else ""


def _is_visible(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not name.startswith(".") and name != "__pycache__"


def _split_path(path: str, skill: str) -> list[str]:
    """Split a relative path; reject parent folders, hidden files, and paths that are absolute on any system."""
    is_unsafe = "\0" in path or "\\" in path or path.startswith("/") or _DRIVE.match(path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if is_unsafe or not parts or any(part.startswith(".") for part in parts):
        raise SkillError(skill, f"{path!r:.200} is not the path of one of its files: use a listed path.")
    return parts


def _decode_text(data: bytes, size: int, path: str, skill: str) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        text = decoder.decode(data, final=size <= len(data))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SkillError(skill, f"the file {path!r:.200} is not text and cannot be shown.")
    return text


_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Lone surrogates, and control characters except tabs and line breaks, because they can spoof terminal output."""

F = TypeVar("F", bound=Callable[..., Any])

_METADATA_ATTRIBUTE = "__tellback_skill__"


def strip_control_characters(text: str) -> str:
    """Remove control characters and lone surrogates from a text.

    >>> strip_control_characters("Be \\x1b[31mwarm\\x00.")
    'Be [31mwarm.'
    """
    return _CONTROL_CHARACTERS.sub("", text)


def find_control_character(text: str) -> str | None:
    """Return the first control character or lone surrogate of a text, or None.

    >>> find_control_character("Our voice"), find_control_character("Our\\x07voice")
    (None, '\\x07')
    """
    match = _CONTROL_CHARACTERS.search(text)
    return None if match is None else match.group()


@dataclass(frozen=True, slots=True)
class Skill:
    """Instructions that a model loads into its context when they are relevant.

    The model decides by `description` and `when` (trigger phrases). `modalities` are the supported kinds of input;
    None means text. `body` is returned unchanged; `body_fn` builds it from the context instead, with parameters
    filled by name. `tools` can be called after the skill was read or applied. `requires` contains the names of skills
    that are read first. `fn` is the function that the skill was created from, and `meta` contains other metadata.
    `files` is the folder that the skill was loaded from, if it has other files for the model to read.

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
            raise SkillError(self.name, f"description must be text, got {self.description!r:.80}.")
        _validate_characters(self.name, "description", self.description)
        if not isinstance(self.body, str | None):
            raise SkillError(self.name, f"body must be text, got {self.body!r:.80}; pass a function as body_fn.")
        for field_name in ("body_fn", "fn"):
            value = getattr(self, field_name)
            if value is not None and not callable(value):
                raise SkillError(self.name, f"{field_name} must be a function, got {value!r:.80}.")
        if not isinstance(self.files, SkillFolder | None):
            raise SkillError(self.name, f"files must be a SkillFolder, got {self.files!r:.80}; use load_skills.")
        for field_name in ("when", "requires"):
            object.__setattr__(self, field_name, _validate_texts(self.name, field_name, getattr(self, field_name)))
        if self.modalities is not None:
            object.__setattr__(self, "modalities", _validate_texts(self.name, "modalities", self.modalities))
        object.__setattr__(self, "tools", _validate_tools(self.name, self.tools))

    @classmethod
    def from_fn(cls, fn: Callable[..., Any]) -> Skill:
        """Create the skill of a function marked with `@skill`.

        >>> @skill(description="Our voice")
        ... def tone() -> str:
        ...     return "Be warm."
        >>> Skill.from_fn(tone).name
        'tone'
        """
        metadata = getattr(fn, _METADATA_ATTRIBUTE, None)
        if not isinstance(metadata, _SkillMetadata):
            raise SkillError(
                _skill_function_name(fn) or repr(fn)[:80], "it is not marked: decorate it with @skill(description=...)."
            )
        return metadata.build_skill(fn)


class SkillFields(TypedDict, total=False):
    """The arguments of `@skill`; see `Skill`."""

    description: str | None
    when: Sequence[str]
    name: str | None
    modalities: Sequence[str] | None
    tools: Sequence[Tool | Callable[..., Any]]
    requires: Sequence[str]
    body: str | None


@dataclass(frozen=True, slots=True)
class _SkillMetadata:
    """The arguments of `@skill`. The skill is created later, so that a method becomes a skill of its object."""

    fields: SkillFields

    def build_skill(self, fn: Callable[..., Any]) -> Skill:
        fields: dict[str, Any] = dict(self.fields)
        if fields.get("name") is None:
            fields["name"] = _skill_function_name(fn)
        if fields.get("description") is None:
            first_paragraph = (inspect.getdoc(fn) or "").partition("\n\n")[0]
            fields["description"] = " ".join(first_paragraph.split())
        return Skill(body_fn=fn if fields.get("body") is None else None, fn=fn, **fields)


@overload
def skill(fn: F, /) -> F: ...
@overload
def skill(**fields: Unpack[SkillFields]) -> Callable[[F], F]: ...
def skill(fn: F | None = None, /, **fields: Unpack[SkillFields]) -> F | Callable[[F], F]:
    """Mark a function as a skill; it can still be called as before.

    The function returns the body, and its parameters are filled from the context. With `body`, that text is the body
    and the function is never called. `name` and `description` default to the function's name and docstring.

    >>> @skill(description="Read a receipt", when=["expense"], modalities=["image", "pdf"])
    ... def receipts(attachments: list | None = None) -> str:
    ...     return f"Read the {len(attachments or [])} files."
    >>> receipts([1, 2]), Skill.from_fn(receipts).modalities
    ('Read the 2 files.', ('image', 'pdf'))
    """

    def mark(target: F) -> F:
        built = _SkillMetadata(fields).build_skill(target)  # reports invalid values at the decorator
        try:
            setattr(target, _METADATA_ATTRIBUTE, _SkillMetadata({**fields, "tools": built.tools}))
        except (AttributeError, TypeError) as error:
            raise SkillError(built.name, f"{target!r:.80} cannot be marked: use @skill on a plain function.") from error
        return target

    return mark if fn is None else mark(fn)


def skills_for(entries: Iterable[Skill | Callable[..., Any]]) -> list[Skill]:
    """Convert a list of `Skill`s and functions marked with `@skill` to skills.

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
    """Return the value if it is iterable, and neither a string nor a mapping."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ConfigurationError(f"Skills must be a list, got {value!r:.80}: write [...].")
    return value


def _as_skill(entry: Any) -> Skill:
    if isinstance(entry, Skill):
        return entry
    if not callable(entry):
        raise ConfigurationError(f"{entry!r:.80} is not a skill: pass a Skill or a function marked with @skill.")
    return Skill.from_fn(entry)


def _validate_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise SkillError(str(name)[:80], "a skill's name must be a non-empty string: pass name=... .")
    if name != name.strip() or not name.isprintable():
        raise SkillError(name[:80], "a skill's name must be one line without surrounding spaces or control characters.")


def _validate_texts(skill_name: str, field_name: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        raise SkillError(
            skill_name, f"{field_name} must be a list of strings, not one string: write {field_name}=[{value!r:.80}]."
        )
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"{field_name} must be a list of strings, got {value!r:.80}.")
    texts = tuple(value)
    for text in texts:
        if not isinstance(text, str) or not text.strip():
            raise SkillError(skill_name, f"{field_name} must contain only non-empty strings, got {text!r:.80}.")
        _validate_characters(skill_name, field_name, text)
    return texts


def _validate_characters(skill_name: str, field_name: str, text: str) -> None:
    character = find_control_character(text)
    if character is not None:
        raise SkillError(skill_name, f"{field_name} contains the control character {character!r}; remove it.")


def _validate_tools(skill_name: str, value: Any) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if callable(value) or isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise SkillError(skill_name, f"tools must be a list of functions, got {value!r:.80}: write tools=[...].")
    try:
        return tuple(tools_by_name(value).values())
    except (ConfigurationError, ToolError) as error:
        raise SkillError(skill_name, f"one of its tools is invalid. {error}") from error


def _skill_function_name(fn: Any) -> str:
    name = getattr(fn, "__name__", "")
    return "" if name == "<lambda>" else str(name)
