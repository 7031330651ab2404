"""Which partition a message goes to, and what order that keeps."""

import pytest

import penstock


@pytest.fixture
def topic(store):
    return store.create_topic("orders", partitions=3, sync="os")


def test_a_key_always_chooses_the_same_partition(topic):
    """S004-04, S001-05."""
    for key in ("a", "b", "c", "", "größe"):
        assert len({topic.write(b"v", key=key).partition for _ in range(3)}) == 1
        assert topic.write_many([b"v"], keys=[key])[0].partition == topic.write(b"v", key=key).partition


def test_the_choice_is_the_same_in_every_version(topic):
    """Keys would lose their order if it ever changed."""
    chosen = [topic.write(b"v", key=f"key-{i}").partition for i in range(12)]
    assert chosen == [0, 1, 1, 1, 1, 1, 1, 0, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("partitioner", "chosen"),
    [
        # FNV-1 of "", "a", "foobar" is 0x811c9dc5, 0x050c5d7e, 0x31f0b262 (B004-06).
        ("diskq", {"": 0x811C9DC5 % 3, "a": 0x050C5D7E % 3, "foobar": 0x31F0B262 % 3}),
        # Kafka's own test values of murmur2: "21" -973932308, "foobar" -790332482, "abc" 479470107.
        (
            "kafka",
            {
                "21": (-973932308 & 0x7FFFFFFF) % 3,
                "foobar": (-790332482 & 0x7FFFFFFF) % 3,
                "abc": 479470107 % 3,
            },
        ),
    ],
)
def test_other_systems_choices_can_be_had_by_name(store, partitioner, chosen):
    topic = store.create_topic("shared", partitions=3, partitioner=partitioner, sync="os")
    assert {key: topic.write(b"v", key=key).partition for key in chosen} == chosen


def test_an_explicit_partition_wins_over_the_key(topic):
    receipts = [topic.write(b"v", key="a", partition=number) for number in range(3)]
    receipts += topic.write_many([b"v"] * 2, keys=["a", "b"], partition=2)
    with topic.writer() as writer:
        writer.write(b"v", key="a", partition=1)
        receipts += writer.flush()
    assert [r.partition for r in receipts] == [0, 1, 2, 2, 2, 1]


def test_messages_without_a_key_take_turns(topic):
    assert sorted(topic.write(b"v").partition for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_a_partition_that_is_not_there_is_refused(topic):
    for number in (3, -1):
        with pytest.raises(penstock.InvalidOption):
            topic.write(b"v", partition=number)
        with pytest.raises(penstock.InvalidOption):
            topic.write_many([b"v"], partition=number)
        with topic.writer() as writer, pytest.raises(penstock.InvalidOption):
            writer.write(b"v", partition=number)
    assert topic.stats().messages == 0


def test_each_key_keeps_its_order(topic):
    """S001-02, S001-06."""
    keys = [f"key-{i % 7}" for i in range(700)]
    with topic.writer() as writer:
        for number, key in enumerate(keys):
            writer.write(str(number), key=key)
    seen: dict[bytes, list[int]] = {}
    with topic.reader(follow=False) as reader:
        for message in reader:
            seen.setdefault(message.key, []).append(int(message.value))
    assert {key.decode(): numbers for key, numbers in seen.items()} == {
        f"key-{i}": list(range(i, 700, 7)) for i in range(7)
    }
