"""What people do with a store, to be killed anywhere: how it begins, what is done, and what must hold then.

`python -m tests.crash.operations NAME FOLDER CALLS` does it with files that kill the process behind so many
calls that change something.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import penstock
from penstock.errors import AlreadyCommitted, AlreadyExists
from tests.exchange.diskq_files import all_files, write_folder
from tests.exchange.diskq_files import rows as diskq_rows
from tests.kit.lethal_files import lethal_files
from tests.kit.stores import backup, backups, restore
from tests.kit.values import copy_topic

VALUES = [b"%d" % number for number in range(30)]
KEYS = [f"key-{number % 7}" for number in range(30)]


class Operation(NamedTuple):
    """Each part is called with a folder; the store is in `store`."""

    begin: Callable[[Path], None]
    do: Callable[[Path, penstock.Files], None]
    #: Raises unless nothing is lost, nothing is twice, and one can go on.
    check: Callable[[Path], None]
    #: In the quick tests, each call so many behind the last one is tried.
    stride: int = 1


def values_of(topic):
    return sorted(message.value for message in topic.scan().messages())


def places_of(topic):
    return [(m.partition, m.offset, m.key, m.value) for m in topic.scan().messages()]


def nothing(folder):
    pass


def filled(folder, **options):
    with penstock.open(folder / "store") as store:
        topic = store.create_topic("orders", partitions=2, **options)
        topic.write_many(VALUES, keys=KEYS)
        topic.add_consumer("billing")


def goes_on(store, before=VALUES):
    """All is there, more can be written, and a consumer reads all of it once."""
    topic = store.topic("orders")
    topic.write_many(VALUES, keys=KEYS)
    assert values_of(topic) == sorted([*before, *VALUES])
    with topic.reader(consumer="billing", follow=False) as reader:
        assert sorted(message.value for message in reader) == values_of(topic)


# Topics.


def create(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.create_topic("orders", partitions=3)


def check_created(folder):
    with penstock.open(folder / "store") as store:
        store.create_topic("orders", partitions=3, exists_ok=True)
        goes_on(store, before=[])


def drop(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.drop_topic("orders")


def check_dropped(folder):
    with penstock.open(folder / "store") as store:
        if store.topics():
            assert values_of(store.topic("orders")) == sorted(VALUES)
            store.drop_topic("orders")
        assert list((folder / "store" / "topics").iterdir()) == []
        topic = store.create_topic("orders")
        assert topic.consumers() == []
        goes_on(store, before=[])


def add_partitions(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.topic("orders").alter(partitions=4, retention="9d")


def check_added(folder):
    with penstock.open(folder / "store") as store:
        store.topic("orders").alter(partitions=4)
        goes_on(store)


def split(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.topic("orders").split(0)


def check_going_on(folder):
    with penstock.open(folder / "store") as store:
        goes_on(store)


def trim(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.topic("orders").delete_before({0: 5, 1: 3})


def check_trimmed(folder):
    with penstock.open(folder / "store") as store:
        topic = store.topic("orders")
        topic.delete_before({0: 5, 1: 3})
        assert [each.start for each in topic.stats().partitions] == [5, 3]
        assert len(values_of(topic)) == len(VALUES) - 8


# Segments.


def begin_segments(folder):
    with penstock.open(folder / "store") as store:
        write_numbers(store.create_topic("orders", segment_bytes="64KiB", index="key"), range(100))


def write_numbers(topic, numbers):
    for number in numbers:
        topic.write(b"%03d" % number + bytes(900), key=f"key-{number % 5}")


def roll(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        write_numbers(store.topic("orders"), range(100, 150))
        store.flush_housekeeping()


def check_rolled(folder):
    with penstock.open(folder / "store") as store:
        topic = store.topic("orders")
        topic.write(b"999")  # whoever appends shows what was written before it
        store.flush_housekeeping()
        *numbers, last = (int(value[:3]) for value in values_of(topic))
        assert last == 999
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 100
        keyed = [int(m.value[:3]) for m in topic.scan(key="key-3").messages()]
        assert keyed == [number for number in numbers if number % 5 == 3]


# Several topics, and what waits.


def begin_transaction(folder):
    filled(folder)
    with penstock.open(folder / "store") as store:
        store.create_topic("totals")


def commit(folder, files):
    with penstock.open(folder / "store", files=files) as store, store.transaction(name="once") as tx:
        tx.write("orders", b"a", key="q")
        tx.write("totals", b"b")
        tx.write("orders", b"c", key="r")


def check_committed(folder):
    def found(store):
        orders, totals = (values_of(store.topic(name)) for name in ("orders", "totals"))
        return sorted({b"a", b"c"} & set(orders)) + totals

    with penstock.open(folder / "store") as store:
        seen = found(store)
        assert seen in ([], [b"a", b"c", b"b"])
        try:
            commit(folder, penstock.Files())
        except AlreadyCommitted:
            pass
        else:
            assert seen == []
        assert found(store) == [b"a", b"c", b"b"]
        assert len(values_of(store.topic("orders"))) == len(VALUES) + 2


def begin_alone(folder):
    with penstock.open(folder / "store") as store:
        store.create_topic("orders")


def delay(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        topic = store.topic("orders")
        for number in range(3):
            topic.write(b"%d" % number, delay="1ms")
        with topic.writer() as writer:
            for number in range(3, 6):
                writer.write(b"%d" % number, delay="1ms")
        time.sleep(0.002)
        store.flush_housekeeping()


def check_delayed(folder):
    with penstock.open(folder / "store") as store:
        topic = store.topic("orders")
        topic.write(b"last", delay="1ms")
        while b"last" not in values_of(topic):
            store.flush_housekeeping()
        found = values_of(topic)
        assert set(found) <= {b"0", b"1", b"2", b"3", b"4", b"5", b"last"}


def begin_dead(folder):
    filled(folder)
    with (
        penstock.open(folder / "store") as store,
        store.topic("orders").reader(consumer="billing", follow=False) as reader,
    ):
        for number, message in enumerate(reader):
            if number < 3:
                reader.reject(message, "cannot be read")
            else:
                reader.commit(message)


def replay_dead(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.dead_letters("orders").replay()


def check_replayed(folder):
    with penstock.open(folder / "store") as store:
        store.dead_letters("orders").replay()
        assert store.dead_letters("orders").list() == []
        with store.topic("orders").reader(consumer="billing", follow=False) as reader:
            assert len({message.value for message in reader}) == 3


# Streams.


def begin_stream(folder):
    with penstock.open(folder / "store") as store:
        stream = store.stream("images")
        for number in range(10):
            stream.publish_message(f"cats.{number % 3}", f"body/{number}", {"n": str(number)})


def use_stream(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        stream = store.stream("images")
        stream.publish_message("cats.0", "body/new", {})
        stream.update_consumer_position("viewer", "cats.0", 3)
        stream.delete_old_messages(0)


def check_stream(folder):
    with penstock.open(folder / "store") as store:
        stream = store.stream("images")
        sequence = stream.publish_message("cats.1", "body/after", {})
        assert sequence in (11, 12)
        assert stream.get_message_by_sequence(sequence) is not None
        assert stream.get_consumer_position("viewer", "cats.0") in (0, 3)
        stream.delete_old_messages(0)
        assert stream.get_messages_by_subject("cats.1", 1, 100) == []


# In and out.


def copy(folder, files):
    with penstock.open(folder / "store") as store, penstock.open(folder / "other", files=files) as other:
        copy_topic(store.topic("orders"), other, "orders", consumers=True)


def check_copied(folder):
    with penstock.open(folder / "store") as store, penstock.open(folder / "other") as other:
        source = store.topic("orders")
        try:
            made = copy_topic(source, other, "orders", consumers=True).topic
        except AlreadyExists:  # it was whole already
            made = other.topic("orders")
        assert places_of(made) == places_of(source)
        assert [each.consumer for each in made.consumers()] == ["billing"]


def begin_diskq(folder):
    segments = [{0: diskq_rows(5), 5: diskq_rows(4)}, {3: diskq_rows(2)}]
    write_folder(folder / "diskq", segments, groups={"billing": {0: 1}})


def take_diskq(folder, files):
    with penstock.open(folder / "store", files=files) as store:
        store.import_diskq(folder / "diskq", topic="orders")


def check_diskq(folder):
    with penstock.open(folder / "store") as store:
        try:
            topic = store.import_diskq(folder / "diskq", topic="orders")
        except AlreadyExists:  # it was whole already
            topic = store.topic("orders")
        assert len(values_of(topic)) == 11
        topic.export_diskq(folder / "again")
    assert all_files(folder / "again") == all_files(folder / "diskq")


def back_up(folder, files):
    backup(folder / "store", folder / "backup", files=files)


def check_backup(folder):
    if (folder / "backup").exists() and backups(folder / "backup"):
        restore(folder / "backup", folder / "killed")
        with penstock.open(folder / "killed") as store:
            goes_on(store)
    backup(folder / "store", folder / "backup")
    restore(folder / "backup", folder / "again")
    with penstock.open(folder / "again") as store:
        goes_on(store)


OPERATIONS = {
    "create": Operation(nothing, create, check_created),
    "drop": Operation(filled, drop, check_dropped),
    "add_partitions": Operation(filled, add_partitions, check_added, 3),
    "split": Operation(lambda folder: filled(folder, autopartitioning="paused"), split, check_going_on, 3),
    "trim": Operation(filled, trim, check_trimmed),
    "roll": Operation(begin_segments, roll, check_rolled, 11),
    "commit": Operation(begin_transaction, commit, check_committed),
    "delay": Operation(begin_alone, delay, check_delayed, 3),
    "replay_dead": Operation(begin_dead, replay_dead, check_replayed, 3),
    "use_stream": Operation(begin_stream, use_stream, check_stream, 3),
    "copy": Operation(filled, copy, check_copied),
    "take_diskq": Operation(begin_diskq, take_diskq, check_diskq, 5),
    "back_up": Operation(filled, back_up, check_backup),
}

if __name__ == "__main__":
    OPERATIONS[sys.argv[1]].do(Path(sys.argv[2]), lethal_files(int(sys.argv[3])))
