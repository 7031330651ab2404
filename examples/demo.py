"""The demo: four processes write, two follow, one writer is killed with -9 and comes back, Spark looks on.

    python examples/demo.py [--messages 25000] [--keep DIR] [--no-spark]

All of them share one folder and nothing else. At the end three parties have counted: the writers their
receipts, the followers what they read, Spark what lies there. It ends with 1 unless nothing is lost and
nothing is there twice.

This file is also each of the processes: `demo.py writer …`, `demo.py follower …`, `demo.py spark …`.
They tell the parent how they are doing by lines of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import penstock

TOPIC = "orders"
WRITERS = 4
FOLLOWERS = ("billing", "shipping")
VICTIM = 2
#: A writer waits for the disk so many times; between two of these it may be killed anywhere.
FLUSHES = 200
WRITING_S = 8.0
#: Longer than this nobody waits for the writers.
PATIENCE_S = 120.0


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] in ROLES:
        ROLES[sys.argv[1]](*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(
        description="Writers, readers, a kill -9 and a Spark query over one folder."
    )
    parser.add_argument("--messages", type=int, default=25_000, help="how many each writer writes")
    parser.add_argument("--keep", metavar="DIR", help="put the store there and leave it")
    parser.add_argument("--no-spark", action="store_true", help="leave Spark out")
    chosen = parser.parse_args()
    if chosen.messages < 10:
        parser.error("--messages: at least 10")
    if chosen.keep and Path(chosen.keep).exists():
        parser.error(f"--keep: {chosen.keep} is there already")
    with ExitStack() as stack:
        folder = chosen.keep or os.path.join(stack.enter_context(_temporary()), "data")
        try:
            sound = Demo(folder, chosen.messages, spark=not chosen.no_spark).run()
        except KeyboardInterrupt:
            return 130
        if chosen.keep:
            print(f"\nThe store is still there: penstock -s {chosen.keep} topic show {TOPIC}")
        return 0 if sound else 1


def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="penstock-demo-")


# The processes.


def be_writer(path: str, number: str, life: str, messages: str) -> None:
    """Write orders 1 to `messages`, going on behind the last one that an earlier life has stored."""
    name, last, duration = f"writer-{number}", int(messages), _writing_s(int(messages))
    with penstock.open(path) as store:
        topic = store.topic(TOPIC)
        # A durable write first: what a life before this one left half done is settled with it, so that
        # the scan sees all that will ever be there of it.
        hello = topic.write(json.dumps({"writer": int(number), "hello": int(life)}), key=name)
        stored = _last_stored(topic, name.encode(), hello)
        _tell(resumed=stored, acknowledged=0)
        acknowledged, step = 0, max(last // FLUSHES, 1)
        with topic.writer() as writer:
            for order in range(stored + 1, last + 1):
                value = {"writer": int(number), "n": order, "cents": 100 + order * 7919 % 9900}
                writer.write(json.dumps(value), key=name)
                if order % step == 0 or order == last:
                    # Meanwhile the writer stores by itself what it was given: whoever is killed here has
                    # stored orders and holds no receipt for them.
                    time.sleep(duration * step / last)
                    acknowledged += len(writer.flush())
                    _tell(acknowledged=acknowledged)


def _last_stored(topic: penstock.Topic, name: bytes, hello: penstock.Receipt) -> int:
    """The number of this writer's last order; the hello lies behind it in the same partition."""
    last = 0
    for message in topic.scan(partition=hello.partition, stop=hello.offset).messages():
        if message.key == name:
            last = json.loads(message.text).get("n", last)
    return last


def be_follower(path: str, name: str) -> None:
    """Read live as a consumer, commit, and count; end when told to and nothing more comes."""
    stop = threading.Event()
    threading.Thread(target=_wait_for_end_of_input, args=(stop,), daemon=True).start()
    seen: Counter[str] = Counter()
    disorder, last = 0, dict.fromkeys(range(WRITERS), 0)
    with penstock.open(path) as store, store.topic(TOPIC).reader(consumer=name) as reader:
        while True:
            ending = stop.is_set()
            batch = reader.receive_batch(timeout=0.2)
            for message in batch:
                order = json.loads(message.text)
                seen[_identity(order)] += 1
                if "n" in order:
                    disorder += order["n"] != last[order["writer"]] + 1
                    last[order["writer"]] = order["n"]
            if batch:
                reader.commit(batch)
                _tell(read=seen.total())
            elif ending:
                break
    _tell(read=seen.total(), distinct=len(seen), disorder=disorder)


def _wait_for_end_of_input(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def be_spark(path: str) -> None:
    """Ask the same folder in SQL."""
    from penstock.spark import session

    began = time.monotonic()
    settings: dict[str, Any] = {"spark.sql.shuffle.partitions": 4}
    spark = session(**settings)
    ready = time.monotonic()
    orders = spark.read.format("penstock").option("topic", TOPIC).option("columns", "value").load(path)
    orders.selectExpr(
        "from_json(string(value), 'writer int, n int, hello int, cents int') o"
    ).createOrReplaceTempView("orders")
    found = spark.sql(
        """
        SELECT o.writer, count(o.n) orders, count(distinct o.n) different, max(o.n) last,
               sum(o.cents) cents, count(o.hello) hellos, count(distinct o.hello) different_hellos
        FROM orders GROUP BY o.writer ORDER BY o.writer
        """
    ).collect()
    done = time.monotonic()
    _tell(
        rows=[row.asDict() for row in found],
        version=spark.version,
        start_s=ready - began,
        query_s=done - ready,
    )
    spark.stop()


ROLES: dict[str, Callable[..., None]] = {"writer": be_writer, "follower": be_follower, "spark": be_spark}


def _writing_s(messages: int) -> float:
    return min(WRITING_S, max(1.0, messages / 1000))


def _identity(order: dict[str, int]) -> str:
    """What makes a message this one and no other."""
    return f"{order['writer']} {'n' if 'n' in order else 'hello'} {order.get('n', order.get('hello'))}"


def _tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


class Child:
    """One of the processes, and the last it told of itself."""

    def __init__(self, *role: str) -> None:
        self.facts: dict[str, Any] = {}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self.process = subprocess.Popen(
            [sys.executable, __file__, *role], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True,
        )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.facts.update(json.loads(line))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Let it end by itself, or see that it did; what it told before is in `facts` then."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        code = self.process.wait()
        self._listener.join()
        self.process.stdout.close()
        return code

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()

    def close(self) -> None:
        if self.running:
            self.process.kill()
        self.wait()
        self._errors.close()


# The show.


class Demo:
    """The parent: starts the processes, kills one of them, and does the sums."""

    def __init__(self, folder: str, messages: int, *, spark: bool) -> None:
        self._folder = folder
        self._messages = messages
        self._with_spark = spark
        self._screen = Screen(messages)
        self._stack = ExitStack()
        self._problems: list[str] = []
        self._lives: dict[int, list[Child]] = {number: [] for number in range(WRITERS)}

    def run(self) -> bool:
        with self._stack:
            with penstock.open(self._folder) as store:
                store.create_topic(TOPIC, partitions=3, segment_bytes="1MiB")
            followers = {name: self._start("follower", self._folder, name) for name in FOLLOWERS}
            self._write(followers)
            for child in followers.values():
                self._finish(child)
            stored = self._count_stored()
            tables = self._ask_spark() if self._with_spark else None
            return self._sum_up(stored, followers, tables)

    def _start(self, *role: str) -> Child:
        child = Child(*role)
        self._stack.callback(child.close)
        return child

    def _start_writer(self, number: int) -> None:
        life = str(len(self._lives[number]) + 1)
        self._lives[number].append(
            self._start("writer", self._folder, str(number), life, str(self._messages))
        )

    def _finish(self, child: Child) -> None:
        if child.wait() != 0:
            self._problems.append(f"a process failed:\n{child.errors()}")

    def _write(self, followers: dict[str, Child]) -> None:
        """All writers to their end, the victim by way of a kill -9."""
        say = self._screen.say
        say(f"{WRITERS} processes write {self._messages:,} orders each, {len(FOLLOWERS)} follow, one folder")
        for number in range(WRITERS):
            self._start_writer(number)
        victim, killed_at = self._lives[VICTIM][0], None
        with self._screen:
            while any(lives[-1].running for lives in self._lives.values()) or killed_at:
                self._screen.show(self._lives, followers)
                time.sleep(0.02)
                if self._screen.elapsed_s > PATIENCE_S:
                    raise SystemExit(f"the writers were not done after {PATIENCE_S:.0f} s")
                acknowledged = victim.facts.get("acknowledged", 0)
                if len(self._lives[VICTIM]) == 1 and not killed_at and acknowledged >= self._messages * 0.4:
                    victim.kill()
                    killed_at = time.monotonic()
                    told = victim.facts["acknowledged"]
                    say(f"kill -9 writer {VICTIM} (pid {victim.process.pid}) at {told:,} acknowledged")
                if killed_at and time.monotonic() > killed_at + _writing_s(self._messages) / 6:
                    killed_at = None
                    self._start_writer(VICTIM)
            self._screen.show(self._lives, followers)
        for lives in self._lives.values():
            self._finish(lives[-1])
        self._tell_of_victim()

    def _tell_of_victim(self) -> None:
        lives = self._lives[VICTIM]
        if len(lives) == 1:
            self._problems.append(f"writer {VICTIM} was done before it could be killed; try more --messages")
            return
        before, resumed = lives[0].facts["acknowledged"], lives[1].facts.get("resumed", 0)
        self._screen.say(
            f"writer {VICTIM} came back and found {resumed:,} of its orders stored: {before:,} acknowledged, "
            f"{resumed - before:,} whose receipts died with it"
        )

    def _count_stored(self) -> Counter[str]:
        with penstock.open(self._folder, read_only=True) as store:
            topic = store.topic(TOPIC)
            stored = Counter(_identity(json.loads(message.text)) for message in topic.scan().messages())
            segments = sum(each.segments for each in topic.stats().partitions)
        self._screen.say(f"{stored.total():,} messages lie in 3 partitions, {segments} segments")
        return stored

    def _ask_spark(self) -> dict[str, Any] | None:
        self._screen.say("Spark starts, and reads the same folder …")
        child = self._start("spark", self._folder)
        if child.wait() != 0:
            self._problems.append(f"Spark failed:\n{child.errors()[-2000:]}")
            return None
        facts = child.facts
        self._screen.say(
            f"Spark {facts['version']}: started in {facts['start_s']:.1f} s, "
            f"first query in {facts['query_s']:.1f} s"
        )
        self._screen.table(
            ("writer", "orders", "different", "last", "revenue"),
            [
                (str(row["writer"]), f"{row['orders']:,}", f"{row['different']:,}", f"{row['last']:,}",
                 f"{row['cents'] / 100:,.2f}")
                for row in facts["rows"]
            ],
        )  # fmt: skip
        return facts

    def _sum_up(
        self, stored: Counter[str], followers: dict[str, Child], spark: dict[str, Any] | None
    ) -> bool:
        acknowledged = self._acknowledged()
        lost = sum(1 for identity in acknowledged if identity not in stored)
        twice = stored.total() - len(stored)
        expected = WRITERS * self._messages + sum(map(len, self._lives.values()))
        if stored.total() != expected:
            self._problems.append(f"{stored.total():,} messages are stored, {expected:,} were written")
        lines = [("acknowledged", len(acknowledged)), ("stored", stored.total())]
        for name, child in followers.items():
            read, distinct = child.facts.get("read", 0), child.facts.get("distinct", 0)
            lines.append((f"read by {name}", read))
            lost += max(len(stored) - distinct, 0)
            twice += read - distinct
            if child.facts.get("disorder", 1):
                self._problems.append(f"{name} read {child.facts.get('disorder')} orders out of turn")
        if spark is not None:
            counted = sum(row["orders"] + row["hellos"] for row in spark["rows"])
            distinct = sum(row["different"] + row["different_hellos"] for row in spark["rows"])
            lines.append(("counted by Spark", counted))
            lost += max(len(stored) - distinct, 0)
            twice += counted - distinct
        sound = not lost and not twice and not self._problems
        self._screen.summary(lines, lost=lost, twice=twice, problems=self._problems)
        return sound

    def _acknowledged(self) -> set[str]:
        """Every message that a writer got a receipt for and told us of before it was killed, or ended."""
        found = set()
        for number, lives in self._lives.items():
            for life, child in enumerate(lives, 1):
                if "resumed" in child.facts:
                    found.add(_identity({"writer": number, "hello": life}))
                    first = child.facts["resumed"] + 1
                    for order in range(first, first + child.facts["acknowledged"]):
                        found.add(_identity({"writer": number, "n": order}))
        return found


class Screen:
    """What the audience sees: a table that moves on a terminal with rich, else lines."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._began = time.monotonic()
        self._shown_at = self._began
        self._live: Any = None
        self._console: Any = None
        try:
            from rich.console import Console
        except ImportError:
            return
        self._console = Console(highlight=False)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def _moves(self) -> bool:
        return self._console is not None and self._console.is_terminal

    def __enter__(self) -> Screen:
        if self._moves:
            from rich.live import Live

            self._live = Live(console=self._console, refresh_per_second=10)
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)
            self._live = None

    def say(self, text: str) -> None:
        line = f"{self.elapsed_s:6.1f} s  {text}"
        if self._console is not None:
            self._console.print(line, markup=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def show(self, lives: dict[int, list[Child]], followers: dict[str, Child]) -> None:
        """How far everyone is."""
        if self._live is not None:
            self._live.update(self._progress(lives, followers))
        elif time.monotonic() - self._shown_at > 2:
            self._shown_at = time.monotonic()
            written = sum(_progress(each) for each in lives.values())
            read = ", ".join(
                f"{name} read {child.facts.get('read', 0):,}" for name, child in followers.items()
            )
            self.say(f"{written:,} written, {read}")

    def table(self, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        if self._console is not None:
            from rich.table import Table

            table = Table(box=None, padding=(0, 2))
            for name in head:
                table.add_column(name, justify="right")
            for row in rows:
                table.add_row(*row)
            self._console.print(table)
        else:
            for row in (head, *rows):
                print("  ".join(f"{cell:>12}" for cell in row))

    def summary(self, lines: list[tuple[str, int]], *, lost: int, twice: int, problems: list[str]) -> None:
        self._print("")
        for name, count in lines:
            self._print(f"  {name:<18}{count:>12,}")
        for problem in problems:
            self._print(f"  PROBLEM: {problem}", style="bold red")
        style = "bold green" if not lost and not twice else "bold red"
        self._print(f"  {lost} lost, {twice} twice", style=style)

    def _print(self, text: str, style: str = "") -> None:
        if self._console is not None:
            self._console.print(text, style=style or None, markup=False, soft_wrap=True)
        else:
            print(text, flush=True)

    def _progress(self, lives: dict[int, list[Child]], followers: dict[str, Child]) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=None, padding=(0, 2))
        for name in ("process", "", "messages"):
            table.add_column(name, justify="right" if name == "messages" else "left")
        for number, each in lives.items():
            done = _progress(each)
            name = f"writer {number}" + ("" if len(each) == 1 else ", second life")
            name += "" if each[-1].running or done >= self._messages else ", killed"
            table.add_row(name, ProgressBar(self._messages, done, width=40), f"{done:,}")
        for name, child in followers.items():
            read = child.facts.get("read", 0)
            table.add_row(name, ProgressBar(WRITERS * self._messages, read, width=40), f"{read:,}")
        return table


def _progress(lives: list[Child]) -> int:
    """The number of a writer's last acknowledged order."""
    facts = lives[-1].facts if "resumed" in lives[-1].facts else lives[0].facts
    done: int = facts.get("resumed", 0) + facts.get("acknowledged", 0)
    return done


if __name__ == "__main__":
    sys.exit(main())
