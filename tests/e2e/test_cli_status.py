"""`penstock status` and `penstock vacuum`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

import penstock
from penstock.testing import Clock
from tests.e2e.command import Command
from tests.kit import processes
from tests.kit.system import CommandClock


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write_many(["x"] * 10, partition=0)
        topic.add_consumer("billing")
    return command


def test_status_shows_topics_consumers_and_disk_as_text_and_as_json(cli):
    text = cli.ok("status").out
    assert "healthy, 10 messages" in text
    assert "free" in text
    assert "billing" in text
    status = cli.quick_json("status")
    assert (status["healthy"], status["problems"], status["messages"]) == (True, [], 10)
    assert 0 < status["disk_free_bytes"] <= status["disk_total_bytes"]
    assert [(t["topic"], t["messages"], t["partitions"]) for t in status["topics"]] == [("orders", 10, 2)]
    assert [(c["consumer"], c["lag"]) for c in status["consumers"]] == [("billing", 10)]
    assert status["time"].endswith("Z")


def test_a_position_beyond_the_end_is_unhealthy(cli):
    with sqlite3.connect(cli.store / "state.db") as connection:
        connection.execute("UPDATE positions SET position = 99 WHERE partition = 0")
    connection.close()
    ended = cli.run("status")
    assert ended.code == 3
    assert "NOT HEALTHY" in ended.out
    assert "problem: orders partition 0: consumer billing stands at 99, beyond the end (10)" in ended.out
    ended = cli.quick("status", "--json")
    assert (ended.code, ended.json_lines()[0]["healthy"]) == (3, False)


def test_a_damaged_state_is_unhealthy(cli):
    state = cli.store / "state.db"
    content = state.read_bytes()
    state.write_bytes(content[:1024] + b"\xee" * (len(content) - 1024))
    ended = cli.quick("status")
    assert ended.code == 3
    assert "damaged" in ended.err + ended.out


def test_damage_in_a_topic_is_a_problem_and_the_others_are_shown(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("sound").write("x")
    (data,) = cli.store.glob("topics/orders/parts/000000/*.data")
    content = bytearray(data.read_bytes())
    content[64:128] = bytes(64)
    data.write_bytes(content)
    ended = cli.quick("status", "--json")
    assert ended.code == 3
    (status,) = ended.json_lines()
    assert any("a damaged frame" in problem for problem in status["problems"])
    assert [t["messages"] for t in status["topics"]] == [None, 1]


def test_watch_looks_again_and_counts_messages_per_second(cli):
    with cli.start("status", "--watch", "--interval", "100ms", "--json") as process:
        first = json.loads(process.stdout.readline())
        with penstock.open(cli.store) as store:
            store.topic("orders").write_many(["x"] * 5)
        looks = [first]
        while looks[-1]["messages"] < 15:
            looks.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.stderr.read() == b""
        assert process.wait() == 130
    assert first["topics"][0]["messages_per_second"] is None
    assert looks[-1]["topics"][0]["messages_per_second"] > 0


def test_vacuum_reports_what_went_and_who_held_back(cli):
    with penstock.open(cli.store, clock=CommandClock()) as store:
        topic = store.create_topic("old", retention="0s")
        topic.write_many(["x"] * 7)
        held = store.create_topic("held", retention="0s")
        held.add_consumer("slow", important=True)
        held.write_many(["x"] * 3)
    ended = cli.run("vacuum", "old")
    assert ended.lines[0].startswith("7 messages removed, 1 segment,")
    assert ended.lines[2].split()[:5] == ["old", "0", "7", "1", ended.lines[2].split()[4]]
    assert "0 → 7" in ended.lines[2]
    report = cli.quick_json("vacuum")
    assert report["messages"] == 0
    rows = {(row["topic"], row["partition"]): row for row in report["partitions"]}
    assert rows["held", 0]["held_by"] == ["slow"]
    assert (rows["old", 0]["start"], rows["old", 0]["busy"]) == (7, False)
    assert ("orders", 1) in rows
    assert cli.quick("vacuum", "nope").code == 2


def test_vacuum_tells_of_a_partition_that_is_gone(cli):
    with penstock.open(cli.store, clock=CommandClock()) as store:
        topic = store.create_topic("grown", retention="0s", autopartitioning="paused")
        topic.write_many(["x"] * 7)
        topic.split(0)
    ended = cli.quick("vacuum", "grown")
    assert "the partition was split, and is gone now" in ended.lines[2]
    assert ended.lines[2].split()[:3] == ["grown", "0", "7"]
    rows = cli.quick_json("vacuum", "grown")["partitions"]
    assert [(row["partition"], row["removed"]) for row in rows] == [(1, False), (2, False)]


def test_status_warns_of_what_consumers_keep_from_going(cli):
    """S001-57: the disk can fill up."""
    with penstock.open(cli.store) as store:
        topic = store.topic("orders")
        topic.alter_consumer("billing", important=True)
        topic.alter(retention="0s")
    status = cli.quick_json("status")
    assert status["healthy"] is True
    assert status["warnings"] == ["orders: 10 messages past retention are kept for consumer billing"]


def test_status_warns_of_an_important_consumer_that_is_far_behind(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store, clock=Clock(penstock.Clock.now_ns() - 3 * 86400 * 10**9)) as store:
        store.create_topic("orders").write("x")
        store.topic("orders").add_consumer("audit", important=True)
    (warning,) = command.quick_json("status")["warnings"]
    assert warning.startswith("orders: important consumer audit is 72 h behind (1 messages, ")


def test_status_names_a_stopped_process_that_keeps_partitions(cli):
    reading = processes.start([sys.executable, "-c", _READ_AND_STOP, str(cli.store)], stdout=subprocess.PIPE)
    os.waitpid(reading.pid, os.WUNTRACED)
    (warning,) = cli.quick_json("status")["warnings"]
    assert warning == (
        f"orders: process {reading.pid} is stopped and keeps partitions 0, 1 of billing; "
        f"penstock consumer kick orders billing {reading.pid}"
    )
    (consumer,) = cli.quick_json("consumer", "list")["consumers"]
    assert [member["stopped"] for member in consumer["members"]] == [True]


_READ_AND_STOP = """
import os, signal, sys, penstock
with penstock.open(sys.argv[1]) as store, store.topic("orders").reader(consumer="billing") as reader:
    reader.receive()
    os.kill(os.getpid(), signal.SIGSTOP)
"""
