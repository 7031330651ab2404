"""Who may do what at the public port: tokens and their grants, and which pages may talk to it at all.

A page of another site that a user happens to visit must not reach a port on that user's machine. So a port
that is open without a token answers only to names of this machine (which stops rebinding of DNS names), and
any port answers pages of its own origin alone, unless others were named.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any

from penstock.errors import InvalidOption, MissingExtra, PenstockError
from penstock.keys import Match, match
from penstock.serve.http_messages import Refusal, Request

COOKIE = "penstock_token"
#: RFC 7518: a key of the size of the hash output or larger.
_SECRET_BYTES_LEAST = 32
_AUDIENCE = "penstock"


class Grant:
    """What one client may do."""

    __slots__ = ("_push", "_subscribe", "_topics", "expires", "names")

    def __init__(
        self, *, push: Match | None, subscribe: Match | None, topics: frozenset[str] | None,
        names: frozenset[str], expires: float | None,
    ) -> None:  # fmt: skip
        self._push = push
        self._subscribe = subscribe
        self._topics = topics
        #: What an event's audience is compared with.
        self.names = names
        #: In seconds since 1970.
        self.expires = expires

    def require_push(self, topic: str, keys: Sequence[bytes]) -> None:
        """Raise unless it may push to the keys."""
        self._require_topic(topic)
        if self._push is None:
            return
        for key in keys:
            if not self._push.takes(key):
                raise Refusal(403, f"the token does not allow to push to {_shown(key)}")

    def require_subscribe(self, topic: str, asked: Match) -> None:
        """Raise unless it may listen to the keys."""
        self._require_topic(topic)
        allowed = self._subscribe
        if allowed is None:
            return
        for key in asked.keys:
            if not allowed.takes(key):
                raise Refusal(403, f"the token does not allow to subscribe to {_shown(key)}")
        for prefix in asked.prefixes:
            if not allowed.prefixes or not prefix.startswith(allowed.prefixes):
                raise Refusal(
                    403, f"the token does not allow to subscribe to all that begins {_shown(prefix)}"
                )

    def sees(self, audience: frozenset[str] | None) -> bool:
        """Whether an event for that audience is for this client; one without is for all."""
        return audience is None or not self.names.isdisjoint(audience)

    def _require_topic(self, topic: str) -> None:
        if self._topics is not None and topic not in self._topics:
            raise Refusal(403, f"the token is not for topic {topic!r}")


#: For a port that is open to this machine alone: everything, but of no audience.
OPEN = Grant(push=None, subscribe=None, topics=None, names=frozenset(), expires=None)


class Access:
    """Checks tokens. Without a key every client may do everything."""

    def __init__(self, *, secret: str | None = None, public_key: str | None = None, topic: str) -> None:
        if secret is not None and public_key is not None:
            raise InvalidOption("a secret and a public key", hint="give one of them")
        self._topic = topic
        self._key = secret if secret is not None else public_key
        self._algorithm = "HS256" if secret is not None else "RS256"
        if secret is not None and len(secret.encode()) < _SECRET_BYTES_LEAST:
            raise InvalidOption(
                f"a secret of less than {_SECRET_BYTES_LEAST} bytes can be guessed",
                hint="python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one",
            )
        self._jwt = None if self._key is None else _jwt()
        if public_key is not None:
            self._check_public_key(public_key)

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self._key is None

    def grant(self, request: Request) -> Grant | None:
        """What the request's token allows; None when it has none and needs one. Raises `Refusal`."""
        if self._key is None:
            return OPEN
        token = _token(request)
        return None if token is None else self.check(token)

    def check(self, token: str) -> Grant:
        """What a token allows; raises `Refusal` (401) for one that is not good."""
        assert self._jwt is not None
        try:
            claims = self._jwt.decode(
                token,
                self._key,
                algorithms=[self._algorithm],
                options={"require": ["exp"], "verify_aud": False},
            )
        except self._jwt.PyJWTError as error:
            raise Refusal(401, f"the token is not good: {error}", "get a new one") from None
        try:
            return _grant(claims, self._topic)
        except (PenstockError, TypeError, ValueError, OverflowError) as error:
            raise Refusal(401, f"the token's claims make no sense: {error}") from None

    def _check_public_key(self, public_key: str) -> None:
        assert self._jwt is not None
        try:
            self._jwt.get_algorithm_by_name("RS256").prepare_key(public_key)
        except (self._jwt.PyJWTError, ValueError, TypeError) as error:
            raise InvalidOption(f"that is no public key for RS256: {error}", hint="a PEM file") from None


def _jwt() -> Any:
    try:
        import jwt
    except ImportError:
        raise MissingExtra("PyJWT", "server") from None
    return jwt


def _token(request: Request) -> str | None:
    """The token of a request: from its header, its parameter or its cookie."""
    header = request.headers.get("authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise Refusal(401, "the Authorization header holds no token", "Authorization: Bearer TOKEN")
        return token.strip()
    given = request.one("token")
    if given is not None:
        return given
    try:
        morsel = SimpleCookie(request.headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return morsel.value if morsel is not None else None


def _grant(claims: dict[str, Any], topic: str) -> Grant:
    audience = claims.get("aud")
    if audience is not None and _AUDIENCE not in ([audience] if isinstance(audience, str) else audience):
        raise InvalidOption(f"it is for others: its `aud` is not {_AUDIENCE!r}")
    subject = claims.get("sub")
    names = {*_texts("groups", claims.get("groups", [])), *([subject] if isinstance(subject, str) else [])}
    return Grant(
        push=_allowed(claims.get("push")),
        subscribe=_allowed(claims.get("subscribe")),
        topics=frozenset(_texts("topics", claims.get("topics", [topic]))),
        names=frozenset(names),
        expires=float(claims["exp"]),
    )


def _allowed(right: Any) -> Match:
    if right is None:
        return Match()
    if not isinstance(right, dict) or right.keys() - {"keys", "prefixes"}:
        raise InvalidOption('a right is {"keys": […], "prefixes": […]}')
    return match(_listed("keys", right.get("keys", [])), _listed("prefixes", right.get("prefixes", [])))


def _texts(name: str, given: Any) -> list[str]:
    listed = _listed(name, given)
    if not all(isinstance(each, str) for each in listed):
        raise InvalidOption(f"{name} are texts")
    return listed


def _listed(name: str, given: Any) -> list[Any]:
    if not isinstance(given, list):
        raise InvalidOption(f"{name} is a list")
    return given


def _shown(key: bytes) -> str:
    return repr(key[:60].decode(errors="backslashreplace"))


def has_expired(grant: Grant) -> bool:
    """Whether a token's time has passed."""
    return grant.expires is not None and time.time() >= grant.expires


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
        """Answer the preflight request that a browser sends before a request with a token."""
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
