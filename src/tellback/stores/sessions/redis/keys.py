"""The keys that an adapter's data is under."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from tellback.errors import ConfigurationError
from tellback.types.jsontext import is_storable

MAX_PREFIX_LENGTH = 200

_GLOB_CHARACTERS = frozenset("*?[]\\^")
_ESCAPES = str.maketrans({mark: f"%{ord(mark):02X}" for mark in "%:{}"})


@dataclass(frozen=True, slots=True)
class RedisKeys:
    """Keys of one prefix.

    Colons in ids are escaped: so no id can make a key that another kind, or another prefix, has too. Braces are as
    well, because what is between them decides in which slot of a cluster a key is.

    >>> RedisKeys("chat:").session("a:b")
    b'chat:session:a%3Ab'
    """

    prefix: str

    def session(self, id: str) -> bytes:
        """A session's own fields: a hash."""
        return self._key("session", id)

    def messages(self, session_id: str) -> bytes:
        """Its messages: a stream, whose ids begin with the positions."""
        return self._key("messages", session_id)

    def user(self, user_id: str) -> bytes:
        """A user's sessions in the order they were created: a sorted set whose members sort as texts."""
        return self._key("user", user_id)

    def active(self, user_id: str) -> bytes:
        """Those of them that are active."""
        return self._key("active", user_id)

    def new_reply(self) -> bytes:
        """What one change gave, for a short time: a change that is sent again is not made again."""
        return self._key("done", uuid.uuid4().hex)

    def messages_pattern(self) -> bytes:
        """A pattern of the keys of messages."""
        return self._key("messages", "") + b"*"

    def users_pattern(self) -> bytes:
        """A pattern of the keys of users' sessions."""
        return self._key("user", "") + b"*"

    def parse_user_id(self, key: bytes) -> str:
        """Whose sessions a key is for."""
        return unquote(key.rpartition(b":")[2].decode())

    def _key(self, kind: str, id: str) -> bytes:
        return f"{self.prefix}{kind}:{id.translate(_ESCAPES)}".encode()


def validate_key_prefix(value: Any) -> str:
    """A prefix of keys: a text without control characters, and without those that patterns are made of."""
    if type(value) is not str or not 0 < len(value) <= MAX_PREFIX_LENGTH or not is_storable(value):
        raise ConfigurationError(f"key_prefix is a text of 1 to {MAX_PREFIX_LENGTH} characters, not {value!r:.80}.")
    if not value.isprintable() or _GLOB_CHARACTERS & set(value):
        raise ConfigurationError(f"key_prefix has no control characters and none of *?[]\\^, but {value!r} has.")
    return value
