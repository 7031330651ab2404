"""Files that pages are made of: our client for browsers, and a folder that the operator named.

They are for everybody who may ask at all: a page has to be there before it can show a token. Every answer
carries an ETag, and is asked for again each time (304 if nothing changed): a new version is seen at once.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from penstock.serve.http_messages import Refusal, Request

_OURS = Path(__file__).parent / "browser"
_CACHED = b"Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n"
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".mjs": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".ts": "application/typescript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}


class Asset(NamedTuple):
    """An answer with a file: status, body, and the headers that say what it is."""

    status: int
    body: bytes
    headers: bytes


@cache
def names() -> frozenset[str]:
    """The paths under which our own files are found."""
    return frozenset("/" + path.relative_to(_OURS).as_posix() for path in _OURS.rglob("*") if path.is_file())


def own_asset(request: Request) -> Asset:
    """One of our own files; `request.path` is among `names()`."""
    body, tag = _own(request.path)
    return _asset(request, Path(request.path).suffix, body, tag)


def page(request: Request, folder: str) -> Asset:
    """A file of the folder; raises `Refusal` for what is not there, or must not be seen."""
    parts = [part for part in unquote(request.path).split("/") if part]
    if any(part.startswith(".") or "\\" in part or "\0" in part for part in parts):
        raise _not_found(request)
    root = Path(folder).resolve()
    try:
        path = root.joinpath(*parts).resolve(strict=True)
        if path.is_dir():
            if not request.path.endswith("/"):  # so that links beside the page are found
                return Asset(
                    308, b"", f"Content-Type: text/plain\r\nLocation: /{quote('/'.join(parts))}/\r\n".encode()
                )
            path = (path / "index.html").resolve(strict=True)
        elif request.path.endswith("/"):
            raise _not_found(request)
        if not path.is_relative_to(root):  # a link that leads out
            raise _not_found(request)
        body = path.read_bytes()
    except OSError:
        raise _not_found(request) from None
    return _asset(request, path.suffix.lower(), body, _tag(body))


def _asset(request: Request, suffix: str, body: bytes, tag: str) -> Asset:
    kind = _KINDS.get(suffix, "application/octet-stream")
    headers = f"Content-Type: {kind}\r\nETag: {tag}\r\n".encode() + _CACHED
    if tag in request.headers.get("if-none-match", ""):
        return Asset(304, b"", headers)
    return Asset(200, body, headers)


@cache
def _own(path: str) -> tuple[bytes, str]:
    body = (_OURS / path.lstrip("/")).read_bytes()
    return body, _tag(body)


def _tag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:24]}"'


def _not_found(request: Request) -> Refusal:
    return Refusal(404, f"there is nothing at {request.path[:60]!r}")
