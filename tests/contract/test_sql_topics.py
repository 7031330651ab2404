"""CREATE, ALTER and DROP TOPIC, in YDB's words (S001-29)."""

import pytest

import penstock


def consumers(topic):
    return {each.consumer: each for each in topic.consumers()}


def test_create_topic_makes_it_with_options_and_consumers(store):
    made = store.sql(
        "CREATE TOPIC orders (CONSUMER plain, CONSUMER billing WITH (important = true))\n"
        "WITH (min_active_partitions = 2, retention_period = Interval('PT12H'),\n"
        "      supported_codecs = 'RAW, GZIP')"
    )
    assert (made.defined.topic, made.defined.outcome) == ("orders", "created")
    topic = store.topic("orders")
    assert topic.options.partitions == 2
    assert topic.options.retention_s == 12 * 3600
    assert topic.options.codecs == ("raw", "gzip")
    assert {name: each.important for name, each in consumers(topic).items()} == {
        "plain": False, "billing": True,
    }  # fmt: skip


def test_create_takes_our_own_words_too(store):
    store.sql(
        "create topic t with (index = 'key', sync = 'os', segment_bytes = '1MiB', max_message_bytes = 1000)"
    )
    options = store.topic("t").options
    assert (options.index, options.sync, options.segment_bytes, options.max_message_bytes) == (
        "key", "os", 2**20, 1000,
    )  # fmt: skip


def test_if_not_exists_and_if_exists_change_nothing(store):
    store.sql("create topic t with (retention_period = Interval('P1D'))")
    again = store.sql("create topic if not exists t (consumer c) with (retention_period = Interval('P2D'))")
    assert again.defined.outcome == "unchanged"
    assert store.topic("t").options.retention_s == 86400
    assert consumers(store.topic("t")) == {}
    with pytest.raises(penstock.AlreadyExists):
        store.sql("create topic t")
    assert store.sql("drop topic if exists nothing").defined.outcome == "unchanged"
    with pytest.raises(penstock.UnknownTopic):
        store.sql("drop topic nothing")


def test_alter_sets_and_resets_options(store):
    store.sql("create topic t with (retention_period = Interval('P1D'), retention_storage_mb = 5)")
    store.sql("alter topic t set (min_active_partitions = 3), reset (retention_period)")
    options = store.topic("t").options
    assert (options.partitions, options.retention_s, options.max_bytes) == (3, None, 5 * 2**20)


def test_alter_adds_changes_and_drops_consumers(store):
    store.sql("create topic t (consumer a, consumer b with (availability_period = Interval('P1D')))")
    store.sql(
        "alter topic t add consumer c with (important = true), alter consumer a set (important = true)"
        " alter consumer b reset (availability_period)"
    )
    found = consumers(store.topic("t"))
    assert {name: each.important for name, each in found.items()} == {"a": True, "b": False, "c": True}
    assert found["b"].availability_period_s is None
    store.sql("alter topic t drop consumer a, drop consumer b")
    assert set(consumers(store.topic("t"))) == {"c"}


def test_drop_topic_removes_it(store):
    store.create_topic("t").write("x")
    assert store.sql("drop topic t").defined.outcome == "dropped"
    assert store.topics() == []


@pytest.mark.parametrize(
    "text",
    [
        "alter topic t set (min_active_partitions = 2), drop consumer nobody",
        "alter topic t add consumer c, set (min_active_partitions = 2), add consumer c",
        "alter topic t set (min_active_partitions = 2), set (min_active_partitions = 3)",
        "alter topic t add consumer c set (metering_mode = 'x')",
        "alter topic t drop consumer there, alter consumer nobody set (important = true)",
    ],
)
def test_a_statement_of_which_a_part_is_wrong_does_nothing(store, text):
    store.sql("create topic t (consumer there)")
    with pytest.raises(penstock.InvalidSql):
        store.sql(text)
    topic = store.topic("t")
    assert topic.options.partitions == 1
    assert set(consumers(topic)) == {"there"}


def test_a_store_that_is_only_read_is_not_changed(open_store):
    open_store().close()
    store = open_store(read_only=True)
    with pytest.raises(penstock.ReadOnly):
        store.sql("create topic t")


def test_quotas_are_set_in_sql(store):
    """S001-13, S001-18."""
    store.sql(
        "create topic t (consumer c with (read_speed = 1000, read_burst = '2KiB')) with ("
        "partition_write_speed_bytes_per_second = 9000, partition_write_burst_bytes = 100500,"
        "write_quota = true)"
    )
    topic = store.topic("t")
    options = topic.options
    assert (options.partition_write_speed, options.partition_write_burst, options.write_quota) == (
        9000, 100_500, True,
    )  # fmt: skip
    assert [(each.read_speed, each.read_burst) for each in topic.consumers()] == [(1000, 2048)]
    store.sql(
        "alter topic t reset (partition_write_speed_bytes_per_second, partition_write_burst_bytes)"
        " alter consumer c set (read_speed = 5)"
    )
    assert store.topic("t").options.write_limit == (2**20, 2**20)


def test_autopartitioning_is_switched_by_alter(store):
    """S001-29, S001-30: on, paused, on again, and never off."""
    store.sql(
        "create topic t with (auto_partitioning_strategy = 'scale_up', min_active_partitions = 2,"
        "max_active_partitions = 8, auto_partitioning_stabilization_window = Interval('PT1M'),"
        "auto_partitioning_up_utilization_percent = 50)"
    )
    options = store.topic("t").options
    assert (options.autopartitioning, options.partitions, options.max_partitions) == ("up", 2, 8)
    assert (options.stabilization_window_s, options.up_utilization_percent) == (60, 50)
    store.sql("alter topic t set (auto_partitioning_strategy = 'paused')")
    assert store.topic("t").options.autopartitioning == "paused"
    store.sql("alter topic t set (auto_partitioning_strategy = 'scale_up')")
    assert store.topic("t").options.autopartitioning == "up"
    with pytest.raises(penstock.UsageError):
        store.sql("alter topic t set (auto_partitioning_strategy = 'disabled')")
    assert store.topic("t").options.autopartitioning == "up"
