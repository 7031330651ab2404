"""Every codec gives back every value, and takes no bytes for a value that it did not make."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from tests.kit.values import codecs_module as codecs
from tests.require import require

NAMES = ("raw", "gzip", "zstd", "lzop")
contents = st.one_of(
    st.none(),
    st.binary(max_size=200),
    st.builds(lambda part, times: part * times, st.binary(min_size=1, max_size=8), st.integers(0, 5000)),
)


@given(st.sampled_from(NAMES), contents.filter(lambda value: value is not None))
def test_a_codec_gives_back_what_it_packed(name, value):
    stored = codecs.encode(codecs.number_of(name), value)
    assert codecs.decoded(name, stored, topic="t", partition=0, offset=0) == value


@given(st.sampled_from(NAMES[1:]), st.binary(max_size=100), st.booleans())
def test_other_bytes_are_undecodable_and_nothing_worse(name, noise, with_beginning):
    begin = codecs.encode(codecs.number_of(name), b"some value") if with_beginning else b""
    with contextlib.suppress(penstock.Undecodable):
        codecs.decoded(name, begin[:40] + noise, topic="t", partition=0, offset=0)


@pytest.fixture(scope="module")
def store():
    with penstock.open(":memory:") as store:
        yield store


@settings(max_examples=60)
@given(data=st.data())
def test_a_topic_gives_back_every_value_for_all_codecs_compressed_or_not(store, data):
    """Some of them with the single-message call, some in batches, some in Arrow."""
    name = f"t{len(store.topics())}"
    topic = store.create_topic(name, sync="os", compress=data.draw(st.sampled_from([None, "zstd"])))
    expected = []
    for _ in range(data.draw(st.integers(1, 4))):
        codec = data.draw(st.sampled_from(NAMES))
        values = data.draw(st.lists(contents, min_size=1, max_size=5))
        with topic.writer(codec=codec) as writer:
            if data.draw(st.booleans()):
                writer.write_many(values)
            else:
                for value in values:
                    writer.write(value)
        expected += [(codec, value) for value in values]
    assert [(m.codec, m.value) for m in topic.read()] == expected
    assert [topic.get(n).value for n in range(len(expected))] == [value for _, value in expected]
    require("pyarrow")
    table = topic.scan().to_arrow()
    assert list(zip(table["codec"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected
    store.drop_topic(name)
