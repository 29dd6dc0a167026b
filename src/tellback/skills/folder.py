"""The files of a skill's folder, readable one at a time and never beyond the folder."""

from __future__ import annotations

import codecs
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tellback.errors import SkillError

MAX_FILE_BYTES = 100_000
"""How many bytes of a file reach the model."""
MAX_LISTED_FILES = 200
MAX_VISITED_FILES = 5_000
_SAMPLE_BYTES = 1_024
_MAX_PATH_CHARS = 200
_DRIVE = re.compile(r"[A-Za-z]:")
# A pipe must not block, a link must not be followed, and a terminal must not become ours.
_OPEN_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """The folder a skill was loaded from: this very one, and not what may be put in its place later.

    `names` are the files of it that a model may read, as paths below it, and `has_more` says that not all are listed.
    """

    root: str
    device: int
    inode: int
    names: tuple[str, ...] = ()
    has_more: bool = False

    @classmethod
    def at(cls, path: Path) -> SkillFolder:
        """The folder as it is now, with its files."""
        root = os.path.realpath(path)
        status = os.stat(root)
        folder = cls(root, status.st_dev, status.st_ino)
        names, has_more = _list_files(folder)
        return replace(folder, names=names, has_more=has_more)

    def text(self, path: str, skill: str) -> str:
        """A file's text, cut where it is long; what is no text, or not inside, is a `SkillError`."""
        data, size = self.read(path, MAX_FILE_BYTES, skill)
        text = _decode_text(data, size, path, skill)
        return text if size <= len(data) else f"{text}\n\n[Cut here: these are the first {len(data)} of {size} bytes.]"

    def read(self, path: str, limit: int, skill: str) -> tuple[bytes, int]:
        """Up to `limit` bytes of a regular file inside the folder, and its size; anything else is a `SkillError`."""
        parts = _split_path(path, skill)
        try:
            real = os.path.realpath(os.path.join(self.root, *parts), strict=True)
            inside = os.path.relpath(real, self.root).split(os.sep)
            if any(part.startswith(".") for part in inside):  # ".." is how a way out begins
                raise SkillError(
                    skill, f"{path!r:.200} is a link that leads out of the skill's folder, or to a hidden file."
                )
            if not stat.S_ISREG(os.lstat(real).st_mode):
                raise SkillError(skill, f"{path!r:.200} is not a file that can be read.")
            descriptor = self._open_below(inside, skill)
            with open(descriptor, "rb") as file:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise SkillError(skill, f"{path!r:.200} is not a file that can be read.")
                data = file.read(limit)
                return data, max(status.st_size, len(data))
        except (OSError, ValueError) as error:  # a ValueError is a name that no file can have
            reason = getattr(error, "strerror", None) or "no file can have this name"
            raise SkillError(skill, f"the file {path!r:.200} cannot be read: {reason}.") from error

    def _open_below(self, parts: list[str], skill: str) -> int:
        """Open a file step by step, so that a folder swapped for a link in the meantime is not followed."""
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
            raise SkillError(skill, f"another folder is at {self.root} since it was loaded; load it again.")


def _list_files(folder: SkillFolder) -> tuple[tuple[str, ...], bool]:
    """Paths of the files a model may read, sorted, without SKILL.md; and whether there are more of them."""
    found: list[str] = []
    for visited, path in enumerate(_walk_files(folder.root)):
        if visited == MAX_VISITED_FILES or (path and len(found) == MAX_LISTED_FILES):
            return tuple(sorted(found)), True
        if path and _is_text_file(folder, path):
            found.append(path)
    return tuple(sorted(found)), False


def _is_text_file(folder: SkillFolder, path: str) -> bool:
    try:
        data, size = folder.read(path, _SAMPLE_BYTES, "")
        _decode_text(data, size, path, "")
    except SkillError:
        return False
    return True


def _walk_files(root: str) -> Iterator[str]:
    """The path of each file that could be listed, and an empty one for everything else that is met."""
    for directory, folders, names in os.walk(root):
        yield ""
        folders[:] = sorted(name for name in folders if _is_visible(name))
        for name in sorted(names):
            path = Path(directory, name).relative_to(root).as_posix()
            yield path if _is_visible(name) and path != "SKILL.md" and len(path) <= _MAX_PATH_CHARS else ""


def _is_visible(name: str) -> bool:
    return name.isprintable() and "\\" not in name and not name.startswith(".") and name != "__pycache__"


def _split_path(path: str, skill: str) -> list[str]:
    """The steps of a relative path, which may not go up, be hidden, or mean something else on another system."""
    is_unsafe = "\0" in path or "\\" in path or path.startswith("/") or _DRIVE.match(path)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if is_unsafe or not parts or any(part.startswith(".") for part in parts):
        raise SkillError(skill, f"{path!r:.200} is not the path of one of its files: use one that is listed with it.")
    return parts


def _decode_text(data: bytes, size: int, path: str, skill: str) -> str:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        text = decoder.decode(data, final=size <= len(data))
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SkillError(skill, f"the file {path!r:.200} is not text, and cannot be shown.")
    return text
