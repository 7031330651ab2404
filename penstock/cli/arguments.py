"""Arguments that all verbs share: the store, --json, --yes, and how places are written.

The store is `-s/--store PATH`, before or behind the verb; else the environment's PENSTOCK_STORE;
else ./penstock-data.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

import typer

import penstock
from penstock import Store
from penstock.cli.output import say
from penstock.clock import Clock, CommandClock
from penstock.errors import InvalidOption
from penstock.keys import Prefix, spoken_key, spoken_prefix
from penstock.place import Place, spot

DEFAULT_STORE = "penstock-data"
_PLACES = re.compile(r"\d+:\d+(,\d+:\d+)*")


def _chosen_store(context: typer.Context, value: str) -> str:
    """Return the store's path: as said nearest to the verb, else by the environment, else the default."""
    if value:
        context.obj = value
    path: str = context.obj or os.environ.get("PENSTOCK_STORE") or DEFAULT_STORE
    if "://" in path:
        raise InvalidOption(f"{path}: this version opens folders, not addresses", hint="give a path")
    return path


def flag(*names: str, help: str, **more: Any) -> Any:
    """Make an option that is given or not; the help shows no value for it."""
    return typer.Option(*names, help=help, metavar="", **more)


StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        "-s",
        metavar="PATH",
        callback=_chosen_store,
        show_default=False,
        help=f"The store's folder; else $PENSTOCK_STORE, else ./{DEFAULT_STORE}.",
    ),
]
JsonOption = Annotated[bool, flag("--json", help="Print JSON instead of text.")]
YesOption = Annotated[bool, flag("--yes", "-y", help="Do not ask.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
ConsumerArgument = Annotated[str, typer.Argument(metavar="CONSUMER", help="The consumer's name.")]

PLACE_HELP = (
    "an offset, earliest, latest, last, an age (2h), an ISO time, or offsets by partition (0:100,1:250)"
)


def open_to_read(path: str) -> Store:
    """The store, which must be there; nothing in the folder is changed."""
    return penstock.open(path, create=False, read_only=True)


def open_to_write(path: str, *, create: bool = False, alone: bool = False) -> Store:
    """The store, to change it; a new one is announced.

    `alone` is for commands that say what they did: retention does not act by itself beside them.
    """
    is_new = create and not os.path.exists(os.path.join(path, "state.db"))
    store = penstock.open(path, create=create, clock=CommandClock() if alone else None)
    if is_new:
        say(f"created store {path}")
    return store


def typed_key(text: str) -> bytes:
    """A key as it is typed: an array in JSON if it begins with `[`, else the bytes that were typed."""
    return spoken_key(text) if text.startswith("[") else os.fsencode(text)


def typed_prefix(text: str) -> Prefix:
    """The beginning of a key as it is typed: JSON if it begins with `[`, else bytes."""
    return spoken_prefix(text) if text.startswith("[") else os.fsencode(text)


def parse_place(text: str) -> Place:
    """A place as it is typed; raises `InvalidOption` when it is none."""
    if _PLACES.fullmatch(text):
        pairs = (pair.split(":") for pair in text.split(","))
        return {int(partition): int(offset) for partition, offset in pairs}
    spot(text, 0, Clock.now_ns())
    return text
