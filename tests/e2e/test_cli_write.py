"""`penstock write`."""

import signal
import time

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.patience import wait_until


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


def stored(cli, topic="orders"):
    with penstock.open(cli.store, create=False, read_only=True) as store:
        return list(store.topic(topic).read(limit=10**6))


def stored_so_far(cli):
    """What is stored; nothing while there is no topic."""
    try:
        return stored(cli)
    except penstock.PenstockError:
        return []


def test_write_makes_store_and_topic_says_so_on_stderr_and_prints_the_receipt(cli):
    ended = cli.ok("write", "orders", "paid", "--key", "customer-7", "-H", "source=shop", "-H", "a=b=c")
    assert ended.out == "orders: partition 0, offset 0\n"
    assert "created store penstock-data" in ended.err
    assert "created topic orders" in ended.err
    (message,) = stored(cli)
    assert (message.key, message.value) == (b"customer-7", b"paid")
    assert dict(message.headers) == {"source": "shop", "a": "b=c"}


def test_write_as_json_gives_partition_and_offset_and_the_second_one_is_silent(cli):
    cli.ok("write", "orders", "a")
    ended = cli.ok("write", "orders", "b", "--json")
    assert ended.json_lines() == [
        {"topic": "orders", "partition": 0, "offset": 1, "sync": "disk", "duplicate": False, "due_at": None}
    ]
    assert ended.err == ""


def test_write_takes_partition_timestamp_and_tombstone(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders", partitions=3)
    cli.ok("write", "orders", "x", "--partition", "2", "--timestamp", "2001-09-09T01:46:40Z")
    cli.ok("write", "orders", "--tombstone", "--key", "k", "--partition", "2", "--timestamp", "-5")
    cli.ok("write", "orders", "", "--partition", "2")
    first, second, third = stored(cli)
    assert (first.partition, first.timestamp) == (2, 10**18)
    assert (second.key, second.value, second.timestamp) == (b"k", None, -5)
    assert third.value == b""


def test_lines_of_stdin_become_messages_byte_for_byte(cli):
    ended = cli.ok("write", "orders", "--key", "k", input=b"one\n\n\xff\xfe\r\nlast without an end")
    assert [m.value for m in stored(cli)] == [b"one", b"", b"\xff\xfe\r", b"last without an end"]
    assert {m.key for m in stored(cli)} == {b"k"}
    assert ended.lines[0].startswith("4 messages written to orders")
    assert ended.lines[2].split() == ["0", "4", "0", "3"]


def test_lines_can_carry_their_keys_and_the_summary_counts_by_partition(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders", partitions=4)
    lines = "".join(f"key-{number}:value:{number}\n" for number in range(50))
    summary = cli.json("write", "orders", "--key-separator", ":", input=lines)
    assert summary["messages"] == sum(row["messages"] for row in summary["partitions"]) == 50
    assert len(summary["partitions"]) > 1
    assert all(row["last"] - row["first"] + 1 == row["messages"] for row in summary["partitions"])
    assert {(m.key, m.value) for m in stored(cli)} == {
        (f"key-{number}".encode(), f"value:{number}".encode()) for number in range(50)
    }


def test_values_are_packed_on_request(cli):
    cli.ok("write", "orders", "a", "--codec", "gzip")
    cli.ok("write", "orders", "--codec", "zstd", input="b\nc\n")
    found = cli.ok("read", "orders", "--format", "json").json_lines()
    assert [(each["value"], each["codec"]) for each in found] == [("a", "gzip"), ("b", "zstd"), ("c", "zstd")]


def test_lines_sent_again_under_a_producer_are_skipped(cli):
    """S001-04: a file can be sent again after a crash."""
    sent = ("write", "orders", "--format", "text", "--producer", "app.log", "--seqno-from", "1")
    assert cli.json(*sent, input="a\nb\n")["skipped"] == 0
    again = cli.json(*sent, "--group", "g", input="a\n")
    assert (again["messages"], again["skipped"]) == (1, 0)
    summary = cli.json(*sent, input="a\nb\nc\n")
    assert (summary["messages"], summary["skipped"]) == (1, 2)
    assert [(m.text, m.seqno, m.group) for m in stored(cli)] == [
        ("a", 1, None), ("b", 2, None), ("a", 1, "g"), ("c", 3, None)
    ]  # fmt: skip
    assert "a duplicate" in cli.ok("write", "orders", "c", "--producer", "app.log", "--seqno-from", "3").out
    assert cli.json("write", "orders", "d", "--producer", "app.log")["offset"] == 4
    assert stored(cli)[-1].seqno == 4


def test_no_lines_are_no_messages_and_no_error(cli):
    assert cli.json("write", "orders", input="")["messages"] == 0


def test_many_lines_are_written_whole_and_in_order(cli):
    lines = b"".join(b"%d\n" % number for number in range(250_000))
    summary = cli.json("write", "orders", "--format", "text", input=lines)
    assert summary["partitions"] == [{"partition": 0, "messages": 250_000, "first": 0, "last": 249_999}]
    with penstock.open(cli.store, read_only=True) as store:
        scan = store.topic("orders").scan()
        assert all(int(m.value) == number for number, m in enumerate(scan.messages()))


def test_a_line_that_is_too_long_fails_and_says_how_many_were_written(cli):
    ended = cli.run("write", "orders", input=b"fine\n" + b"x" * (3 * 2**20) + b"\nnever\n")
    assert ended.code == 2
    assert "1 message written before that" in ended.err
    assert "error: a line is over the topic's limit" in ended.err
    assert [m.value for m in stored(cli)] == [b"fine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("../x", "v"), "cannot be the name of a topic"),
        (("orders", "v", "--header", "nope"), "is not a header"),
        (("orders", "v", "--seqno-from", "1"), "needs --producer"),
        (("orders", "v", "--codec", "brotli"), "codec 'brotli' is not known"),
        (("orders", "v", "--producer", "x" * 2049), "1 to 2048"),
        (("orders", "v", "--timestamp", "soon"), "is not a moment"),
        (("orders", "v", "--timestamp", "9" * 20), "does not fit"),
        (("orders", "v", "--partition", "1"), "has partition 0 only"),
        (("orders", "v", "--key", "k" * 5000), "over the limit"),
        (("orders", "v", "--tombstone"), "a tombstone has no value"),
    ],
)
def test_bad_input_is_a_usage_error_and_nothing_is_made(cli, arguments, message):
    ended = cli.quick("write", *arguments)
    assert ended.code == 2, ended
    assert message in ended.err
    assert ended.err.startswith("error: ")
    assert not cli.store.exists()


def test_ctrl_c_while_reading_stdin_keeps_what_was_accepted(cli):
    process = cli.start("write", "orders")
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    wait_until(lambda: len(stored_so_far(cli)) == 2, process.poll)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130, "its input is still open: Ctrl-C ended it"
    out, err = process.communicate()
    assert b"2 messages written before that" in err
    assert b"Traceback" not in err
    assert out == b""
    assert [m.value for m in stored(cli)] == [b"one", b"two"]


def test_a_store_that_another_process_owns_is_refused_with_its_pid(cli):
    with penstock.open(cli.store, exclusive=True) as store:
        store.create_topic("orders")
        ended = cli.run("write", "orders", "x")
    assert ended.code == 1
    assert "belongs to process" in ended.err
    assert "hint: " in ended.err


def test_what_is_delayed_waits_on_disk_and_says_when_it_enters(cli):
    ended = cli.ok("write", "orders", "later", "--delay", "1h", "--json")
    (result,) = ended.json_lines()
    assert (result["partition"], result["offset"]) == (-1, -1)
    assert 0 < result["due_at"] - time.time_ns() <= 3600 * 10**9
    assert "enters the topic at 2" in cli.ok("write", "orders", "x", "--delay", "1h", "--codec", "gzip").out
    assert cli.ok("write", "orders", "now", "--deliver-at", "2001-09-09T01:46:40Z").out.endswith("offset 0\n")
    lines = cli.ok("write", "orders", "--delay", "1h", input=b"one\ntwo\n")
    assert "2 messages delayed" in lines.out
    assert [message.value for message in stored(cli)] == [b"now"]


def test_waits_that_make_no_sense_are_refused_and_nothing_is_made(cli):
    for options in (("--delay", "3650d"), ("--deliver-at", "soon"), ("--delay", "1s", "--deliver-at", "5")):
        assert cli.run("write", "orders", "x", *options).code == 2
    assert not cli.store.exists()


def test_a_dash_is_stdin(cli):
    cli.ok("write", "orders", "-", input="x\ny\n")
    cli.ok("write", "orders", "--file", "-", input="two\nlines\n")
    assert [m.value for m in stored(cli)] == [b"x", b"y", b"two\nlines\n"]


def test_what_read_prints_as_json_write_takes_again(cli):
    """Key, value, headers and timestamp come back to the byte; the partition if asked."""
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders", partitions=3)
        topic.write(b"\xff", key=b"\xfe", headers={"a": "x", "b": b"\xff"}, timestamp=5, partition=2)
        topic.write(None, key="gone", timestamp=-6, partition=1)
        topic.write("ü\n".encode(), timestamp=7, partition=2)
        topic.write(b"", key=b"", timestamp=8, partition=0)
        for name in ("again", "placed"):
            store.create_topic(name, partitions=3)
    printed = cli.ok("read", "orders", "--json").raw
    assert cli.json("write", "again", input=printed)["messages"] == 4
    cli.ok("write", "placed", "--format", "json", "--keep-partition", input=printed)

    def rows(topic, *, partition):
        found = stored(cli, topic)
        parts = [(m.key, m.value, m.timestamp, tuple(m.headers.items())) for m in found]
        return sorted(zip([m.partition for m in found], parts, strict=True) if partition else parts, key=repr)

    assert rows("again", partition=False) == rows("orders", partition=False)
    assert rows("placed", partition=True) == rows("orders", partition=True)


@pytest.mark.parametrize(
    ("line", "arguments", "message"),
    [
        ("plain", ("--json",), "line 2 is not JSON"),
        ("[1]", ("--json",), "line 2 is no message"),
        ("{}", ("--format", "json"), "line 2 is no message"),
        ('{"value": "x", "headers": {"a": 1}}', ("--json",), "line 2: header 'a' is text, not int"),
        ('{"value": "x", "timestamp": "soon"}', ("--json",), "timestamp 'soon' is not a moment"),
        ("", ("--format", "json", "--key-separator", ":"), "bring their own keys"),
        ("", ("--keep-partition",), "--keep-partition is for messages in JSON"),
    ],
)
def test_lines_that_are_no_messages_are_named(cli, line, arguments, message):
    ended = cli.run("write", "orders", *arguments, input='{"value": "first"}\n' + line + "\n")
    assert ended.code == 2
    assert message in ended.err
