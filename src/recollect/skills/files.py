"""The files of a skill's folder, readable one at a time and never beyond the folder."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import SkillError
from recollect.tools import Tool

MAX_FILE = 100_000
"""How many bytes of a file reach the model."""
MOST_LISTED = 200
_MOST_SEEN = 5_000
_LONGEST = 200
_DRIVE = re.compile(r"[A-Za-z]:")
# A pipe must not block, a link must not be followed, and a terminal must not become ours.
_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


@dataclass(frozen=True, slots=True)
class SkillFiles:
    """The folders of skills that were loaded together, and the one tool that reads their files."""

    folders: Mapping[str, Path]

    def read_skill_file(self, skill: str, path: str) -> str:
        """Read a file that belongs to a skill you have read.

        Args:
            skill: The skill's name.
            path: The file's path, as it is listed with the skill.
        """
        folder = self.folders.get(skill)
        if folder is None:
            raise SkillError(skill, f"it has no files. These have: {', '.join(sorted(self.folders)) or 'none'}.")
        data, size = read_inside(folder, path, MAX_FILE, skill)
        text = _decoded(data, size, path, skill)
        if size > len(data):
            text += f"\n\n[Cut here: these are the first {len(data)} of {size} bytes.]"
        return text

    def joined(self, other: SkillFiles) -> SkillFiles:
        """One that knows the folders of both, the other's where they differ."""
        return SkillFiles({**self.folders, **other.folders})

    def tool(self) -> Tool:
        """The tool that a model calls."""
        return Tool.from_fn(self.read_skill_file, timeout=30)


def files_behind(tool: Tool) -> SkillFiles | None:
    """What a `read_skill_file` reads from; None for any other tool."""
    owner = getattr(tool.fn, "__self__", None)
    return owner if isinstance(owner, SkillFiles) else None


def read_inside(folder: Path, path: str, limit: int, skill: str) -> tuple[bytes, int]:
    """Up to `limit` bytes of a regular file inside the folder, and its size; anything else is a `SkillError`."""
    parts = _parts(path, skill)
    try:
        root = os.path.realpath(folder)
        real = os.path.realpath(os.path.join(root, *parts), strict=True)
        inside = os.path.relpath(real, root).split(os.sep)
        if any(part.startswith(".") for part in inside):  # ".." is how a way out begins
            raise SkillError(
                skill, f"{path!r:.200} is a link that leads out of the skill's folder, or to a hidden file."
            )
        if not stat.S_ISREG(os.lstat(real).st_mode):
            raise SkillError(skill, f"{path!r:.200} is not a file that can be read.")
        descriptor = _open_below(root, inside)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise SkillError(skill, f"{path!r:.200} is not a file that can be read.")
            data = file.read(limit)
            return data, max(status.st_size, len(data))
    except (OSError, ValueError) as error:  # a ValueError is a name that no file can have
        reason = getattr(error, "strerror", None) or "no file can have this name"
        raise SkillError(skill, f"the file {path!r:.200} cannot be read: {reason}.") from error


def files_of(folder: Path) -> tuple[list[str], bool]:
    """Relative paths of the files a model may read, sorted, without SKILL.md; and whether there are more of them."""
    found: list[str] = []
    for seen, path in enumerate(_walk(folder)):
        if seen == _MOST_SEEN or (path and len(found) == MOST_LISTED):
            return sorted(found), True
        if path:
            found.append(path)
    return sorted(found), False


def _walk(folder: Path) -> Iterator[str]:
    """The path of each file that can be read, and an empty one for everything else that is met."""
    for where, folders, names in os.walk(folder):
        yield ""
        folders[:] = sorted(name for name in folders if _is_plain(name))
        for name in sorted(names):
            path = Path(where, name)
            relative = path.relative_to(folder).as_posix()
            is_other = _is_plain(name) and relative != "SKILL.md" and len(relative) <= _LONGEST
            yield relative if is_other and os.path.isfile(path) and path.resolve().is_relative_to(folder) else ""


def _is_plain(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not name.startswith(".") and name != "__pycache__"


def _parts(path: str, skill: str) -> list[str]:
    """The steps of a relative path, which may not go up, be hidden, or mean something else on another system."""
    odd = "\0" in path or "\\" in path or path.startswith("/") or _DRIVE.match(path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if odd or not parts or any(part.startswith(".") for part in parts):
        raise SkillError(skill, f"{path!r:.200} is not the path of one of its files: use one that is listed with it.")
    return parts


def _open_below(root: str, parts: list[str]) -> int:
    """Open a file step by step, so that a folder swapped for a link in the meantime is not followed."""
    if os.open not in os.supports_dir_fd:
        return os.open(os.path.join(root, *parts), _FLAGS)
    holder = os.open(root, _FLAGS | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FLAGS | os.O_DIRECTORY, dir_fd=holder)
            os.close(holder)
            holder = below
        return os.open(parts[-1], _FLAGS, dir_fd=holder)
    finally:
        os.close(holder)


def _decoded(data: bytes, size: int, path: str, skill: str) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        text = decoder.decode(data, final=size <= len(data))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SkillError(skill, f"the file {path!r:.200} is not text, and cannot be shown.")
    return text
