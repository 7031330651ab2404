"""`penstock stream …`: the real command."""

import json
import os
import pty
import sys
import time

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.commands import Counted


@pytest.fixture
def command(tmp_path):
    return Command(tmp_path)


def test_a_message_is_published_listed_and_read(command):
    ended = command.run("stream", "publish", "orders", "paid", "-H", "source=shop", "--object-name", "o/1")
    assert (ended.code, ended.out) == (0, "stream: orders 1  o/1\n")
    assert "created store" in ended.err
    assert command.quick("stream", "list", "orders").out.splitlines()[0].split() == [
        "sequence", "subject", "object", "age", "headers",
    ]  # fmt: skip
    assert command.quick_json("stream", "list", "*")["messages"][0] | {"create_at": 0} == {
        "sequence": 1, "subject": "orders", "object_name": "o/1", "headers": {"source": "shop"},
        "create_at": 0,
    }  # fmt: skip
    text = command.quick("stream", "get", "1").out
    assert text.startswith("1  orders  o/1\n  created: ")
    assert text.endswith("\n  source: shop\npaid\n")
    got = command.quick_json("stream", "get", "1")
    assert (got["data"], got["headers"], got["sequence"]) == ("paid", {"source": "shop"}, 1)
    command.quick("stream", "publish", "images.cats")
    assert command.quick_json("stream", "list") == {
        "stream": "stream",
        "subjects": [
            {"subject": "images.cats", "messages": 1, "first_sequence": 2, "latest_sequence": 2},
            {"subject": "orders", "messages": 1, "first_sequence": 1, "latest_sequence": 1},
        ],
    }
    stats = command.quick_json("stream", "stats")
    assert stats.pop("bytes") > 0
    assert stats == {
        "stream": "stream", "messages": 2, "subjects": 2, "consumers": 0, "latest_sequence": 2,
        "ttl_enabled": False,
    }  # fmt: skip
    assert command.quick("stream", "stats").out.startswith("stream: 2 messages of 2 subjects, 0 positions")


def test_a_body_is_printed_by_its_name(command):
    """S000-04: names that were given, names of our own making, and objects that others put there."""
    objects = command.folder / "objects"
    ended = command.quick(
        "stream", "publish", "orders", "paid", "--object-name", "o/1", "--bodies", str(objects)
    )
    assert ended.code == 0
    assert (objects / "o" / "1").read_text() == "paid"
    command.quick("stream", "publish", "orders", "unnamed")
    (objects / "foreign").write_text("of others")
    for name, body in (("o/1", "paid"), ("orders_2", "unnamed"), ("foreign", "of others")):
        assert command.quick("stream", "object", name, "--bodies", str(objects)).out == body
    command.quick("stream", "object", "o/1", "-o", str(command.folder / "copy"), "--bodies", str(objects))
    assert (command.folder / "copy").read_text() == "paid"
    missing = command.quick("stream", "object", "nothing")
    assert missing.code == 3
    assert "nothing" in missing.err


def test_files_and_folders_become_messages_under_their_names(command):
    folder = command.folder / "pictures"
    (folder / "cats").mkdir(parents=True)
    large = os.urandom(3 << 20)
    (folder / "cats" / "tom.png").write_bytes(large)
    (folder / "note.txt").write_text("two cats")
    (command.folder / "alone.bin").write_bytes(b"\0\xff")
    published = command.quick_json(
        "stream", "publish", "images", "--file", str(folder), "-f", str(command.folder / "alone.bin")
    )["published"]
    assert [(each["sequence"], each["object_name"]) for each in published] == [
        (1, "cats/tom.png"), (2, "note.txt"), (3, "alone.bin"),
    ]  # fmt: skip
    assert command.quick_json("stream", "get", "2")["headers"] == {"content-type": "text/plain"}
    target = command.folder / "out.png"
    ended = command.quick("stream", "get", "1", "--output", str(target))
    assert (ended.code, ended.err) == (0, f"{target}: 3.0 MiB\n")
    assert target.read_bytes() == large
    assert command.quick("stream", "get", "3", "-o", "-").raw == b"\0\xff"
    assert command.quick_json("stream", "get", "3")["data_encoding"] == "base64"


def test_large_files_tell_how_far_they_are_on_a_terminal(tmp_path, monkeypatch):
    terminal, other_end = pty.openpty()
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(3 << 20))
    with os.fdopen(other_end, "w") as screen, file.open("rb") as opened:
        monkeypatch.setattr(sys, "stderr", screen)
        with Counted(opened, 3 << 20, "large.bin") as counted:
            assert len(counted.read(1 << 20)) == 1 << 20
            time.sleep(0.25)  # it tells five times a second
            assert len(counted.read(1 << 20)) == 1 << 20
        told = os.read(terminal, 1000)
    os.close(terminal)
    assert b"\rlarge.bin: 2.0 MiB of 3.0 MiB" in told


def test_standard_input_is_a_body(command):
    assert command.run("stream", "publish", "orders", "-", input=b"\x00piped").code == 0
    assert command.quick("stream", "get", "1", "-o", "-").raw == b"\x00piped"


def test_tail_goes_on_where_its_consumer_was(command):
    for text in ("one", "two", "three"):
        command.quick("stream", "publish", "orders", text)
    tail = ("stream", "tail", "orders", "--durable", "billing", "--timeout", "0s")
    first = command.quick(*tail, "--ack", "--limit", "2").out.splitlines()
    assert [line.split("  ")[0] + line.split("  ")[-1] for line in first] == ["1one", "2two"]
    (line,) = command.quick(*tail, "--json").out.splitlines()
    assert json.loads(line)["sequence"] == 3
    assert command.quick_json("stream", "consumers") == {
        "stream": "stream",
        "consumers": [
            {"durable_name": "billing", "subject": "orders", "last_sequence": 2, "new_messages": 1}
        ],
    }
    assert command.quick("stream", "consumers", "images").out == "nobody has read stream by name\n"


def test_tail_prints_what_comes(command):
    with penstock.open(command.store) as store:
        stream = store.stream("stream")
        stream.publish("orders", b"before")
        running = command.start("stream", "tail", "--from", "1", "--limit", "2")
        assert running.stdout.readline().endswith(b"before\n")
        stream.publish("images", b"after")
        out, err = running.communicate()
    assert (running.returncode, out.split(b"  ")[-1], err) == (0, b"after\n", b"")


def test_a_position_is_shown_set_and_forgotten(command):
    for _ in range(3):
        command.quick("stream", "publish", "orders")
    position = ("stream", "position", "billing", "orders")
    assert command.quick(*position).out == "billing in orders: 0, 3 new messages\n"
    ended = command.quick(*position, "2")
    assert (ended.code, ended.err.splitlines()[-1]) == (1, "nothing was changed; --yes answers for you")
    assert command.quick(*position, "2", "--yes").out == "billing in orders: 2, 1 new message\n"
    assert command.quick_json(*position)["last_sequence"] == 2
    assert command.quick(*position, "--forget", "--yes").out.startswith("billing in orders: 0,")
    assert command.quick_json("stream", "consumers")["consumers"] == []


def test_lifetimes_are_chosen_and_shown(command):
    command.quick("stream", "publish", "orders")
    assert command.quick("stream", "ttl").out == "stream: TTL off, 1d by default, looked at every 1h\n"
    chosen = command.quick_json(
        "stream", "ttl", "--enable", "--default", "2d", "--channel", "progress.*=10m", "--yes"
    )
    assert chosen == {
        "stream": "stream", "enabled": True, "default_ttl": 172800.0, "check_interval": 3600.0,
        "channels": {"progress.*": 600.0},
    }  # fmt: skip
    assert "  progress.*: 10m\n" in command.quick("stream", "ttl").out
    assert command.quick_json("stream", "ttl", "--clean", "--yes")["deleted"] == 0
    assert command.quick_json("stream", "ttl", "--disable")["enabled"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish", "", "x"), "the subject is empty"),
        (("publish", "orders", "x", "--header", "nothing"), "not NAME=VALUE"),
        (("publish", "orders", "--file", "missing"), "there is no file missing"),
        (("publish", "orders", "x", "--file", "missing"), "both give a body"),
        (("get", "9"), "has no message 9"),
        (("get", "1", "--json", "-o", "-"), "both write to stdout"),
        (("list", "a*b"), "a star only ends a pattern"),
        (("tail", "--ack"), "--ack needs a consumer"),
        (("ttl", "--enable", "--disable"), "give one of them"),
        (("ttl", "--default", "0s", "--yes"), "would let nothing live"),
        (("position", "billing", "orders", "1", "--forget"), "give one of them"),
        (("stats", "--name", "other"), "other"),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback(command, arguments, said):
    command.quick("stream", "publish", "orders", "x")
    ended = command.quick("stream", *arguments)
    assert ended.code == 2, ended
    assert said in ended.err
    assert "Traceback" not in ended.err
