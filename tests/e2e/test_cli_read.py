"""`penstock read`."""

import base64
import json
import signal
import subprocess
import time

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.patience import wait_until


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


def fill(cli, count=10, **options):
    """A topic `orders` with values 0, 1, 2, …"""
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders", **options)
        if count:
            topic.write_many([str(number) for number in range(count)], keys=["k"] * count)


def values(ended):
    return [int(line) for line in ended.lines]


def lag(cli):
    with penstock.open(cli.store, read_only=True) as store:
        (consumer,) = store.topic("orders").consumers()
        return consumer.lag


def seconds(call):
    """How long a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def raw(cli, *arguments):
    return values(cli.quick("read", "orders", "--format", "raw", *arguments))


def test_text_shows_place_time_key_and_value_and_escapes_what_would_harm_a_terminal(cli):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders")
        topic.write("schön", key="customer-7", timestamp=0)
        topic.write(b"\x1b[2J\xff\n", timestamp=0)
        topic.write(None, key=b"", timestamp=0)
    assert cli.ok("read", "orders").lines == [
        "0:0  1970-01-01 00:00:00.000  customer-7  schön",
        "0:1  1970-01-01 00:00:00.000  -  \\x1b[2J\\xff\\n",
        "0:2  1970-01-01 00:00:00.000    (tombstone)",
    ]


def test_json_tells_text_base64_tombstone_and_absent_key_apart(cli):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders")
        topic.write("text", key="k", headers={"a": "b", "raw": b"\xff"}, timestamp=1_000_000_001)
        topic.write(b"\xff\xfe", key=b"\xfd")
        topic.write(None)
        topic.write(b"", key=b"")
    first, second, third, fourth = cli.ok("read", "orders", "--format", "json").json_lines()
    assert {name: first[name] for name in ("topic", "partition", "offset", "key", "value")} == {
        "topic": "orders", "partition": 0, "offset": 0, "key": "k", "value": "text",
    }  # fmt: skip
    assert first["headers"] == {"a": "b", "raw": base64.b64encode(b"\xff").decode()}
    assert first["headers_encoding"] == {"raw": "base64"}
    assert (first["timestamp"], first["timestamp_ns"]) == ("1970-01-01T00:00:01.000000Z", 1_000_000_001)
    assert first["written_at"].endswith("Z")
    assert isinstance(first["written_at_ns"], int)
    assert "value_encoding" not in first
    assert base64.b64decode(second["value"]) == b"\xff\xfe"
    assert base64.b64decode(second["key"]) == b"\xfd"
    assert second["value_encoding"] == second["key_encoding"] == "base64"
    assert (third["key"], third["value"]) == (None, None)
    assert (fourth["key"], fourth["value"]) == ("", "")


def test_raw_and_hex(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders").write(b"\x00\xff", key="k")
    assert cli.quick("read", "orders", "--format", "raw").raw == b"\x00\xff\n"
    assert cli.quick("read", "orders", "--format", "hex").out == "0:0  6b  00ff\n"


def test_every_format_reads_the_same_messages_and_ends_at_the_end(cli):
    fill(cli, 3)
    for name in ("text", "json", "raw", "hex"):
        assert len(cli.quick("read", "orders", "--format", name).lines) == 3
    assert len(cli.quick("read", "orders", "--json").json_lines()) == 3


def test_places_limit_and_partition_choose_what_is_read(cli):
    fill(cli, 10)
    assert raw(cli) == list(range(10))
    assert raw(cli, "--from", "7") == [7, 8, 9]
    assert raw(cli, "--from", "last") == [9]
    assert raw(cli, "--from", "latest") == []
    assert raw(cli, "--from", "1h") == list(range(10))
    assert raw(cli, "--from", "2100-01-01T00:00:00Z") == []
    assert raw(cli, "--from", "2", "--to", "5") == [2, 3, 4]
    assert raw(cli, "--to", "0:3") == [0, 1, 2]
    assert raw(cli, "--from", "3", "--limit", "2") == [3, 4]
    assert raw(cli, "--partition", "0", "--limit", "1") == [0]


def test_partitions_are_read_by_their_own_offsets(cli):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders", partitions=2)
        topic.write_many(["0", "1", "2"], partition=0)
        topic.write_many(["10", "11", "12"], partition=1)
    assert sorted(raw(cli)) == [0, 1, 2, 10, 11, 12]
    assert raw(cli, "-p", "1") == [10, 11, 12]
    assert sorted(raw(cli, "--from", "0:2,1:1")) == [2, 11, 12]
    assert sorted(raw(cli, "--to", "0:1")) == [0, 10, 11, 12]


def test_reading_without_a_consumer_leaves_no_trace(cli):
    fill(cli, 3)
    before = sorted((str(path), path.stat().st_mtime_ns) for path in cli.store.rglob("*"))
    cli.ok("read", "orders")
    assert sorted((str(path), path.stat().st_mtime_ns) for path in cli.store.rglob("*")) == before


@pytest.mark.parametrize("arguments", [("--json",), ("--follow",), ("--consumer", "c"), ("--format", "raw")])
def test_a_missing_store_or_topic_is_an_error_and_is_not_made(cli, arguments):
    ended = cli.quick("read", "orders", *arguments)
    assert ended.code == 2
    assert "there is no store" in ended.err
    assert not cli.store.exists()
    with penstock.open(cli.store) as store:
        store.create_topic("other")
    ended = cli.quick("read", "orders", *arguments)
    assert ended.code == 2
    assert "error: no topic 'orders'\nhint: topics here: other; `penstock topic create orders`" in ended.err
    with penstock.open(cli.store, read_only=True) as store:
        assert [topic.name for topic in store.topics()] == ["other"]


def test_a_consumer_goes_on_behind_what_was_printed(cli):
    fill(cli, 5)
    assert values(cli.ok("read", "orders", "--consumer", "c", "-n", "2", "--format", "raw")) == [0, 1]
    assert raw(cli, "--consumer", "c", "--to", "4") == [2, 3]
    assert raw(cli, "--consumer", "c") == [4]
    assert raw(cli, "--consumer", "c") == []
    assert raw(cli, "--consumer", "late", "--from", "3") == [3, 4]


def test_from_is_refused_for_a_consumer_that_has_a_position(cli):
    fill(cli, 2)
    assert raw(cli, "--consumer", "c") == [0, 1]
    ended = cli.quick("read", "orders", "--consumer", "c", "--from", "0")
    assert ended.code == 2
    assert "penstock consumer seek orders c PLACE" in ended.err


def test_contradictions_are_usage_errors(cli):
    fill(cli, 1)
    assert cli.quick("read", "orders", "--json", "--format", "hex").code == 2
    assert cli.quick("read", "orders", "--follow", "--to", "5").code == 2
    assert cli.quick("read", "orders", "--limit", "0").code == 2
    assert cli.quick("read", "orders", "--from", "yesterdayish").code == 2
    assert cli.quick("read", "orders", "--partition", "7").code == 2
    beyond = cli.quick("read", "orders", "--from", "99")
    assert (beyond.code, "beyond the end (1)" in beyond.err) == (1, True)


def test_follow_prints_what_comes_and_ctrl_c_ends_it_within_a_second(cli):
    fill(cli, 1)
    process = cli.start("read", "orders", "--follow", "--format", "raw", "--consumer", "c")
    assert process.stdout.readline() == b"0\n"
    with penstock.open(cli.store) as store:
        store.topic("orders").write("1")
    assert process.stdout.readline() == b"1\n"
    wait_until(lambda: not lag(cli), "behind the print comes the commit")
    usual_s = seconds(lambda: cli.ok("--version"))
    process.send_signal(signal.SIGINT)
    # Under load a second is longer: as much as starting Python takes, which is far less on an idle machine.
    assert seconds(process.wait) < 1.0 + usual_s
    out, err = process.communicate()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert raw(cli, "--consumer", "c") == []


def test_head_ends_a_read_quietly_and_commits_nothing_that_was_not_taken(cli):
    fill(cli, 50_000)
    with cli.start("read", "orders", "--format", "raw", "--consumer", "c") as process:
        taken = subprocess.run(["head", "-2"], stdin=process.stdout, capture_output=True, check=True)
        process.stdout.close()
        assert taken.stdout == b"0\n1\n"
        assert process.stderr.read() == b""
        assert process.wait() == 0
    with penstock.open(cli.store, read_only=True) as store:
        (consumer,) = store.topic("orders").consumers()
        assert consumer.lag > 25_000


def test_a_gap_fails_with_a_hint_and_on_gap_skip_goes_on_behind_it(cli):
    fill(cli, 3000, segment_bytes="4KiB", max_bytes="256KiB")
    with penstock.open(cli.store) as store:
        topic = store.topic("orders")
        topic.add_consumer("c")
        for _ in range(20):
            topic.write_many(["x" * 1000] * 50)
        topic.vacuum()
        start = topic.stats().partitions[0].start
    assert start > 0
    ended = cli.quick("read", "orders", "--consumer", "c")
    assert ended.code == 1
    assert "is gone" in ended.err
    assert "--on-gap skip" in ended.err
    ended = cli.quick("read", "orders", "--consumer", "c", "--on-gap", "skip", "--limit", "1", "--json")
    assert json.loads(ended.out)["offset"] == start
    assert ended.err.startswith("warning: skipped offsets 0 to")


def test_damage_is_exit_code_3_and_its_neighbours_are_readable(cli):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders")
        for number in range(5):
            topic.write(str(number) * 100)
    (data,) = cli.store.glob("topics/orders/parts/000000/*.data")
    content = bytearray(data.read_bytes())
    content[content.index(b"2" * 100) + 50] ^= 1
    data.write_bytes(content)
    ended = cli.quick("read", "orders", "--format", "raw")
    assert ended.code == 3
    assert "a damaged frame in" in ended.err
    assert "penstock verify" in ended.err
    assert [line[0] for line in ended.lines] == ["0", "1"]
    ended = cli.quick("read", "orders", "--format", "raw", "--on-gap", "skip")
    assert (ended.code, [line[0] for line in ended.lines]) == (0, ["0", "1", "3", "4"])


def test_messages_are_read_by_key_and_by_its_beginning(cli):
    cli.quick("topic", "create", "events", "--index", "key")
    for number, key in enumerate(['["chat", 345]', '["chat","345"]', "chat", '["chatter"]', '["chat",345]']):
        assert cli.quick("write", "events", str(number), "--key", key).code == 0

    def read(*arguments):
        return values(cli.quick("read", "events", "--format", "raw", *arguments))

    assert read("--key", '["chat",345.0]') == [0, 4]
    assert read("--key", "chat") == [2]
    assert read("--key", '["chat",345]', "--from", "1", "--limit", "1") == [4]
    assert read("--prefix", '["chat"]') == [0, 1, 4]
    assert read("--prefix", "ch") == [2]
    assert read("--key", "nobody") == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--key", "k"), "--index key"),
        (("--key", "[k]"), "not an array"),
        (("--key", "k", "--follow"), "look up what is there"),
        (("--prefix", "k", "--consumer", "c"), "look up what is there"),
    ],
)
def test_reading_by_key_is_refused_where_it_cannot_be(cli, arguments, says):
    fill(cli)
    ended = cli.quick("read", "orders", *arguments)
    assert ended.code == 2
    assert says in ended.err


def test_readers_of_a_queue_share_messages_and_end_when_nothing_is_left(cli):
    with penstock.open(cli.store) as store:
        jobs = store.create_topic("jobs")
        jobs.write_many(["a", "b", "c"])
        with jobs.reader(consumer="workers", kind="queue") as held:
            assert held.receive().text == "a"
            queue = ("read", "jobs", "--consumer", "workers", "--kind", "queue", "--format", "raw")
            assert cli.ok(*queue).out == "b\nc\n"
        assert cli.ok(*queue).out == "a\n"
    assert cli.run("read", "jobs", "--kind", "queue").code == 2
