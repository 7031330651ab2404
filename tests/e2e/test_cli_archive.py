"""`penstock pipeline archive`."""

import json
import os
import signal

import polars
import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.commands import Exit
from tests.kit.patience import wait_until
from tests.kit.pipelines import archive_module
from tests.kit.pipelines import executors_module as executors
from tests.lake.conftest import spread_here


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "spread", spread_here)
    monkeypatch.setattr(archive_module, "session", lambda master: object())
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        store.create_topic("orders").write_many([f"value {n}" for n in range(100)])
    return command


def test_archive_brings_a_topic_into_a_table_and_goes_on(cli):
    ended = cli.quick("pipeline", "archive", "orders", "lake")
    assert ended.out.startswith("archive-orders-lake: done, 100 rows in 1 batch, ")
    cli.quick("write", "orders", "one more")
    summary = cli.quick_json("pipeline", "archive", "orders", "lake")
    assert (summary["kind"], summary["rows"], summary["stopped"]) == ("archive", 1, False)
    assert summary["result"]["next"] == {"0": 101}
    assert polars.read_delta(str(cli.folder / "lake")).height == 101
    (shown,) = cli.quick_json("pipeline", "list")["pipelines"]
    assert (shown["name"], shown["kind"], shown["state"], shown["lag"]) == (
        "archive-orders-lake", "archive", "ended", 0,
    )  # fmt: skip


def test_important_is_kept_with_the_consumer(cli):
    cli.quick("pipeline", "archive", "orders", "lake", "--important", "--name", "nightly")
    cli.quick("pipeline", "archive", "orders", "lake", "--name", "nightly")
    with penstock.open(cli.store) as store:
        assert [(each.consumer, each.important) for each in store.topic("orders").consumers()] == [
            ("nightly", True)
        ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nothing", "lake"), "no topic 'nothing'"),
        (("orders", "gs://bucket/x"), "cannot lie at"),
        (("orders", "lake", "--on-gap", "ignore"), "on_gap"),
        (("orders", "lake", "--storage-option", "AWS_REGION"), "AWS_REGION=eu-north-1"),
        (("orders", "penstock-data"), "not a Delta table"),
    ],
)
def test_wrong_calls_are_told(cli, arguments, told):
    ended = cli.quick("pipeline", "archive", *arguments)
    assert ended.code == Exit.USAGE
    assert told in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_that_follows_behind_its_batch(cli, number):
    running = cli.start("pipeline", "archive", "orders", "lake", "--follow", "--every", "0s", "--json")
    with penstock.open(cli.store) as store:
        wait_until(lambda: store.pipelines() and store.pipelines()[0].run.rows, patience_s=200)
    os.kill(running.pid, number)
    out, err = running.communicate()
    assert running.returncode == 0, err
    assert json.loads(out)["stopped"]
    assert polars.read_delta(str(cli.folder / "lake")).height == 100
