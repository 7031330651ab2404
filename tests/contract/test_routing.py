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


# Groups and producers: bindings (S001-33 to 35).


def partition_of(topic, **how):
    with topic.writer(**how) as writer:
        writer.write(b"v")
        return writer.flush()[0].partition


def test_a_group_stays_in_one_partition(topic):
    """S001-34: at first use in turn, then always the same, whatever the key."""
    chosen = {group: topic.write(b"v", group=group).partition for group in ("a", "b", "c", "d")}
    assert sorted(chosen.values()) == [0, 0, 1, 2]
    for group, partition in chosen.items():
        assert {topic.write(b"v", group=group, key=key).partition for key in ("x", "y", "z", "w")} == {
            partition
        }
        with topic.writer(group=group) as writer:
            writer.write_many([b"v"] * 3, keys=["x", "y", "z"])
            assert {r.partition for r in writer.flush()} == {partition}
    messages = topic.read()
    assert {m.group for m in messages} == set(chosen)
    assert all(m.producer_id is None and m.seqno is None for m in messages)


def test_groups_of_single_messages_win_over_the_writers(topic):
    with topic.writer(group="writers") as writer:
        for _ in range(2):
            writer.write(b"own", group="own", key="k")
            writer.write(b"writers", key="k")
        writer.flush()
    found = {m.text: (m.group, m.partition) for m in topic.read()}
    assert {text: group for text, (group, _) in found.items()} == {"own": "own", "writers": "writers"}
    assert found["own"][1] != found["writers"][1]
    assert len({(m.text, m.partition) for m in topic.read()}) == 2


def test_pairs_of_producer_and_group_are_bound_apart(topic):
    """S001-33: a pair is what has an order, and what is bound."""
    pairs = [("p", None), ("q", None), ("p", "g"), ("q", "g"), (None, "g"), ("p", "h")]
    chosen = [partition_of(topic, producer_id=p, group=g) for p, g in pairs]
    assert sorted(chosen) == [0, 0, 1, 1, 2, 2]
    assert chosen == [partition_of(topic, producer_id=p, group=g) for p, g in pairs]


def test_a_producers_messages_with_keys_go_by_their_keys(topic):
    with topic.writer(producer_id="p") as writer:
        for number in range(12):
            writer.write(b"v", key=f"key-{number}")
        receipts = {r.partition for r in writer.flush()}
    assert receipts == {0, 1, 2}


def test_an_explicit_partition_wins_over_group_and_producer(topic):
    with topic.writer(producer_id="p", group="g") as writer:
        for number in (2, 0, 1):
            writer.write(b"v", key="k", partition=number)
            assert writer.flush()[0].partition == number


def test_bindings_survive_a_restart_and_are_forgotten_after_14_idle_days(open_store, clock):
    """S001-35."""
    store = open_store(clock=clock)
    topic = store.create_topic("orders", partitions=3, sync="os")
    bound = topic.write(b"v", group="g").partition
    store.close()
    topic = open_store(clock=clock).topic("orders")
    for _ in range(4):
        clock.advance("13d")
        assert topic.write(b"v", group="g").partition == bound
    clock.advance("14d")
    assert topic.write(b"v", group="g").partition == (bound + 1) % 3
    clock.advance("13d")
    assert topic.write(b"v", group="g").partition == (bound + 1) % 3


def test_a_topic_of_one_partition_keeps_no_bindings(store):
    topic = store.create_topic("single", sync="os")
    topic.write(b"v", group="g")
    assert partition_of(topic, producer_id="p") == 0
    inner = getattr(store, "_target", store)
    database = getattr(inner, "blocking", inner)._database
    assert database.rows("SELECT count(*) FROM bindings") == [(0,)]


def test_who_wrote_to_the_only_partition_stays_there_when_others_are_added(store):
    topic = store.create_topic("grown", sync="os")
    with topic.writer(producer_id="old") as writer:
        writer.write_many([b"1", b"2"], seqnos=[1, 2])
    topic.alter(partitions=4)
    for producer in ("a", "b", "c"):
        partition_of(topic, producer_id=producer)
    with topic.writer(producer_id="old") as writer:
        writer.write_many([b"2", b"3"], seqnos=[2, 3])
        receipts = list(writer.flush())
    assert [(r.partition, r.duplicate) for r in receipts] == [(0, True), (0, False)]


def test_two_processes_bind_alike(open_store, clock):
    """A binding made by one is the other's too, also when it knows of fewer partitions."""
    one, other = open_store(clock=clock), open_store(clock=clock)
    here = one.create_topic("orders", partitions=2, sync="os")
    there = other.topic("orders")
    there.write(b"v", group="first")
    here.alter(partitions=5)
    chosen = {f"g{i}": here.write(b"v", group=f"g{i}").partition for i in range(8)}
    assert {group: there.write(b"v", group=group).partition for group in chosen} == chosen
    assert set(chosen.values()) == {0, 1, 2, 3, 4}


# A partitioner of the user's own.


def test_a_partitioner_of_ones_own(store):
    """S001-38: even account ids go to one instance, odd ones to the other."""
    topic = store.create_topic("accounts", partitions=2, sync="os")
    with topic.writer(partitioner=lambda key, partitions: int(key) % partitions) as writer:
        for account in range(10):
            writer.write(b"v", key=str(account))
        writer.write_many([b"v"] * 2, keys=["10", "11"])
        writer.write(b"v", key="13", partition=0)
        writer.flush()
    found = {int(m.key): m.partition for m in topic.read()}
    assert found == {**{account: account % 2 for account in range(12)}, 13: 0}


@pytest.mark.parametrize("answer", [3, -1, "1", None, True, 1.0])
def test_a_partitioners_wrong_answer_is_refused_before_anything_is_written(topic, answer):
    with topic.writer(partitioner=lambda key, partitions: answer) as writer:
        with pytest.raises(penstock.InvalidOption, match="chose"):
            writer.write(b"v", key="k")
        with pytest.raises(penstock.InvalidOption, match="chose"):
            writer.write_many([b"v"], keys=["k"])
        writer.write(b"no key, no question")
    assert topic.stats().messages == 1


def test_a_partitioner_is_a_function(topic):
    with pytest.raises(penstock.WrongType):
        topic.writer(partitioner="range")
