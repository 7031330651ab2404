"""Who may push and subscribe: tokens (JWT), and what they allow.

    {"sub": "user-7", "exp": 1767225600, "groups": ["staff"], "topics": ["events"],
     "subscribe": {"keys": ["news", ["user", 7]], "prefixes": [["chat"]]},
     "push":      {"keys": [["user", 7]]}}

A right that a token does not name it does not give; the prefix "" is all keys. `exp` must be there.
Without `topics` a token is good for the default topic alone. One with `aud` must name "penstock" in it.

The algorithm is never taken from the token: a secret means HS256, a public key RS256.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any

from penstock.errors import InvalidOption, MissingExtra, PenstockError
from penstock.keys import Match, match
from penstock.serve.replies import Refusal, Request

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
        self._require_topic(topic)
        if self._push is None:
            return
        for key in keys:
            if not self._push.takes(key):
                raise Refusal(403, f"the token does not allow to push to {_shown(key)}")

    def require_subscribe(self, topic: str, asked: Match) -> None:
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
    return grant.expires is not None and time.time() >= grant.expires
