"""Whether a browser's page may talk to us: by `Host` and `Origin`.

A page of another site that a user happens to visit must not reach a port on that user's machine. So a port
that is open without a token answers only to names of this machine (which stops rebinding of DNS names), and
any port answers pages of its own origin alone, unless others were named.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from penstock.serve.replies import Refusal, Request

_ALLOWED = (
    b"Access-Control-Allow-Methods: GET, POST, OPTIONS\r\n"
    b"Access-Control-Allow-Headers: Authorization, Content-Type, Idempotency-Key, Last-Event-ID\r\n"
    b"Access-Control-Max-Age: 600\r\n"
)


class Origins:
    """The hosts and origins that are answered; `*` among the origins takes all."""

    def __init__(self, *, origins: Sequence[str] = (), hosts: Sequence[str] = (), local_only: bool) -> None:
        self._origins = frozenset(each.rstrip("/").lower() for each in origins)
        self._hosts = frozenset(each.lower() for each in hosts)
        self._local_only = local_only
        self._is_our_host = lru_cache(maxsize=256)(self._is_ours)

    def check(self, request: Request) -> bytes:
        """The headers that let the page see the answer; raises `Refusal`."""
        host = request.headers.get("host", "").lower()
        if not self._is_our_host(host):
            raise Refusal(403, f"this server does not answer to the name {host[:60]!r}", "--allow-host NAME")
        origin = request.headers.get("origin")
        if origin is None:
            return b""
        is_own = origin.lower() in (f"http://{host}", f"https://{host}")
        if not is_own and origin.lower() not in self._origins:
            if "*" in self._origins:
                # Any page could use its visitor's cookie in the visitor's name.
                request.headers = {name: text for name, text in request.headers.items() if name != "cookie"}
                return b"Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: Retry-After\r\n"
            raise Refusal(
                403, f"pages of {origin[:60]!r} may not use this server", "--allow-origin ORIGIN lets them"
            )
        return (
            b"Access-Control-Allow-Origin: %s\r\nAccess-Control-Allow-Credentials: true\r\nVary: Origin\r\n"
            b"Access-Control-Expose-Headers: Retry-After\r\n" % origin.encode("latin-1", "replace")
        )

    def preflight(self) -> bytes:
        """What a browser asks for before it sends a request with a token."""
        return _ALLOWED

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host)
        if self._hosts:
            return name in self._hosts or is_local(name)
        return not self._local_only or is_local(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def is_local(name: str) -> bool:
    """Whether a host's name or address is this machine and nothing else."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
