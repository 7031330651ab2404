"""Values outside the log, by the command line."""

import os

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.topics import inside


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG" + os.urandom(3_000_000))
    return path


def test_a_file_goes_in_and_comes_out_as_it_was(cli, image):
    made = cli.quick_json("topic", "create", "images", "--payloads", "files", "--payloads-above", "1KiB")
    assert made["after"]["payloads"]["above"] == 1024
    cli.ok("write", "images", "--file", str(image), "--key", "cat", "-H", "type=image/png")
    cli.quick("write", "images", "small")
    assert cli.quick("read", "images", "--limit", "1", "--format", "raw").raw == image.read_bytes() + b"\n"
    first, second = cli.quick("read", "images", "--json").json_lines()
    assert first["body"]["bytes"] == image.stat().st_size
    assert (first["key"], first["headers"], first["value_encoding"]) == (
        "cat",
        {"type": "image/png"},
        "base64",
    )
    assert second["value"] == "small"
    assert "body" not in second
    assert "files, above 1" in cli.quick("topic", "show", "images").out


def test_options_are_altered_one_by_one(cli):
    cli.quick("topic", "create", "images", "--payloads", "s3://bucket/images")
    after = cli.quick_json("topic", "alter", "images", "--payloads-above", "1MiB")["after"]["payloads"]
    assert (after["place"], after["above"]) == ("s3://bucket/images", 2**20)
    after = cli.quick_json("topic", "alter", "images", "--payloads", "files")["after"]["payloads"]
    assert (after["place"], after["earlier"]) == ("files", [["s3://bucket/images", []]])
    assert "no more" in cli.quick("topic", "alter", "images", "--payloads", "none").out
    for wrong in (
        ("topic", "create", "other", "--payloads-above", "1KiB"),
        ("topic", "create", "other", "--payloads", "ftp://x"),
        ("topic", "alter", "images", "--payloads", "none", "--payloads-above", "1KiB"),
    ):
        assert cli.quick(*wrong).code == 2


def test_a_large_file_needs_payloads(cli, image):
    cli.quick("topic", "create", "plain")
    ended = cli.quick("write", "plain", "--file", str(image))
    assert ended.code == 2
    assert "--payloads" in ended.err
    small = image.with_name("small")
    small.write_bytes(b"a\nb\n")
    cli.quick("write", "plain", "--file", str(small))
    with penstock.open(cli.store, create=False) as store:
        assert store.topic("plain").get(0).value == b"a\nb\n"
    assert cli.quick("write", "plain", "x", "--file", str(small)).code == 2


def test_verify_and_vacuum_tell_of_bodies(cli, image):
    cli.quick("topic", "create", "images", "--payloads", "files")
    cli.quick("write", "images", "--file", str(image))
    cli.quick("write", "images", "--file", str(image))
    assert cli.quick("verify", "--payloads").code == 0
    with penstock.open(cli.store, create=False) as store:
        topic = store.topic("images")
        [bodies] = inside(topic).bodies.stores().values()
        name = topic.get(1).reference.name
        bodies.delete([name])
    assert cli.quick("verify").code == 0
    ended = cli.quick("verify", "--payloads")
    assert ended.code == 3
    assert f"body {name!r}" in ended.out
    assert "(offset 1)" in ended.out
    cli.quick("topic", "alter", "images", "--retention", "0s")
    gone = cli.quick_json("vacuum")
    assert (gone["messages"], gone["bodies"], gone["bodies_left"]) == (2, 1, 0)
