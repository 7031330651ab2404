"""Pipelines as the store keeps them: names, runs, states, stopping, dropping."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import penstock
from penstock.store.pipelines import claim
from penstock.testing import Clock
from tests.unit.store.older import make_older

RUN = {"kind": "rollup", "identity": {"source": "orders", "target": "rates"}}


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data", clock=Clock()) as opened:
        yield opened


def test_a_run_is_listed_with_what_it_told(store):
    with claim(store, "hourly", **RUN, options={"window": "1h"}) as run:
        run.report(rows=1000, last_batch=0)
        run.report(rows=500, last_batch=1)
        (listed,) = store.pipelines()
        assert (listed.name, listed.kind, listed.state, listed.options) == (
            "hourly", "rollup", "running", {"window": "1h"},
        )  # fmt: skip
        assert (listed.run.rows, listed.run.batches, listed.run.last_batch) == (1500, 2, 1)
        assert listed.run.pid == os.getpid()
        assert listed.run.rows_per_second > 0
    assert store.pipeline("hourly").state == "ended"
    assert store.pipeline("hourly").run.ended is not None


def test_the_lag_is_that_of_its_consumer(store):
    topic = store.create_topic("orders")
    topic.write_many(["x"] * 10)
    topic.add_consumer("hourly", start=4)
    with claim(store, "hourly", **RUN, consumer="hourly"):
        assert store.pipeline("hourly").lag == 6
    with claim(store, "other", **RUN):
        assert store.pipeline("other").lag is None


def test_an_error_is_remembered_until_the_next_run(store):
    with pytest.raises(RuntimeError), claim(store, "hourly", **RUN):
        raise RuntimeError("no room")
    failed = store.pipeline("hourly")
    assert (failed.state, failed.run.error) == ("failed", "RuntimeError: no room")
    with claim(store, "hourly", **RUN):
        pass
    assert (store.pipeline("hourly").state, store.pipeline("hourly").run.error) == ("ended", None)


def test_a_name_is_run_once_at_a_time(store):
    with claim(store, "hourly", **RUN):
        with pytest.raises(penstock.PipelineRunning, match=f"process {os.getpid()}") as caught:
            claim(store, "hourly", **RUN)
        assert caught.value.pid == os.getpid()
        with pytest.raises(penstock.PipelineRunning):
            store.drop_pipeline("hourly")
    with claim(store, "hourly", **RUN):
        pass


def test_a_restart_must_agree_with_how_it_was_made(store):
    with claim(store, "hourly", **RUN):
        pass
    with pytest.raises(penstock.PipelineChanged, match="is a rollup, not a dedup"):
        claim(store, "hourly", kind="dedup", identity=RUN["identity"])
    with pytest.raises(penstock.PipelineChanged, match="source 'orders', not 'payments'"):
        claim(store, "hourly", kind="rollup", identity={"source": "payments", "target": "rates"})
    with claim(store, "hourly", **RUN):  # the refused ones left nothing locked
        pass


def test_another_process_asks_it_to_stop(store):
    with claim(store, "hourly", **RUN) as run, penstock.open(store.path) as other:
        assert not run.stopping
        assert not other.stop_pipeline("hourly", timeout=0)
        run.report(rows=1)
        assert run.stopping
    assert store.stop_pipeline("hourly", timeout=0)
    with claim(store, "hourly", **RUN) as run:
        run.report(rows=1)
        assert not run.stopping  # that was the run before


def test_a_killed_run_is_seen_as_such_and_can_be_run_again(store):
    code = """
        import sys, penstock, signal
        from penstock.store.pipelines import claim
        store = penstock.open(sys.argv[1])
        run = claim(store, "hourly", kind="rollup", identity={"source": "orders", "target": "rates"})
        run.report(rows=7)
        print("running", flush=True)
        signal.pause()
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), store.path], stdout=subprocess.PIPE
    )
    assert child.stdout.readline() == b"running\n"
    assert store.pipeline("hourly").state == "running"
    with pytest.raises(penstock.PipelineRunning, match=f"process {child.pid}"):
        claim(store, "hourly", **RUN)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    killed = store.pipeline("hourly")
    assert (killed.state, killed.run.rows) == ("killed", 7)
    with claim(store, "hourly", **RUN):
        assert store.pipeline("hourly").state == "running"


def test_a_dropped_pipeline_begins_anew(store):
    with claim(store, "hourly", **RUN) as run:
        os.makedirs(run.checkpoint)
        assert store.pipeline("hourly").checkpoint == run.checkpoint
    store.drop_pipeline("hourly")
    assert store.pipelines() == []
    assert not os.path.exists(run.folder)
    with claim(store, "hourly", kind="dedup", identity={}):
        assert store.pipeline("hourly").kind == "dedup"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "x" * 201])
def test_a_name_is_a_folder_too(store, name):
    with pytest.raises(penstock.InvalidOption, match="pipeline"):
        claim(store, name, **RUN)


def test_unknown_ones_are_told_with_those_there_are(store):
    with claim(store, "hourly", **RUN):
        pass
    for ask in (store.pipeline, store.drop_pipeline, store.stop_pipeline):
        with pytest.raises(penstock.UnknownPipeline, match="pipelines here: hourly"):
            ask("daily")


def test_a_store_of_an_older_format_gets_the_table_when_opened_for_writing(tmp_path):
    penstock.open(tmp_path).close()
    make_older(tmp_path, 2)
    with penstock.open(tmp_path, read_only=True) as store:
        assert store.pipelines() == []
    with penstock.open(tmp_path) as store, claim(store, "hourly", **RUN):
        assert len(store.pipelines()) == 1
    with penstock.open(tmp_path, read_only=True) as store, pytest.raises(penstock.ReadOnly):
        claim(store, "hourly", **RUN)
