"""An object's name is its key: what we put under a name any other client finds, and the other way round.

S000-04, S000-26, S000-27. The other client is Arrow's, which is nothing of ours; for a folder it is `open`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import penstock
import penstock.aio
from penstock.errors import BodyMissing, DataError
from tests.kit.bodies import FileBodies
from tests.tarantool import tarantool_server

#: Names that a bucket and a folder can hold as they are.
NAMES = [
    "minio/orders/2024/11/18/12345.json", "cat.png", "a b", "ünï/çödé.txt", "100%.csv", "a=b/c=d", "x%20y",
    "a:b", "a#b", "~tilde", "[brackets]", "{x}", "q?x=1&y=2", "a+b", ".hidden/.file", "trailing.", "a|b", "*",
]  # fmt: skip
#: Names that one of them cannot hold, and that are found by us all the same.
ODD = ["a//b", "/absolute", "folder/", "../outside", "a/./b", "line\nbreak", "x" * 700, "%tmp/x", "%long/y"]


class Folder:
    """A folder as anybody sees it."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)

    def put(self, name: str, data: bytes) -> None:
        path = Path(self.address, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def get(self, name: str) -> bytes:
        return Path(self.address, name).read_bytes()

    def delete(self, name: str) -> None:
        Path(self.address, name).unlink()


class Bucket:
    """A bucket as Arrow's client for S3 sees it."""

    def __init__(self, server) -> None:
        from pyarrow.fs import S3FileSystem

        options = server.options
        self.address = server.table("objects")
        self._inside = self.address.removeprefix("s3://")
        self._client = S3FileSystem(
            endpoint_override=server.endpoint.removeprefix("http://"), scheme="http", region="us-east-1",
            access_key=options["AWS_ACCESS_KEY_ID"], secret_key=options["AWS_SECRET_ACCESS_KEY"],
        )  # fmt: skip

    def put(self, name: str, data: bytes) -> None:
        with self._client.open_output_stream(f"{self._inside}/{name}") as file:
            file.write(data)

    def get(self, name: str) -> bytes:
        with self._client.open_input_stream(f"{self._inside}/{name}") as file:
            return file.read()

    def delete(self, name: str) -> None:
        self._client.delete_file(f"{self._inside}/{name}")


@pytest.fixture(params=["folder", "s3"])
def others(request, tmp_path):
    """Somebody else who uses the place where bodies lie."""
    return (
        Folder(tmp_path / "objects") if request.param == "folder" else Bucket(request.getfixturevalue("s3"))
    )


@pytest.fixture(scope="session")
def tarantool():
    with tarantool_server() as server:
        yield server


@pytest.fixture(params=["embedded", "tarantool"])
def stream(request, tmp_path, others):
    with penstock.open(tmp_path / "store") as store:
        if request.param == "embedded":
            yield store.stream("shop", bodies=others.address)
            return
        server = request.getfixturevalue("tarantool")
        with penstock.Tarantool(
            server.host, server.port, user=server.user, password=server.password,
            prefix=f"named{os.urandom(4).hex()}_",
        ) as engine:  # fmt: skip
            engine.install()
            yield store.stream("shop", engine=engine, bodies=others.address)


def test_what_we_store_under_a_name_others_find_there(stream, others):
    for name in NAMES:
        stream.publish("orders", name.encode(), object_name=name)
    rows = stream.get_messages_by_subject("orders", 1, 100)
    assert [row[2] for row in rows] == NAMES
    for row, message in zip(rows, stream.messages("orders"), strict=True):
        assert others.get(row[2]) == message.data == row[2].encode()
        with stream.open_object(row[2]) as body:
            assert body.read() == row[2].encode()


def test_what_others_stored_under_a_name_we_find_there(stream, others):
    for name in NAMES:
        others.put(name, name.encode())
        stream.publish_message("orders", name)
    assert [message.data for message in stream.messages("orders")] == [name.encode() for name in NAMES]
    with stream.open_object("minio/orders/2024/11/18/12345.json") as body:
        assert body.read() == b"minio/orders/2024/11/18/12345.json"


def test_large_bodies_and_files_lie_there_too(stream, others, tmp_path):
    data = os.urandom(20_000_000)
    (tmp_path / "large").write_bytes(data)
    stream.publish("images", tmp_path / "large", object_name="large/1.bin")
    stream.publish_many([penstock.Publication("images", data[:100_000], {"a": "b"}, "large/2.bin")])
    assert others.get("large/1.bin") == data
    assert others.get("large/2.bin") == data[:100_000]
    assert [message.data for message in stream.messages("images")] == [data, data[:100_000]]


def test_an_empty_body_under_a_name_is_an_object_too(stream, others):
    stream.publish("orders", object_name="empty/object")
    assert others.get("empty/object") == b""


def test_names_that_the_place_cannot_hold_are_found_by_us(stream):
    for name in ODD:
        stream.publish("orders", name.encode(), object_name=name)
    assert [row[2] for row in stream.get_all_messages(1, 100)] == ODD
    assert [message.data for message in stream.messages()] == [name.encode() for name in ODD]


def test_a_name_within_another_name(stream):
    """A bucket holds both; a folder cannot have a file and a folder of one name, so one lies elsewhere."""
    for name in ("a", "a/b", "a/b/c", "x/y/z", "x/y", "x"):
        stream.publish("orders", name.encode(), object_name=name)
    assert [message.text for message in stream.messages()] == ["a", "a/b", "a/b/c", "x/y/z", "x/y", "x"]


def test_names_of_our_own_making_can_be_opened(stream, others):
    """`orders_2` says which message it is of, wherever its body lies."""
    first = stream.publish("orders", b"small")
    second = stream.publish("with_underscore", os.urandom(200_000))
    for row in stream.get_all_messages(1, 10):
        with stream.open_object(row[2]) as body:
            assert body.read() == stream.get(row[0]).data
    assert {first, second} == {1, 2}
    for name in ("orders_9", "others_1", "nothing", "orders_", "orders_-1", "orders_0", "orders_" + "9" * 30):
        with pytest.raises(BodyMissing):
            stream.open_object(name)


def test_whoever_removes_the_object_removes_the_body_and_nothing_else(stream, others):
    stream.publish("orders", b"1", object_name="gone")
    stream.publish("orders", b"2", object_name="kept")
    others.delete("gone")
    first, second = stream.messages("orders")
    with pytest.raises(DataError):
        first.data  # noqa: B018
    assert second.data == b"2"


def test_bodies_that_an_older_version_stored_are_read(tmp_path):
    """They lie under escaped names: `images=/cat.png` for `images/cat.png`."""
    folder = tmp_path / "objects"
    for name in ("images/cat.png", "a=b", "x" * 700, "plain"):
        FileBodies(str(folder)).put(name, name.encode())
    assert (folder / "images=" / "cat.png").is_file()
    with penstock.open(tmp_path / "store") as store:
        stream = store.stream("shop", bodies=folder)
        for name in ("images/cat.png", "a=b", "x" * 700, "plain"):
            stream.publish_message("orders", name)
        for message in stream.messages():
            assert message.text == message.object_name


def test_a_body_named_in_the_log_itself_can_be_opened_without_a_place(tmp_path):
    with penstock.open(tmp_path) as store:
        stream = store.stream("shop")
        stream.publish("orders", b"older", object_name="cats/tom.png")
        stream.publish("orders", b"newer", object_name="cats/tom.png")
        with stream.open_object("cats/tom.png") as body:
            assert body.read() == b"newer"


def test_coroutines_store_bodies_under_their_names_too(tmp_path):
    async def publish() -> bytes:
        async with await penstock.aio.open(tmp_path / "store") as store:
            stream = await store.stream("shop", bodies=tmp_path / "objects")
            await stream.publish("orders", b"body", object_name="a/b")
            with await stream.open_object("a/b") as body:
                return body.read()

    assert asyncio.run(publish()) == b"body" == (tmp_path / "objects" / "a" / "b").read_bytes()


def test_without_obstore_the_missing_extra_is_named_and_nothing_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with penstock.open(tmp_path) as store:
        for make in (
            lambda: store.create_topic("a", payloads="s3://bucket/prefix"),
            lambda: store.create_topic("b", payloads=penstock.Payloads(place="s3://bucket/prefix")),
            lambda: store.stream("c", payloads="s3://bucket/prefix"),
            lambda: store.stream("d", bodies="s3://bucket/prefix"),
        ):
            with pytest.raises(penstock.MissingExtra, match=r'pip install "penstock\[s3\]"'):
                make()
        assert store.topics() == []
        topic = store.create_topic("files", payloads="files")
        with pytest.raises(penstock.MissingExtra, match=r"penstock\[s3\]"):
            topic.alter(payloads="s3://bucket/prefix")
        assert topic.options.payloads.place == "files"
    assert [path.name for path in (tmp_path / "topics").iterdir()] == ["files"]


def test_a_topic_whose_bodies_cannot_be_reached_here_says_why(tmp_path, monkeypatch):
    """Made where obstore is, opened where it is not: what lies in the log is read."""
    with penstock.open(tmp_path) as store:
        store.create_topic("a", payloads="s3://bucket/prefix").write(b"small")
    monkeypatch.setitem(sys.modules, "obstore", None)
    with penstock.open(tmp_path) as store:
        assert [message.value for message in store.topic("a").read()] == [b"small"]
        with pytest.raises(penstock.MissingExtra, match=r"penstock\[s3\]"):
            store.topic("a").write(bytes(100_000))
        assert store.topic("a").stats().messages == 1
