"""Opening a place for bodies by its address."""

from __future__ import annotations

import os
from collections.abc import Mapping

from penstock.errors import InvalidOption, WrongType
from penstock.files import Files
from penstock.options import FILES, BodyLocation, require_obstore, split_s3
from penstock.payloads.files import FileBodies
from penstock.payloads.names import ExactNames
from penstock.payloads.s3 import S3Bodies
from penstock.payloads.store import BodyStore

#: Bytes of a key in S3, and of a path in a folder, less what leads to it.
_KEY_BYTES_MAX, _PATH_BYTES_MAX = 1024, 3000


def open_bodies(
    place: str | os.PathLike[str], prefix: str = "", *, options: Mapping[str, str] | None = None,
    files: Files | None = None, exact: bool = False,
) -> BodyStore:  # fmt: skip
    """The bodies at a place: a folder, or `s3://bucket/prefix`. Nothing is asked of it yet.

    `prefix` leads to a part of it, of which alone the store sees something. `options` are for S3: endpoint,
    region, allow_http; never credentials. With `exact` names are paths as they are, for others to find; then
    `MissingExtra` is raised at once.
    """
    if not isinstance(place, (str, os.PathLike)):
        raise WrongType(f"a place for bodies is a folder or an s3:// address, not {type(place).__name__}")
    address = os.fspath(place)
    if address.startswith("s3://"):
        bucket, inside = split_s3(address)
        whole = "/".join(part for part in (inside, prefix.strip("/")) if part)
        if exact:
            require_obstore()
        room = _KEY_BYTES_MAX - len(whole.encode()) - 1
        return S3Bodies(bucket, whole, options, ExactNames(room) if exact else None)
    if "://" in address or not address:
        raise InvalidOption(f"bodies cannot lie at {address!r}", hint="use a folder, or s3://bucket/prefix")
    if options:
        raise InvalidOption("options are for s3:// only", hint="a folder needs none")
    folder = os.path.join(os.path.abspath(address), prefix) if prefix else os.path.abspath(address)
    return FileBodies(folder, files, ExactNames(_PATH_BYTES_MAX - len(folder.encode())) if exact else None)


def open_topic_bodies(
    place: BodyLocation, root: str, store_id: str, topic_id: int, files: Files | None = None
) -> BodyStore:
    """What one topic has at a place, and nothing else that lies there; `root` is the store's own folder."""
    if place.address == FILES:
        return open_bodies(os.path.join(root, str(topic_id)), files=files)
    return open_bodies(place.address, f"{store_id}/{topic_id}", options=dict(place.options))
