"""`penstock import`, `penstock export`, `penstock topic copy`."""

import json
import signal
import time

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

import penstock
from tests.e2e.command import Command
from tests.exchange.diskq_files import all_files, rows, write_folder
from tests.kit.patience import PATIENCE_S


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


def stored(cli, topic="t"):
    with penstock.open(cli.store, create=False, read_only=True) as store:
        return [(m.key, m.value) for m in store.topic(topic).read(limit=10**6)]


def test_a_diskq_folder_goes_in_and_out(cli, tmp_path):
    folder = write_folder(
        tmp_path / "d", [{5: rows(7)}, {0: rows(3)}], settings={"partition_count": 2}, groups={"g": {0: 6}}
    )
    ended = cli.quick("import", "diskq", "d", "--topic", "t")
    assert ended.code == 0, ended
    assert ended.lines[0].startswith("10 messages imported into t (2 partitions) in ")
    assert ended.lines[1] == "groups that are consumers now: g"
    facts = cli.quick_json("export", "diskq", "t", "out")
    assert (facts["messages"], facts["partitions"], facts["groups"], facts["notes"]) == (10, 2, ["g"], [])
    assert all_files(tmp_path / "out") == all_files(folder)
    again = cli.quick("import", "diskq", "d", "--topic", "t")
    assert again.code == 2
    assert "topic 't' is there already" in again.err
    assert "choose another name, or drop the topic first" in again.err
    assert "is there already" in cli.quick("export", "diskq", "t", "out").err


def test_bad_diskq_folders_are_told_with_file_and_byte_and_make_no_store(cli, tmp_path):
    ended = cli.quick("import", "diskq", "nowhere", "--topic", "t")
    assert ended.code == 2
    assert "is not a diskq folder" in ended.err
    assert not cli.store.exists()
    folder = write_folder(tmp_path / "d", [{0: rows(7)}])
    (folder / "owner").write_bytes(bytes(16))
    assert "--owned-ok" in cli.quick("import", "diskq", "d", "-t", "t").err
    data = folder / "parts/000000/00000000000000000000.data"
    data.write_bytes(b"\xff" + data.read_bytes()[1:])
    ended = cli.quick("import", "diskq", "d", "-t", "t", "--owned-ok")
    assert ended.code == 3
    assert "at byte 0" in ended.err
    assert "bring the file back from a copy" in ended.err


def test_files_go_in_by_field_and_out_again(cli, tmp_path):
    (tmp_path / "f.jsonl").write_text('{"id":1,"v":"x"}\n{"id":2,"v":"y"}\n')
    ended = cli.quick("import", "jsonl", "f.jsonl", "-t", "t", "--key", "id", "--value", "v")
    assert ended.lines[0].startswith("2 messages imported into t in ")
    assert "created topic t (1 partition)" in ended.err
    assert stored(cli) == [(b"1", b"x"), (b"2", b"y")]
    facts = cli.quick_json("import", "jsonl", "f.jsonl", "-t", "t", "--key", "id", "--value", "v")
    assert facts["messages"] == 0
    for kind in ("jsonl", "csv", "parquet", "arrow"):
        assert cli.quick_json("export", kind, "t", f"out.{kind}")["messages"] == 2
        assert "is there already" in cli.quick("export", kind, "t", f"out.{kind}").err
        cli.quick_json("import", kind, f"out.{kind}", "-t", f"again-{kind}", "--messages")
        assert stored(cli, f"again-{kind}") == [(b"1", b"x"), (b"2", b"y")]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "arrow"])
def test_a_dash_is_stdin_and_stdout(cli, kind):
    with penstock.open(cli.store) as store:
        store.create_topic("t").write_many([b"x", b"y"], keys=[b"1", b"2"])
    out = cli.ok("export", kind, "t", "-").raw
    ended = cli.ok("import", kind, "-", "-t", "again", "--messages", input=out)
    assert ended.lines[0].startswith("2 messages imported into again")
    assert stored(cli, "again") == [(b"1", b"x"), (b"2", b"y")]


def test_stdin_sent_again_under_a_producer_is_skipped(cli):
    sent = ("import", "jsonl", "-", "-t", "t", "--producer", "me")
    assert cli.json(*sent, input="1\n2\n")["messages"] == 2
    again = cli.json(*sent, input="1\n2\n3\n")
    assert again["messages"] == 1
    assert [value for _, value in stored(cli)] == [b"1", b"2", b"3"]


def test_bad_files_are_told(cli, tmp_path):
    (tmp_path / "f.jsonl").write_text('{"id":1}\nnope\n')
    ended = cli.quick("import", "jsonl", "f.jsonl", "-t", "t")
    assert ended.code == 2
    assert "f.jsonl line 2 is not JSON" in ended.err
    assert "note: 1 messages were stored before that" in ended.err
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    assert "has no column 'id'" in cli.quick("import", "csv", "f.csv", "-t", "t", "--key", "id").err
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "f.parquet")
    assert "has no column 'id'" in cli.quick("import", "parquet", "f.parquet", "-t", "t", "--key", "id").err
    assert "is not a file of kind arrow" in cli.quick("import", "arrow", "f.csv", "-t", "t").err
    assert "cannot be read" in cli.quick("import", "csv", "missing.csv", "-t", "t").err
    assert "time unit 'h'" in cli.quick("import", "csv", "f.csv", "-t", "t", "--time-unit", "h").err
    with ipc.new_file(str(tmp_path / "f.arrow"), pa.schema([("a", pa.int32())])):
        pass
    assert cli.quick_json("import", "arrow", "f.arrow", "-t", "t", "--value", "a")["messages"] == 0


def test_follow_goes_on_until_ctrl_c(cli, tmp_path):
    path = tmp_path / "app.log"
    path.write_text("1\n")
    process = cli.start("import", "jsonl", "app.log", "-t", "t", "--follow")
    deadline = time.monotonic() + 40

    def wait_for(count):
        while time.monotonic() < deadline:
            try:
                if len(stored(cli)) >= count:
                    return
            except penstock.PenstockError:
                pass
            time.sleep(0.05)

    wait_for(1)
    with path.open("a") as file:
        file.write("2\nno json\n3\n")
    wait_for(3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert b"left out: app.log line 3 is not JSON" in err.replace(str(tmp_path).encode() + b"/", b"")
    assert b"3 messages stored, 1 line left out" in err
    assert b"Traceback" not in err
    assert [value for _, value in stored(cli)] == [b"1", b"2", b"3"]


def test_follow_ends_at_a_bad_line_if_it_is_strict(cli, tmp_path):
    (tmp_path / "app.log").write_text("1\nno json\n2\n")
    ended = cli.run("import", "jsonl", "app.log", "-t", "t", "--follow", "--strict")
    assert ended.code == 2, ended
    assert "line 2 is not JSON" in ended.err
    assert [value for _, value in stored(cli)] == [b"1"]


def test_topic_copy_between_stores(cli, tmp_path):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("t", partitions=2, retention="7d")
        topic.write_many([b"%d" % n for n in range(10)], keys=[b"%d" % n for n in range(10)])
        topic.add_consumer("billing", start={0: 2, 1: 1})
    ended = cli.quick("topic", "copy", "penstock-data/t", "other/t2", "--consumers")
    assert ended.code == 0, ended
    assert ended.lines[0].startswith("10 messages copied to other/t2 in ")
    assert ended.lines[1] == "consumers: billing"
    with penstock.open(tmp_path / "other") as store:
        copy = store.topic("t2")
        assert sorted(m.value for m in copy.read()) == [b"%d" % n for n in range(10)]
        assert copy.consumers()[0].positions == {0: 2, 1: 1}
    assert cli.quick("topic", "copy", "penstock-data/t", "other/t2").code == 2
    assert "is not STORE/TOPIC" in cli.quick("topic", "copy", "t", "other/t2").err
    facts = json.loads(cli.quick("topic", "copy", "penstock-data/t", "other/t3", "--json").out)
    assert facts["messages"] == 10
