"""`penstock backup` and `penstock restore`: a store copied while it is written, and brought back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import JsonOption, StoreOption
from penstock.store.backup import backup as back_up
from penstock.store.backup import restore as bring_back


@dataclass(frozen=True)
class BackupFacts:
    """What a backup stored."""

    store: str
    place: str
    #: By which `restore --name` finds it.
    name: str
    files: int
    bytes: int
    #: Files that earlier backups in the same place have stored.
    unchanged: int
    #: Older backups that went because of --keep.
    removed: int
    seconds: float


@dataclass(frozen=True)
class RestoreFacts:
    """What a restore brought back."""

    place: str
    name: str
    store: str
    files: int
    bytes: int
    seconds: float


_PLACE = "A folder, or s3://bucket/prefix."


def backup(
    to: Annotated[str, typer.Argument(metavar="PLACE", help=_PLACE)],
    store: StoreOption = "",
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the newest N backups.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the store to PLACE while programs go on writing.

    Each call adds a backup of this moment, and stores only what the ones before it do not have.
    """
    began, names = time.monotonic(), 0
    progress = output.ProgressLine(lambda: f"{names} files copied")

    def copied(name: str) -> None:
        nonlocal names
        names += 1
        progress.update()

    done = back_up(store, to, keep=keep, progress=copied)
    progress.clear()
    seconds = round(time.monotonic() - began, 3)
    facts = BackupFacts(store, to, done.name, done.copied, done.bytes, done.kept, done.removed, seconds)
    if as_json:
        output.put_json(facts)
        return
    kept = f", {output.counted(done.kept, 'file')} stored before" if done.kept else ""
    output.put_text(
        f"backup {done.name}: {output.counted(done.copied, 'file')}, {output.size(done.bytes)} copied{kept}"
    )


def restore(
    source: Annotated[str, typer.Argument(metavar="PLACE", help=_PLACE)],
    store: StoreOption = "",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which backup; the newest without.", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a backup back as the store, whose folder must be empty or not there yet."""
    began = time.monotonic()
    done = bring_back(source, store, name=name)
    facts = RestoreFacts(source, done.name, store, done.files, done.bytes, round(time.monotonic() - began, 3))
    if as_json:
        output.put_json(facts)
        return
    output.put_text(
        f"backup {done.name}: {output.counted(done.files, 'file')}, {output.size(done.bytes)} restored to"
        f" {store}; penstock verify checks it"
    )
