"""`penstock run FILE.py`: a pipeline of one's own as a command, stopped, killed and started again."""

import json
import os
import signal
import subprocess
from collections import Counter

import pytest

import penstock
from tests.e2e.command import COMMAND, Command, has_traceback
from tests.kit import processes
from tests.kit.commands import Exit
from tests.kit.patience import PATIENCE_S, wait_until
from tests.kit.spark_settings import JAVA
from tests.require import require

PIPELINE = """
import penstock
from pyspark.sql.functions import col, lit, udf
from my_words import louder

@penstock.pipeline(source="orders", sink="out")
def shout(orders, *, mark: str = "!"):
    return orders.select("key", udf(louder)(col("value").cast("string"), lit(mark)).alias("value"))
"""

KILLED = {
    "append": """
import penstock

@penstock.pipeline(source="orders", sink="out", max_rows=40)
def own(orders):
    return orders.select("key", "value")
""",
    "update": """
import penstock
from pyspark.sql.functions import col, sum

@penstock.pipeline(source="orders", sink="out", output="update", max_rows=40)
def own(orders):
    sums = orders.groupBy("key").agg(sum(col("value").cast("string").cast("long")).alias("n"))
    return sums.selectExpr("key", "string(n) AS value")
""",
}


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("out")
    return command


@pytest.mark.parametrize(
    ("arguments", "told", "hint"),
    [
        (["nowhere.py"], "there is no file nowhere.py", "FILE.py[:NAME]"),
        (["own.py", "--set", "mark"], "--set mark: NAME=VALUE", ""),
        (["own.py", "--set", "more=1"], "no parameter 'more'", "parameters: mark"),
        (["own.py", "--set", "mark=x"], "parameter 'mark' is int, not 'x'", ""),
        (["own.py:other"], "no pipeline 'other'", "it has own"),
        (["sink.py"], "no topic 'nothing'", "penstock topic create nothing"),
    ],
)
def test_mistake_is_told_at_once(cli, arguments, told, hint):
    text = '@penstock.pipeline(source="orders", sink="{}")\ndef own(orders, *, mark: int = 1): pass\n'
    (cli.folder / "own.py").write_text("import penstock\n" + text.format("out"))
    (cli.folder / "sink.py").write_text("import penstock\n" + text.format("nothing"))
    ended = cli.quick("run", *arguments)
    assert ended.code == Exit.USAGE
    assert told in ended.err
    assert hint in ended.err


def messages(cli: Command, topic: str) -> list[penstock.Message]:
    with penstock.open(cli.store, read_only=True) as store:
        return list(store.topic(topic).scan().messages())


def started(cli: Command, *arguments: str) -> subprocess.Popen[bytes]:
    """The command in a process group with its JVM."""
    require("spark")
    settings = ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={JAVA}"]
    return processes.start(
        [*COMMAND, "run", *settings, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=cli.folder, env=cli.environment, start_new_session=True,
    )  # fmt: skip


def wait_for_messages(cli: Command, topic: str, count: int, process: subprocess.Popen[bytes]) -> None:
    def are_there() -> bool:
        assert process.poll() is None, process.communicate()
        return len(messages(cli, topic)) >= count

    wait_until(are_there, patience_s=PATIENCE_S)


def test_run_follows_the_topic_and_ends_in_order_when_it_is_told_to(cli):
    """Code of the file and of its neighbour reaches Spark's workers; SIGTERM ends the run, exit code 0."""
    (cli.folder / "my_words.py").write_text("def louder(text, mark):\n    return text.upper() + mark\n")
    (cli.folder / "shout.py").write_text(PIPELINE)
    with penstock.open(cli.store) as store:
        store.topic("orders").write("hi", key="k")
        with started(cli, "shout.py", "--set", "mark=?", "--json") as process:
            try:
                wait_for_messages(cli, "out", 1, process)
                store.topic("orders").write("ho", key="k")
                wait_for_messages(cli, "out", 2, process)
                process.send_signal(signal.SIGTERM)
                out, err = process.communicate(timeout=PATIENCE_S)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, err.decode()
        assert not has_traceback(err.decode()), err.decode()
        summary = json.loads(out)
        assert (summary["pipeline"], summary["kind"], summary["rows"], summary["stopped"]) == (
            "shout", "run", 2, True,
        )  # fmt: skip
        assert [message.value for message in messages(cli, "out")] == [b"HI?", b"HO?"]
        assert store.pipeline("shout").state == "ended"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("output", ["append", "update"])
def test_killed_driver_leaves_nothing_out_and_nothing_twice(cli, output):
    """kill -9 of driver and JVM amidst batches, twice; then it is run to its end (S001-37 for balances)."""
    (cli.folder / "own.py").write_text(KILLED[output])
    with penstock.open(cli.store) as store:
        orders = store.topic("orders")
        for number in range(400):
            orders.write(str(number), key=f"key-{number % 7}")
        for already in (1, 60):
            with started(cli, "own.py") as process:
                try:
                    wait_for_messages(cli, "out", already, process)
                finally:
                    os.killpg(process.pid, signal.SIGKILL)
            assert store.pipeline("own").state == "killed"
        with started(cli, "own.py", "--once") as process:
            _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, err.decode()
    written = messages(cli, "out")
    if output == "append":
        assert sorted(int(message.value) for message in written) == list(range(400))
    else:
        meant = Counter()
        for number in range(400):
            meant[f"key-{number % 7}"] += number
        assert {message.key.decode(): int(message.value) for message in written} == meant


@pytest.mark.slow
def test_same_command_runs_on_executors_of_their_own(cli):
    """`--master local-cluster[…]`: executors in JVMs of their own get the code of the file by value."""
    (cli.folder / "my_words.py").write_text("def louder(text, mark):\n    return text.upper() + mark\n")
    (cli.folder / "shout.py").write_text(PIPELINE)
    with penstock.open(cli.store) as store:
        store.topic("orders").write_many([b"%d" % n for n in range(500)])
    with started(cli, "shout.py", "--once", "--master", "local-cluster[2,1,1024]") as process:
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err.decode()
    assert sorted(int(m.value.rstrip(b"!")) for m in messages(cli, "out")) == list(range(500))
