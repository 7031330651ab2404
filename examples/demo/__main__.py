"""The demo, in about a minute: shops write orders live, Spark rolls them up and archives them.

    python examples/demo [--orders 20000] [--keep DIR] [--no-spark]

One folder holds it all, and no server runs. A shop and the Spark driver are killed with -9 in the middle and
started again. At the end four parties have counted: the shops their receipts, the topic, the roll-up, and
DuckDB over the lake. It ends with 1 unless nothing is lost and nothing is there twice.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from audit import Ledger, Order
from processes import Child
from screen import Screen
from shop import COUNTRIES, TOPIC

import penstock

SHOPS = 3
VICTIM = 1
RATES = "orders.per-second"
ROLLUP = "rollup-orders"
COUNTRY = "get_json_object(text, '$.country')"
PICTURE = "demo-orders.png"
#: How long the shops take, if the machine lets them: Spark starts meanwhile.
WRITING_S = 25.0
#: Longer than this nobody waits for anything.
PATIENCE_S = 180.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description="Shops, Spark, a lake, and two kill -9.")
    parser.add_argument("--orders", type=int, default=20_000, help="how many each shop writes")
    parser.add_argument("--keep", metavar="DIR", help="put everything there and leave it")
    parser.add_argument("--no-spark", action="store_true", help="leave Spark, lake and picture out")
    chosen = parser.parse_args()
    if chosen.orders < 10:
        parser.error("--orders: at least 10")
    if chosen.keep and Path(chosen.keep).exists():
        parser.error(f"--keep: {chosen.keep} is there already")
    with ExitStack() as stack:
        folder = chosen.keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-"))
        picture = Path(chosen.keep or ".") / PICTURE
        demo = Demo(Path(folder), picture, chosen.orders, spark=not chosen.no_spark)
        try:
            sound = demo.run()
        except KeyboardInterrupt:
            return 130
        if chosen.keep:
            print(f"\nIt is all still there: penstock -s {folder}/data status")
        return 0 if sound else 1


class Demo:
    """The parent: starts everyone, kills two, and does the sums."""

    def __init__(self, folder: Path, picture: Path, orders: int, *, spark: bool) -> None:
        self._store = str(folder / "data")
        self._lake = str(folder / "lake")
        self._picture = str(picture)
        self._orders = orders
        self._duration_s = min(WRITING_S, max(2.0, orders / 800)) if spark else min(8.0, orders / 800)
        self._with_spark = spark
        self._screen = Screen()
        self._stack = ExitStack()
        self._ledger = Ledger()
        self._lives: dict[int, list[Child]] = {number: [] for number in range(SHOPS)}
        self._drivers: list[Child] = []

    def run(self) -> bool:
        with self._stack:
            with penstock.open(self._store) as store:
                store.create_topic(TOPIC, partitions=3, segment_bytes="1MiB")
                store.create_topic(RATES)
            self._screen.say(f"{SHOPS} shops write {self._orders:,} orders each into one folder")
            if self._with_spark:
                self._start_rollup()
            self._write()
            stored = self._count_stored()
            self._ledger.acknowledged(self._acknowledged(), stored)
            self._ledger.stored(stored)
            if self._with_spark:
                self._let_time_pass()
                self._archive(stored)
                self._finish_rollup(stored)
            ledger = self._ledger
            self._screen.ledger(ledger.lines, ledger.lost, ledger.twice, ledger.problems)
            return ledger.is_sound

    # Writing.

    def _write(self) -> None:
        """All shops to their end, one by way of a kill -9, and the Spark driver in the middle of it."""
        for number in range(SHOPS):
            self._start_shop(number)
        with self._screen:
            while any(lives[-1].running for lives in self._lives.values()):
                self._show()
                self._kill_when_it_hurts()
                time.sleep(0.02)
                self._give_up_if_late("the shops are not done")
            self._show()
        if len(self._lives[VICTIM]) == 1:
            self._ledger.problems.append("the shop was done before it could be killed: try more --orders")
        for number, lives in self._lives.items():
            if lives[-1].wait() != 0:
                self._ledger.problems.append(f"shop {number} failed:\n{lives[-1].errors()}")

    def _kill_when_it_hurts(self) -> None:
        victim = self._lives[VICTIM]
        if len(victim) == 1 and victim[0].facts.get("acknowledged", 0) >= self._orders * 0.4:
            victim[0].kill()
            told = victim[0].facts["acknowledged"]
            self._screen.say(f"kill -9 shop {VICTIM} (pid {victim[0].pid}), {told:,} orders acknowledged")
            self._start_shop(VICTIM)
        elif len(victim) == 2 and "first" in victim[1].facts and victim[1].facts.pop("first"):
            stored = victim[1].facts["stored"]
            unknown = stored - victim[0].facts["acknowledged"]
            self._screen.say(
                f"shop {VICTIM} is back: {stored:,} of its orders are stored, {unknown:,} of them without "
                "receipt; it sends the last hundred again, and the log skips them"
            )
        if len(self._drivers) == 1 and self._is_in_a_batch():
            self._kill_driver()

    def _start_shop(self, number: int) -> None:
        self._lives[number].append(
            self._child(Child.shop(self._store, number, self._orders, self._duration_s))
        )

    def _acknowledged(self) -> dict[int, int]:
        return {
            number: max(life.facts.get("acknowledged", 0) for life in lives)
            for number, lives in self._lives.items()
        }

    def _count_stored(self) -> Counter[Order]:
        with penstock.open(self._store, read_only=True) as store:
            topic = store.topic(TOPIC)
            values = (json.loads(message.text) for message in topic.scan().messages())
            stored = Counter((value["shop"], value["n"]) for value in values)
            segments = sum(each.segments for each in topic.stats().partitions)
        skipped = self._lives[VICTIM][-1].facts.get("skipped", 0)
        self._screen.say(
            f"{stored.total():,} orders lie in 3 partitions, {segments} segments; {skipped} sent again were "
            "skipped"
        )
        return stored

    # Spark.

    def _start_rollup(self) -> None:
        """A pipeline, by the command anyone would type; it goes on where the one before was killed."""
        self._drivers.append(
            self._child(
                Child.penstock(
                    self._store, "pipeline", "rollup", TOPIC, RATES, "--window", "1s", "--late", "5s",
                    "--by", COUNTRY,
                )
            )
        )  # fmt: skip
        again = (
            "again" if len(self._drivers) > 1 else f"to roll {TOPIC} up into {RATES}, by second and country"
        )
        self._screen.say(f"Spark starts {again} …")

    def _kill_driver(self) -> None:
        driver = self._drivers[-1]
        driver.kill()
        self._screen.say(
            f"kill -9 the Spark driver and its Java (pid {driver.pid}), in the middle of a batch"
        )
        self._start_rollup()

    def _is_in_a_batch(self) -> bool:
        """Whether the roll-up has planned a batch: it is killed while it works on it."""
        return (Path(self._store) / "pipelines" / ROLLUP / "checkpoint" / "offsets" / "0").exists()

    def _let_time_pass(self) -> None:
        """An event of an hour later: all windows before it are over."""
        if len(self._drivers) == 1:
            self._wait(self._is_in_a_batch, "Spark has not begun")
            self._kill_driver()
        with penstock.open(self._store) as store:
            # Its own window is never over, so nobody counts it.
            later = time.time_ns() + 3600 * 10**9
            store.topic(TOPIC).write(json.dumps({"closing": True}), timestamp=later)

    def _finish_rollup(self, stored: Counter[Order]) -> None:
        """Wait until Spark has written the last window."""
        self._wait(lambda: self._rates().total() >= stored.total(), "the roll-up is not done")
        with penstock.open(self._store) as store:
            store.stop_pipeline(ROLLUP)
        rates = self._rates()
        expected = Counter(COUNTRIES[(shop + n * n // 7) % len(COUNTRIES)] for shop, n in stored)
        self._ledger.sums("rolled up by Spark", rates, expected)
        self._draw()

    def _rates(self) -> Counter[str]:
        """Orders by country, as the roll-up has written them so far."""
        total: Counter[str] = Counter()
        with penstock.open(self._store, read_only=True) as store:
            for message in store.topic(RATES).scan().messages():
                window = json.loads(message.text)
                total[window["group"]] += window["count"]
        return total

    def _draw(self) -> None:
        import pyarrow

        from penstock.spark.pipelines.rollup_output import draw

        with penstock.open(self._store, read_only=True) as store:
            windows = [json.loads(message.text) for message in store.topic(RATES).scan().messages()]
        for window in windows:
            window["window_start"] = datetime.fromisoformat(window["window_start"])
        draw(pyarrow.Table.from_pylist(windows), self._picture, title="Orders by country", top=8)
        self._screen.say(f"orders a second, by country, are drawn in {self._picture}")

    # The lake.

    def _archive(self, stored: Counter[Order]) -> None:
        self._screen.say("a second Spark archives the topic into a Delta table …")
        child = self._child(Child.penstock(self._store, "pipeline", "archive", TOPIC, self._lake))
        if child.wait(PATIENCE_S) != 0:
            self._ledger.problems.append(f"the archive failed:\n{child.errors()[-2000:]}")
            return
        import duckdb
        from deltalake import DeltaTable

        lake = DeltaTable(self._lake).to_pyarrow_dataset()
        connection = duckdb.connect()
        connection.register("lake", lake)
        connection.sql(
            "CREATE VIEW orders AS SELECT (o->>'shop')::INT shop, (o->>'n')::INT n, (o->>'cents')::INT cents "
            "FROM (SELECT decode(value)::JSON o FROM lake) WHERE o->>'n' IS NOT NULL"
        )
        rows = connection.sql(
            "SELECT shop, count(*), count(DISTINCT n), sum(cents) / 100 FROM orders GROUP BY 1 ORDER BY 1"
        ).fetchall()
        self._screen.say(f"DuckDB asks the lake, {len(lake.files)} files of Parquet:")
        self._screen.table(
            ("shop", "orders", "different", "revenue"),
            [
                (str(shop), f"{count:,}", f"{different:,}", f"{sum_:,.2f}")
                for shop, count, different, sum_ in rows
            ],
        )
        found = connection.sql("SELECT shop, n FROM orders").fetchall()
        self._ledger.orders("in the lake, by DuckDB", Counter((shop, n) for shop, n in found), stored)

    # All along.

    def _show(self) -> None:
        bars = [
            (
                f"shop {number}" + (", second life" if len(lives) > 1 else ""),
                max(life.facts.get("acknowledged", 0) for life in lives), self._orders,
            )
            for number, lives in self._lives.items()
        ]  # fmt: skip
        self._screen.progress(bars)

    def _wait(self, done: Callable[[], bool], otherwise: str) -> None:
        while not done():
            if not self._drivers[-1].running:
                raise SystemExit(f"the roll-up ended: {self._drivers[-1].errors()[-2000:]}")
            self._give_up_if_late(otherwise)
            time.sleep(0.2)

    def _give_up_if_late(self, why: str) -> None:
        if self._screen.elapsed_s > PATIENCE_S:
            raise SystemExit(f"{why} after {PATIENCE_S:.0f} s")

    def _child(self, child: Child) -> Child:
        self._stack.callback(child.close)
        return child


if __name__ == "__main__":
    sys.exit(main())
