"""Values outside the log: they come back as they were, by whichever way they were written and read."""

import asyncio
import io
import os
import pickle
import shutil
import threading
from hashlib import sha256

import pytest

import penstock
from penstock import Payloads
from penstock.errors import (
    BodyMissing,
    Corrupt,
    DataError,
    InvalidOption,
    MessageTooLarge,
    UsageError,
    WrongType,
)
from tests.kit.system import CommandClock
from tests.kit.topics import inside
from tests.payloads.kit import KIB, body, messages, objects, referred, values

A, B, C = body(100 * KIB), body(70 * KIB), body(2000 * KIB)


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data", clock=CommandClock()) as opened:
        yield opened


@pytest.fixture
def address(place):
    """As `payloads=` takes it."""
    return place if place.startswith("s3://") else "files"


@pytest.fixture
def topic(store, address):
    return store.create_topic("images", payloads=address)


@pytest.fixture
def local(store):
    return store.create_topic("images", payloads="files")


def test_large_values_lie_outside_and_small_ones_inside(topic):
    for value in (b"small", A, b"", None, b"x" * 64 * KIB, b"x" * (64 * KIB + 1), C):
        topic.write(value, key="k", headers={"type": "png"})
    found = list(messages(topic))
    assert [m.value for m in found] == [b"small", A, b"", None, b"x" * 64 * KIB, b"x" * (64 * KIB + 1), C]
    assert [m.reference is not None for m in found] == [False, True, False, False, False, True, True]
    assert all(m.headers == {"type": "png"} and m.key == b"k" for m in found)
    reference = found[1].reference
    assert (reference.size, reference.sha256, reference.codec) == (len(A), sha256(A).digest(), 1)
    assert objects(topic) == sorted(referred(topic))
    assert len(objects(topic)) == 3


def test_every_way_of_writing(topic, store, tmp_path):
    path = tmp_path / "image"
    path.write_bytes(A)
    topic.write(path)
    with path.open("rb") as file:
        topic.write(file)
    topic.write_many([A, b"x", B, None, path, C])
    with topic.writer(codec="gzip") as writer:
        writer.write(A)
        writer.write(path, headers={"a": "b"})
        writer.write_many([B, "text"])
    with store.transaction() as tx:
        tx.write("images", A)
        tx.write(topic, path)
        tx.write_many("images", [B, b"y", C])

    async def write():
        async with penstock.aio.open(store.path) as other:
            there = await other.topic("images")
            await asyncio.gather(*(there.write(value) for value in (A, B, path)))
            async with there.writer() as writer:
                await writer.write(A)
                await writer.write(path)
            async with other.transaction() as tx:
                await tx.write("images", A)
                await tx.write("images", path)

    asyncio.run(write())
    wanted = [A, A, A, b"x", B, None, A, C, A, A, B, b"text", A, A, B, b"y", C]
    assert values(topic)[: len(wanted)] == wanted
    assert sorted(values(topic)[len(wanted) :]) == sorted([A, B, A, A, A, A, A])
    assert objects(topic) == sorted(referred(topic))


def test_every_way_of_reading(topic, store):
    topic.write_many([A, B, b"x"], keys=["a", "b", "c"])
    assert [m.value for m in topic.read()] == [A, B, b"x"]
    assert topic.get(1).value == B
    assert topic.scan().to_arrow()["value"].to_pylist() == [A, B, b"x"]
    assert topic.read().to_arrow()["value"].to_pylist() == [A, B, b"x"]
    with topic.reader(consumer="c", follow=False) as reader:
        assert [m.value for m in reader] == [A, B, b"x"]
    assert [m.open().read() for m in messages(topic)] == [A, B, b"x"]
    with topic.get(1).open() as file:
        assert file.seek(5) == 5
        assert file.read(7) == B[5:12]
    travelled = pickle.loads(pickle.dumps(topic.get(0)))
    assert (travelled.value, travelled) == (A, topic.get(0))


def test_looking_at_a_message_fetches_nothing(local):
    local.write(A, key="k")
    inside(local).bodies._present().delete(objects(local))
    message = local.get(0)
    assert (message.key, message.reference.size) == (b"k", len(A))
    assert message.reference.name in repr(message)
    with pytest.raises(BodyMissing, match="offset 0 of 'images' partition 0"):
        _ = message.value


def test_typed_values_and_codecs_lie_outside_too(store, address):
    topic = store.create_topic("typed", payloads=Payloads(place=address, above="1KiB"), type=dict, codecs=())
    order = {"lines": ["x" * 100] * 100}
    topic.write(order)
    with topic.writer(codec="zstd") as writer:
        writer.write({"noise": body(3000).hex()})
    first, second = messages(topic)
    assert first.value == order
    assert len(second.value["noise"]) == 6000
    assert second.reference.codec == 4
    assert first.open().read(9) == b'{"lines":'
    assert second.open().read(10) == b'{"noise":"'
    assert store.topic("typed").get(0).value.startswith(b'{"lines":')


def test_small_bodies_written_together_share_an_object(store, address):
    topic = store.create_topic("small", payloads=Payloads(place=address, above=0, pack="1KiB"), partitions=2)
    sent = [body(100 + number) for number in range(200)]
    topic.write_many(sent, partition=0)
    assert len(objects(topic)) == 1
    assert values(topic) == sent
    topic.write(body(2 * KIB), partition=0)
    assert len(objects(topic)) == 2
    with topic.writer(linger="10s") as writer:
        for value in sent:
            writer.write(value, partition=1)
    assert len(objects(topic)) == 3
    assert values(topic)[201:] == sent
    assert topic.get(150).open().read() == sent[150]
    assert topic.get(7, partition=1).reference.is_packed
    topic.write_many(sent, keys=[str(n) for n in range(200)])
    assert len(objects(topic)) == 5  # one for each partition: a pack never lies across


def test_a_name_is_part_of_the_bodys(topic):
    topic.write(b"small", name="images/cat.png")
    topic.write("text", name="../../" + "x" * 900)
    first, second = messages(topic)
    assert first.reference.name.endswith("/images/cat.png")
    assert (first.value, second.value) == (b"small", b"text")
    topic.write(b"other", name="images/cat.png")
    assert topic.get(0).value == b"small"
    with pytest.raises(InvalidOption):
        topic.write(b"x", name="")


def test_an_empty_file_and_a_small_one_lie_inside(local, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "small").write_bytes(b"small")
    local.write(tmp_path / "empty")
    local.write(tmp_path / "small")
    local.write(io.BytesIO(b""))
    local.write(b"", name="empty")
    assert values(local) == [b"", b"small", b"", b""]
    assert [m.reference is not None for m in messages(local)] == [False, False, False, True]
    local.write(None)
    with pytest.raises(UsageError, match="tombstone"):
        local.get(4).open()


def test_duplicates_leave_no_body(topic):
    for _ in range(2):
        with topic.writer(producer_id="camera") as writer:
            for number in range(3):
                writer.write(A if number else C, seqno=number)
    with topic.writer(producer_id="camera") as writer:
        writer.write_many([A, B], seqnos=[2, 3])
    assert values(topic) == [C, A, A, B]
    assert set(referred(topic)) == set(objects(topic))


def test_what_is_rolled_back_leaves_no_body(topic, store, tmp_path):
    (tmp_path / "image").write_bytes(C)
    tx = store.transaction()
    tx.write("images", A)
    tx.write("images", tmp_path / "image")
    tx.write_many("images", [A, B, C])
    tx.rollback()
    assert objects(topic) == values(topic) == []


def test_what_fails_leaves_no_body(local, tmp_path):
    (tmp_path / "image").write_bytes(C)
    for write in (
        lambda: local.write(tmp_path / "image", partition=7),
        lambda: local.write(tmp_path / "image", headers={1: "x"}),
        lambda: local.write(tmp_path / "image", key="x" * 5000),
        lambda: local.write(A, headers={1: "x"}),
        lambda: local.write(tmp_path / "image", delay="1s"),
        lambda: local.write(tmp_path),
    ):
        with pytest.raises((UsageError, OSError)):
            write()
    assert objects(local) == []


def test_limits(store, tmp_path):
    topic = store.create_topic(
        "limited", payloads=Payloads(max_body="1MiB", above="1KiB"), max_message_bytes="2KiB"
    )
    (tmp_path / "large").write_bytes(C)
    for value in (C, tmp_path / "large", io.BytesIO(C)):
        with pytest.raises(MessageTooLarge):
            topic.write(value)
    topic.write(A)
    with pytest.raises(MessageTooLarge):
        topic.write(A, delay="1s")  # until it is due it lies in a file of messages
    assert objects(topic) == list(referred(topic))
    plain = store.create_topic("plain")
    with pytest.raises(WrongType, match="payloads"):
        plain.write(tmp_path / "large")
    with pytest.raises(InvalidOption, match="payloads"):
        plain.write(b"x", name="x")


def test_a_delayed_value_goes_outside_when_it_is_due(local):
    local.write(A, delay="1ms")
    with local.reader(start="earliest") as reader:
        message = reader.receive(timeout=60)
    assert message.value == A
    assert message.reference is not None


def test_a_changed_body_is_named(topic):
    topic.write(A, headers={"type": "png"})
    [name] = objects(topic)
    inside(topic).bodies._present().put(name, A[:-1] + b"\0" if A[-1] else A[:-1] + b"\1")
    message = topic.get(0)
    with pytest.raises(Corrupt, match=name):
        _ = message.value
    with pytest.raises(Corrupt, match=name), message.open() as file:
        file.read()
    inside(topic).bodies._present().put(name, A[:-1])
    with pytest.raises(Corrupt):
        _ = topic.get(0).value
    with pytest.raises(DataError):
        topic.scan().to_arrow()
    assert message.headers == {"type": "png"}


def test_the_place_may_change_and_old_bodies_are_found(store, s3, tmp_path):
    topic = store.create_topic("moving", payloads="files")
    topic.write(A)
    with penstock.open(store.path, clock=CommandClock()) as other:
        there = other.topic("moving")
        topic.alter(payloads=s3.table())
        topic.write(B)
        assert [m.value for m in there.read()] == [A, B]  # it learns of the new place when it meets it
    topic.alter(payloads=None)
    topic.write(b"x" * 100_000)
    assert topic.get(2).reference is None
    with pytest.raises(MessageTooLarge):
        topic.write(C)
    with pytest.raises(WrongType):
        topic.write(tmp_path / "x")
    topic.alter(payloads="files")
    topic.write(C)
    assert values(store.topic("moving")) == [A, B, b"x" * 100_000, C]
    assert len(objects(topic)) == 3


def test_options_are_told_and_compared(store):
    store.create_topic("a", payloads="files")
    store.create_topic("a", payloads="files", exists_ok=True)
    store.create_topic("a", payloads=Payloads(above="64KiB"), exists_ok=True)
    with pytest.raises(InvalidOption, match="payloads"):
        store.create_topic("a", payloads="s3://bucket", exists_ok=True)
    for wrong in (
        "ftp://x",
        "",
        5,
        "s3://a:b@c/d",
        {"above": "x"},
        {"place": "files", "options": {"a": "b"}},
    ):
        with pytest.raises((InvalidOption, WrongType)):
            store.create_topic("b", payloads=wrong)
    with pytest.raises(InvalidOption, match="secret"):
        Payloads(place="s3://bucket", options={"secret_access_key": "x"})


def test_retried_and_dead_messages_keep_their_bodies(store):
    topic = store.create_topic("jobs", payloads=Payloads(above="1KiB"))
    sent = [A, C]
    topic.write_many(sent)

    policy = penstock.Retry(attempts=2, first="1ms")
    with topic.reader(consumer="worker", retry=policy) as reader:
        for _ in range(4):  # two attempts of two messages
            message = reader.receive(timeout=60)
            assert message.value == sent[message.offset]
            reader.retry(message, error="again")
    letters = list(store.dead_letters("jobs").list())
    assert len(letters) == 2
    topic.alter(retention="1ms")
    while objects(topic):
        topic.vacuum()
    assert objects(topic) == []
    assert sorted(len(letter.message.value) for letter in letters) == sorted(map(len, sent))


def test_partitions_added_during_a_transaction_take_bodies_apart(store):
    topic = store.create_topic("growing", payloads=Payloads(above=0))
    sent = {str(number).encode(): body(1000) for number in range(50)}
    with store.transaction() as tx:
        tx.write_many("growing", list(sent.values()), keys=list(sent))
        tx._staging[topic.id].finish()
        with penstock.open(store.path, clock=CommandClock()) as other:
            other.topic("growing").alter(partitions=3)
    found = list(messages(topic))
    assert {m.key: m.value for m in found} == sent
    by_object = {}
    for message in found:
        by_object.setdefault(message.reference.name, set()).add(message.partition)
    assert all(len(partitions) == 1 for partitions in by_object.values())
    assert {m.partition for m in found} == {0, 1, 2}


def test_many_writers_while_one_reads(topic):
    """W000-1: an offset is given behind the body, so a reader that follows never misses one."""
    sent, seen = [], []

    def write(number):
        for turn in range(4):
            value = bytes([number]) + os.urandom((number * 37 + turn * 61) % 200 * KIB)
            sent.append(value)
            topic.write(value)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    with topic.reader(consumer="c") as reader:
        [thread.start() for thread in threads]
        while len(seen) < 32:
            message = reader.receive(timeout=60)
            assert message.offset == len(seen)
            seen.append(message.value)
            reader.commit(message)
    [thread.join() for thread in threads]
    assert sorted(seen) == sorted(sent)
    assert set(objects(topic)) == referred(topic)


def test_messages_are_found_by_key(store):
    topic = store.create_topic("keyed", payloads=Payloads(above="1KiB"), index="key")
    topic.write_many([A, B, C], keys=["a", "b", "a"])
    assert topic.latest("a").value == C
    assert [m.value for m in topic.read(key="a")] == [A, C]
    assert topic.scan(key="b").to_arrow()["value"].to_pylist() == [B]


def test_packs_are_read_in_any_order(store, address):
    topic = store.create_topic("small", payloads=Payloads(place=address, above=0))
    sent = [body(1 + number * 7) for number in range(300)]
    topic.write_many(sent)
    for number in (299, 0, 150, 149, 151, 152, 1, 298, 299, 0):
        assert topic.get(number).value == sent[number]
    assert values(topic) == sent


def test_a_copy_of_a_store_has_bodies_of_its_own(store, tmp_path):
    topic = store.create_topic("images", payloads="files", retention="1d")
    topic.write(A)
    shutil.copytree(store.path, tmp_path / "copy")
    with penstock.open(tmp_path / "copy", clock=CommandClock()) as copy:
        other = copy.topic("images")
        assert values(other) == [A]
        other.alter(retention="0s")
        assert other.vacuum().bodies == 1
        assert objects(other) == []
        assert values(topic) == [A]


def test_partitions_added_meanwhile_leave_no_body_behind(store):
    topic = store.create_topic("growing", payloads=Payloads(above="1KiB"))
    topic.write_many([A, B], keys=["a", "b"])
    with penstock.open(store.path, clock=CommandClock()) as other:
        other.topic("growing").alter(partitions=4)
    sent = {str(number).encode(): body(2 * KIB) for number in range(20)}
    topic.write_many(list(sent.values()), keys=list(sent))  # is told, and routes again
    found = list(messages(topic))
    assert {m.key: m.value for m in found if m.key in sent} == sent
    assert len({m.partition for m in found}) == 4
    assert set(objects(topic)) == referred(topic)
