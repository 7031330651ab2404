"""Stores as older versions of Penstock left them."""

import sqlite3
from pathlib import Path

#: The tables that each format of state.db brought.
_BROUGHT = {
    3: ("pipelines",),
    4: ("stream_positions", "streams", "delayed", "queues", "leases"),
    5: ("deaths",),
    6: ("partitions", "splits"),
}


def make_older(store: Path, version: int) -> None:
    """Take from a store what formats behind `version` brought."""
    database = sqlite3.connect(store / "state.db")
    for brought, tables in _BROUGHT.items():
        if brought > version:
            database.executescript("".join(f"DROP TABLE {table};" for table in tables))
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
