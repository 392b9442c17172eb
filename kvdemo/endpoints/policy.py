"""Which addresses may be asked. Decided once for each endpoint, before anything is sent.

https anywhere public; http to this machine, in local mode; anything that the operator named. A name is resolved once, and the
address that was checked is the one that is used, so that it cannot become another one afterwards.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from kvdemo.errors import InvalidRequest

__all__ = ["Target", "checked_target", "resolved"]

PORTS = {"http": 80, "https": 443}
ENDINGS = ("/chat/completions", "/completions", "/models")
STANDING_FOR = tuple(map(ipaddress.ip_network, ("2002::/16", "64:ff9b::/96", "::ffff:0:0/96")))
"""IPv6 addresses that a network turns into the IPv4 address inside them: 6to4, NAT64, mapped."""
Resolve = Callable[[str, int], Sequence[str]]
"""(host, port) -> IP addresses; OSError where there are none."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address. path: of the API, "/v1" or as given; address: the IP that the host's name had when it was checked.

    others   further ones that it had, checked like it, for where nothing listens at the first
    """

    scheme: str
    host: str
    port: int
    path: str
    address: str
    others: tuple[str, ...] = ()

    def another(self) -> Target:
        """The same at the next of its addresses."""
        return replace(self, address=self.others[0], others=self.others[1:])

    @property
    def authority(self) -> str:
        """host[:port] as a browser writes it: what people are told, and the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """The URL with the address that was checked in the place of the name."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.scheme}://{address}:{self.port}{self.path}"


def resolved(host: str, port: int) -> list[str]:
    """The system's answer."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def checked_target(url: str, *, mode: str, allowed: Sequence[str] = (), resolve: Resolve = resolved) -> Target:
    """The address to ask; InvalidRequest for one that may not be asked, or that is none.

    allowed   HOST or HOST:PORT that the operator named: any scheme, any address
    """
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").lower(), parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise InvalidRequest("url", "is not an address such as http://127.0.0.1:8000/v1") from None
    if (
        parts.scheme not in PORTS
        or not host
        or any(character.isspace() or ord(character) < 33 for character in url.strip())
    ):
        raise InvalidRequest("url", "is not an address such as http://127.0.0.1:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("url", "holds a user name or password; a key has its own field")
    if parts.query or parts.fragment:
        raise InvalidRequest("url", "must end before the ? or #: the server's address and nothing else")
    port = port or PORTS[parts.scheme]
    named = f"{host}:{port}" in allowed or host in allowed
    if mode != "local" and not named:
        raise InvalidRequest(
            "url", "endpoints are off on a shared page, except those that its operator allows (--allow-endpoint)"
        )
    try:
        addresses = [ipaddress.ip_address(text.partition("%")[0]) for text in resolve(host, port)]
    except (OSError, UnicodeError, ValueError):
        addresses = []
    if not addresses:
        raise InvalidRequest("url", f"there is no host called {host}")
    if not named:
        here = all(address.is_loopback for address in addresses)
        if not here and not all(is_public(address) for address in addresses):
            raise InvalidRequest(
                "url",
                f"{host} is inside a private network; whoever runs this page can allow it: --allow-endpoint {host}:{port}",
            )
        if parts.scheme == "http" and not here:
            raise InvalidRequest("url", "http goes to this machine only, since others could read it; use https")
    first, *others = map(str, sorted(dict.fromkeys(addresses), key=lambda address: address.version))
    return Target(parts.scheme, host, port, api_path(parts.path), first, tuple(others))


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Of the open network; not one that stands for another, which may be inside a private one."""
    return address.is_global and not address.is_multicast and not any(address in network for network in STANDING_FOR)


def api_path(path: str) -> str:
    """ "" and "/" mean /v1; the end of a whole call is taken off."""
    path = path.rstrip("/")
    for ending in ENDINGS:
        path = path.removesuffix(ending)
    return path or "/v1"
