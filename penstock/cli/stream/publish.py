"""`penstock stream publish`: text, standard input, files, and all files of a folder."""

from __future__ import annotations

import io
import mimetypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple

import typer

from penstock import Stream
from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption, open_to_write
from penstock.cli.stream.arguments import DEFAULT_STREAM, BodiesOption, NameOption, SubjectArgument, pairs
from penstock.errors import InvalidOption
from penstock.streams.engine import Data


class _Body(NamedTuple):
    """What is to be published: a body, what it is called, and its size if it is known."""

    data: Data
    object_name: str | None = None
    size: int = 0


def publish(
    subject: SubjectArgument,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="The body as text; - reads it from stdin.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", metavar="PATH", help="A file, or a folder with all its files; repeatable."
        ),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeatable.")
    ] = None,
    object_name: Annotated[
        str | None, typer.Option("--object-name", metavar="NAME", help="What the body is called.")
    ] = None,
    place: BodiesOption = None,
    name: NameOption = DEFAULT_STREAM,
    store: StoreOption = "",
    as_json: JsonOption = False,
) -> None:
    """Publish a message, or one for each file; all are on disk when this returns.

    Files keep their names (below the folder that was given), and get a content-type if they have none.
    """
    headers = pairs("--header", header)
    bodies = list(_bodies(data, file or [], object_name))
    with open_to_write(store, create=True) as opened:
        stream = opened.stream(name, bodies=place)
        published = [_published(stream, subject, body, headers) for body in bodies]
    if as_json:
        output.put_json({"stream": name, "published": published})
        return
    for each in published:
        output.put_text(f"{name}: {subject} {each['sequence']}  {each['object_name']}".rstrip())


def _bodies(data: str | None, files: list[Path], object_name: str | None) -> Iterator[_Body]:
    if data is not None and files:
        raise InvalidOption("DATA and --file both give a body", hint="give one of them")
    if not files:
        body: Data = data
        if data is not None:
            body = sys.stdin.buffer.read() if data == "-" else os.fsencode(data)
        yield _Body(body, object_name)
        return
    found = [each for path in files for each in _files(path)]
    if object_name is not None and len(found) != 1:
        raise InvalidOption(f"--object-name for {len(found)} files", hint="they keep their own names")
    for path, kept_name in found:
        yield _Body(path, object_name or kept_name, path.stat().st_size)


def _files(path: Path) -> Iterator[tuple[Path, str]]:
    """A file, or all below a folder by name; each with what it is called there."""
    if path.is_dir():
        for each in sorted(each for each in path.rglob("*") if each.is_file()):
            yield each, each.relative_to(path).as_posix()
    elif path.is_file():
        yield path, path.name
    else:
        raise InvalidOption(f"there is no file {path}")


def _published(stream: Stream, subject: str, body: _Body, headers: dict[str, str]) -> dict[str, Any]:
    own = dict(headers)
    data = body.data
    if isinstance(data, Path):
        kind = mimetypes.guess_type(data.name)[0]
        if kind is not None:
            own.setdefault("content-type", kind)
        with data.open("rb") as opened, Counted(opened, body.size, data.name) as counted:
            sequence = stream.publish(subject, counted, headers=own, object_name=body.object_name)  # type: ignore[arg-type]
    else:
        sequence = stream.publish(subject, data, headers=own, object_name=body.object_name)
    return {"subject": subject, "sequence": sequence, "object_name": body.object_name or ""}


class Counted(io.RawIOBase):
    """An open file that shows on the terminal how far it was read."""

    def __init__(self, opened: BinaryIO, size: int, name: str) -> None:
        self._opened = opened
        self._done = 0
        self._progress = output.ProgressLine(
            lambda: f"{name}: {output.size(self._done)} of {output.size(size)}"
        )

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        found = self._opened.read(-1 if size is None else size)
        self._done += len(found)
        self._progress.update()
        return found

    def close(self) -> None:
        self._progress.clear()
        super().close()
