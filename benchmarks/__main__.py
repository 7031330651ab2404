"""The entry point: `python -m benchmarks [--quick] [--only NAME…] [--json FILE]`."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from benchmarks import (
    commits,
    compression,
    durable,
    embedded,
    exchange,
    growth,
    handling,
    importing,
    java_peers,
    keyed,
    latency,
    live,
    load_latency,
    lookup,
    machine,
    opening,
    payloads,
    pipelines,
    producers,
    queueing,
    quotas,
    reading,
    servers,
    spark_lake,
    spark_read,
    spark_sink,
    spark_source,
    splitting,
    streams,
    transactions,
    waiting,
    waiting_calls,
    writing,
)
from benchmarks.harness import BATCH, FULL, QUICK, Bench, Sizes
from benchmarks.rows import Row
from benchmarks.stock import Stock
from benchmarks.table import line, render, summary

Subject = Callable[[Bench, Stock], Iterator[Row]]

SUBJECTS: dict[str, tuple[str, Subject]] = {
    "write": ("message by message, and by a thousand", lambda bench, _: writing.run(bench)),
    "producers": ("exactly once: with a producer id and seqnos", lambda bench, _: producers.run(bench)),
    "durable": ("one synced write at a time, alone and together", lambda bench, _: durable.run(bench)),
    "read": ("everything, to Python and to Arrow", reading.run),
    "compress": ("whole batches compressed, and not", lambda bench, _: compression.run(bench)),
    "lookup": ("one message by its offset", lookup.run),
    "keyed": ("messages by their key, in few segments and in many", lambda bench, _: keyed.run(bench)),
    "commit": ("a commit for each batch, and none", commits.run),
    "handle": ("process, with one worker and with four", lambda bench, _: handling.run(bench)),
    "queue": ("a queue, one at a time and by process", lambda bench, _: queueing.run(bench)),
    "quota": ("writers held to a speed, by two processes", lambda bench, _: quotas.run(bench)),
    "split": ("topics whose partitions split", lambda bench, _: splitting.run(bench)),
    "wait": ("delayed writes and retries, call by call", lambda bench, _: waiting_calls.run(bench)),
    "transaction": ("all or nothing, large and small", lambda bench, _: transactions.run(bench)),
    "latency": (
        "to a reader in another process, alone and under load",
        lambda bench, _: chain(latency.run(bench), load_latency.run(bench)),
    ),
    "live": ("events delivered to browsers, and what a connection costs", lambda bench, _: live.run(bench)),
    "streams": ("subject streams, call by call, and as they grow", lambda bench, _: streams.run(bench)),
    "exchange": ("go-diskq folders and Parquet, in and out", lambda bench, _: exchange.run(bench)),
    "open": ("a store with many segments", lambda bench, _: opening.run(bench)),
    "payloads": ("small bodies to S3, packed and each alone", lambda bench, _: payloads.run(bench)),
    "spark-sink": ("Spark writes to a topic", lambda bench, _: spark_sink.run(bench)),
    "pipelines": ("replay and compact", lambda bench, _: pipelines.run(bench)),
    "waiting": (
        "the store of waiting messages by itself, with ten million",
        lambda bench, _: waiting.run(bench),
    ),
    "archive": ("a topic into a Delta table", lambda bench, _: spark_lake.run(bench)),
    "growth": ("cost as a topic grows", lambda bench, _: growth.run(bench)),
    "spark-read": ("topics read by penstock.spark.read", lambda bench, _: spark_read.run(bench)),
    "spark": ("topics read by Spark", lambda bench, _: spark_source.run(bench)),
    "import": ("import penstock", lambda bench, _: importing.run(bench)),
    "embedded": ("LMDB and RocksDB, inside the process", embedded.run),
    "kafka": ("call by call beside Apache Kafka", lambda bench, _: java_peers.run(bench)),
    "chronicle": ("writes beside Chronicle Queue", lambda bench, _: java_peers.run_chronicle(bench)),
    "servers": ("Redis Streams, NATS JetStream, Tarantool", servers.run),
}


def main() -> int:
    arguments = parse(sys.argv[1:])
    if arguments.list:
        print("\n".join(f"{name:<12}{what}" for name, (what, _) in SUBJECTS.items()))
        return 0
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sizes = chosen_sizes(arguments)
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=arguments.dir))
    began = time.monotonic()
    try:
        about = machine.describe(folder)
        rows = measure(arguments.only or list(SUBJECTS), Bench(sizes, folder))
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    took_s = time.monotonic() - began
    report(rows, about, sizes, took_s, arguments.json)
    return 1 if any(row.failed for row in rows) else 0


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Penstock against its targets and its peers."
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the messages")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=SUBJECTS, help="these subjects alone")
    parser.add_argument("--repeat", type=_positive, metavar="N", help="repetitions of each measurement")
    parser.add_argument(
        "--messages", type=_thousands, metavar="N", help="how many messages are written and read"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where data is put meanwhile (default: here)"
    )
    parser.add_argument("--list", action="store_true", help="name the subjects and end")
    return parser.parse_args(words)


def chosen_sizes(arguments: argparse.Namespace) -> Sizes:
    sizes = QUICK if arguments.quick else FULL
    given = {"repeat": arguments.repeat, "messages": arguments.messages}
    return replace(sizes, **{name: number for name, number in given.items() if number is not None})


def measure(names: list[str], bench: Bench) -> list[Row]:
    """The rows of each subject; one that fails leaves a row that says so."""
    stock, rows = Stock(bench), []
    for name in names:
        what, run = SUBJECTS[name]
        print(f"{name}: {what}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            for row in run(bench, stock):
                rows.append(row)
                print(f"\r  {line(row)}", file=sys.stderr, flush=True)
        except Exception as error:
            traceback.print_exc()
            rows.append(Row(name=name, what=what, failed=f"{type(error).__name__}: {error}"))
        print(f"  {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    return rows


def report(rows: list[Row], about: dict[str, str], sizes: Sizes, took_s: float, file: Path | None) -> None:
    date = datetime.now(UTC).isoformat(timespec="seconds")
    print("\n".join(f"{name + ':':<13}{value}" for name, value in about.items()))
    print(f"date:        {date}\nmessages:    {sizes.messages:,}, each measured {sizes.repeat} times\n")
    print(render(rows))
    print(f"\n{summary(rows)}\ntook {took_s:.0f} s")
    if file is not None:
        found = {
            "date": date,
            "commit": machine.commit(),
            "machine": about,
            "sizes": asdict(sizes),
            "seconds": round(took_s, 1),
            "rows": [row.as_dict() for row in rows],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _thousands(word: str) -> int:
    number = int(word)
    if number < BATCH or number % BATCH:
        raise argparse.ArgumentTypeError(f"a multiple of {BATCH}")
    return number


def _positive(word: str) -> int:
    number = int(word)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
