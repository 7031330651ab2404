"""Spark reads topics whose values are packed, or whose batches are compressed, as any other."""

import pytest

import penstock
from tests.kit.values import codecs_module as codecs
from tests.spark.test_slices import fill, plan, scanned, table

VALUES = [b'{"order": %d, "status": "paid"}' % n * 5 for n in range(300)]


@pytest.fixture
def topic(store):
    """Every codec, in batches and alone, compressed and not, sealed and active."""
    topic = store.create_topic("orders", segment_bytes="16KiB", compress="zstd", sync="os")
    for round in range(4):
        for codec in ("raw", "gzip", "zstd", "lzop"):
            with topic.writer(codec=codec) as writer:
                writer.write_many([*VALUES, None, b""])
            with topic.writer(codec=codec) as writer:
                writer.write(b"alone " * 30, key="k", headers={"codec": codec})
        topic.alter(compress=None if round % 2 == 0 else "zstd")
    fill(topic, 20)
    return topic


def test_slices_equal_a_scan(store, topic):
    """The executors' side: files only."""
    whole = table(plan(store))
    assert whole.num_rows == 4 * 4 * 303 + 20
    assert whole.equals(scanned(topic))
    assert whole["value"].to_pylist() == [m.value for batch in topic.scan() for m in batch]


def test_spark_reads_decoded_values(load, topic):
    frame = load("orders", columns="offset,value,codec")
    counts = {row.codec: row["count"] for row in frame.groupBy("codec").count().collect()}
    assert counts == {"raw": 4 * 303 + 20, "gzip": 4 * 303, "zstd": 4 * 303, "lzop": 4 * 303}
    found = frame.where("codec = 'lzop'").orderBy("offset").limit(303).collect()
    values = [None if row.value is None else bytes(row.value) for row in found]
    assert values == [*VALUES, None, b"", b"alone " * 30]


@pytest.fixture
def unknown(store):
    """A topic with a value that only its writer can unpack."""
    penstock.register_codec(10_007, encode=lambda v: v[::-1], decode=lambda v: v[::-1])
    topic = store.create_topic("odd")
    topic.write(b"plain")
    with topic.writer(codec=10_007) as writer:
        writer.write_many([b"x"])
    codecs._KNOWN.pop(10_007)
    codecs._NUMBERS.pop("10007")
    return topic


def test_a_value_that_cannot_be_unpacked_is_named_when_it_is_asked_for(store, unknown):
    with pytest.raises(penstock.UnknownCodec, match=r"offset 1 of 'odd' partition 0.*codec 10007"):
        table(plan(store, "odd"), "value")
    assert table(plan(store, "odd"), "offset", "codec")["codec"].to_pylist() == ["raw", "10007"]
