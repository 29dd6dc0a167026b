"""Allowed hosts and origins: check the `Host` and `Origin` of a request, and recognize loopback addresses."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from tellback.errors import NotAllowedError

_PROXY_HEADERS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip")


@lru_cache(maxsize=1_000)
def host_name(host: str) -> str:
    """The name in a `Host` header, without its port.

    >>> host_name("Example.com.:8765"), host_name("[::1]:8765")
    ('example.com', '::1')
    """
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


@lru_cache(maxsize=1_000)
def is_loopback(name: str) -> bool:
    """Whether a name or an address is this machine's own, seen from itself.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("127.0.0.1.example.com")
    (True, True, True, False)
    """
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


class HostPolicy:
    """Checks the `Host` of a request.

    Where everyone is let in, a request must be for a loopback name, from this machine and not through a proxy; and a
    page of another origin may not have sent it: a name of an attacker that leads to 127.0.0.1 is as good as a proxy.
    """

    def __init__(self, allowed: Iterable[str], *, is_open: bool, origins: Iterable[str] = ()) -> None:
        self._names = frozenset(host_name(name) for name in allowed if not name.startswith("*."))
        self._suffixes = tuple(name[1:].lower() for name in allowed if name.startswith("*."))
        self._is_open = is_open
        self._origins = frozenset(origins)
        self.is_disabled = not (self._names or self._suffixes or is_open)

    def check(self, headers: Mapping[bytes, bytes], client: tuple[str, int] | None) -> None:
        """Raise `NotAllowedError` unless the request may be answered here."""
        if self.is_disabled:
            return
        host = headers.get(b"host", b"").decode("latin-1")
        name = host_name(host)
        if self._is_open:
            self._check_open(headers, host, name, client)
        if (self._names or self._suffixes) and name not in self._names and not name.endswith(self._suffixes or ("\0",)):
            raise NotAllowedError("This server is not asked for under that name: see allowed_hosts of its settings.")

    def _check_open(self, headers: Mapping[bytes, bytes], host: str, name: str, client: tuple[str, int] | None) -> None:
        if not is_loopback(name) or any(each in headers for each in _PROXY_HEADERS):
            raise NotAllowedError(
                "This server is open to its own machine, as http://localhost or http://127.0.0.1: to be reached in"
                " another way it needs credentials, which `tellback keys create` makes."
            )
        # Who comes by a Unix socket has no address, and is on this machine.
        if client is not None and not is_loopback(client[0]):
            raise NotAllowedError("This server is open to its own machine: others need credentials, and it has none.")
        origin = headers.get(b"origin")
        if origin is not None and not self._is_allowed_origin(origin.decode("latin-1"), host):
            raise NotAllowedError("Pages of other origins are not let in: see cors_origins of the server's settings.")

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if origin in self._origins:
            return True
        try:
            return urlsplit(origin).netloc == host and bool(host)
        except ValueError:
            return False
