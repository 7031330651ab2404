"""Codecs: each value is packed by the writer, its codec is stored, and readers get the value back."""

import copy
import gzip
import pickle
import subprocess
import sys
import zlib

import pytest
from msgspec import UNSET

import penstock
from penstock import Message
from tests.kit.patience import PATIENCE_S
from tests.kit.values import LazyMessage, limits_module
from tests.kit.values import codecs_module as codecs
from tests.require import require

BUILT_IN = ("raw", "gzip", "zstd", "lzop")
TEXT = b'{"customer": 7, "paid": true}' * 40


@pytest.fixture
def topic(store):
    return store.create_topic("orders")


@pytest.fixture
def shout():
    """A codec of one's own, known while the test runs."""
    calls = []
    penstock.register_codec(
        10_001,
        encode=lambda value: value[::-1],
        decode=lambda stored: calls.append(stored) or stored[::-1],
    )
    yield calls
    codecs._KNOWN.pop(10_001, None)
    codecs._NUMBERS.pop("10001", None)


def write(topic, codec, *values, **options):
    with topic.writer(codec=codec, **options) as writer:
        for number, value in enumerate(values):
            writer.write(value, key=f"k{number}")


@pytest.mark.parametrize("codec", BUILT_IN)
def test_the_codec_is_stored_with_the_message_and_told_on_read(topic, codec):
    """S001-50, S001-53. A tombstone stays one, and differs from an empty value."""
    write(topic, codec, TEXT, b"", None)
    messages = topic.read().messages()
    assert [m.value for m in messages] == [TEXT, b"", None]
    assert [m.key for m in messages] == [b"k0", b"k1", b"k2"]
    assert {m.codec for m in messages} == {codec}
    assert [topic.get(n).value for n in range(3)] == [TEXT, b"", None]
    assert next((m.text, m.codec) for m in topic.reader(follow=False)) == (TEXT.decode(), codec)


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
def test_the_client_packs_and_the_log_holds_the_packed_bytes(topic, codec):
    """S001-51: per message."""
    write(topic, codec, TEXT, TEXT)
    for message in topic.read():
        assert message.stored == codecs.encode(codecs.number_of(codec), TEXT)
        assert len(message.stored) < len(TEXT)
    assert topic.stats().bytes < len(TEXT)


def test_others_can_unpack_what_is_stored(topic):
    write(topic, "gzip", TEXT)
    assert gzip.decompress(topic.get(0).stored) == TEXT


def test_several_gzip_members_are_one_value():
    stored = gzip.compress(b"one ") + gzip.compress(b"two")
    assert codecs.decoded("gzip", stored, topic="t", partition=0, offset=0) == b"one two"


def test_messages_of_different_codecs_live_side_by_side(topic, store):
    for codec in (*BUILT_IN, *BUILT_IN):
        write(topic, codec, codec.encode() * 100)
    topic.write(b"plain")
    expected = [(each, each.encode() * 100) for each in (*BUILT_IN, *BUILT_IN)] + [("raw", b"plain")]
    assert [(m.codec, m.value) for m in topic.read()] == expected


def test_write_many_packs_too(topic):
    with topic.writer(codec="zstd", headers={"from": "shop"}) as writer:
        writer.write_many([TEXT, None, "text"], keys=["a", None, "c"], headers=[{"n": "1"}, None, None])
    assert [(m.key, m.value, m.codec, dict(m.headers)) for m in topic.read()] == [
        (b"a", TEXT, "zstd", {"from": "shop", "n": "1"}),
        (None, None, "zstd", {"from": "shop"}),
        (b"c", b"text", "zstd", {"from": "shop"}),
    ]


def test_a_batch_or_scan_of_one_codec_is_written_with_another(topic, store):
    write(topic, "lzop", TEXT, None)
    other = store.create_topic("copy")
    with other.writer(codec="zstd") as writer:
        writer.write_many(topic.read())
        writer.write_many(topic.scan())
    other.write_many(topic.read())
    assert [(m.value, m.codec) for m in other.read()] == [
        (TEXT, "zstd"), (None, "zstd"), (TEXT, "zstd"), (None, "zstd"), (TEXT, "raw"), (None, "raw"),
    ]  # fmt: skip


def test_headers_of_the_writer_and_of_the_message_are_merged(topic):
    """S001-11; where both have one, the message's counts."""
    with topic.writer(codec="zstd", headers={"session": "s1", "kind": "a"}) as writer:
        writer.write(b"x")
        writer.write(b"y", headers={"kind": "b", "more": b"\0"})
    assert [dict(m.headers) for m in topic.read()] == [
        {"session": "s1", "kind": "a"},
        {"session": "s1", "kind": "b", "more": b"\0"},
    ]


# Looking without unpacking.


def test_headers_and_keys_are_read_without_unpacking_the_value(topic, shout):
    """S001-10: a reader decides by headers; only what it wants is unpacked, and only once."""
    with topic.writer(codec=10_001, headers={"kind": "big"}) as writer:
        writer.write_many([b"one", b"two"], keys=["a", "b"])
    with topic.reader(consumer="c", follow=False) as reader:
        batch = reader.receive_batch()
        assert [(m.key, m.headers["kind"], m.codec, m.offset) for m in batch] == [
            (b"a", "big", "10001", 0),
            (b"b", "big", "10001", 1),
        ]
        reader.commit(batch)
    assert shout == []
    assert (batch[1].value, batch[1].value) == (b"two", b"two")
    assert shout == [b"owt"]


def test_arrow_unpacks_only_when_the_value_is_asked_for(topic, shout):
    require("pyarrow")
    write(topic, 10_001, b"one", b"two")
    assert topic.scan(columns=["offset", "key", "codec"]).to_arrow().to_pylist() == [
        {"offset": 0, "key": b"k0", "codec": "10001"},
        {"offset": 1, "key": b"k1", "codec": "10001"},
    ]
    assert shout == []
    assert topic.read().to_arrow()["value"].to_pylist() == [b"one", b"two"]
    assert topic.scan().to_arrow()["value"].to_pylist() == [b"one", b"two"]


@pytest.mark.parametrize("codec", BUILT_IN)
def test_arrow_tells_values_and_codecs(topic, codec):
    require("pyarrow")
    write(topic, codec, TEXT, b"", None)
    table = topic.read().to_arrow()
    assert table["value"].to_pylist() == [TEXT, b"", None]
    assert table["codec"].to_pylist() == [codec] * 3
    with topic.reader(follow=False) as reader:
        assert reader.receive().value == TEXT
        assert reader.receive_batch().to_arrow()["value"].to_pylist() == [b"", None]


def test_a_packed_message_behaves_like_any_other(topic):
    write(topic, "zstd", TEXT, b"other", None)
    first, second, third = topic.read()
    assert isinstance(first, penstock.Message)
    for again in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first)), topic.get(0)):
        assert again == first
        assert again.value == TEXT
    assert first != second
    assert second != third
    assert third == topic.get(2)
    assert repr(first).startswith("Message(topic='orders'")
    assert f"value={TEXT!r}" in repr(first)
    plain = penstock.Message(*(getattr(first, name) for name in penstock.Message.__struct_fields__))
    assert pickle.loads(pickle.dumps(plain)) == plain == first
    assert first == plain
    with pytest.raises(AttributeError):
        first.value = b"changed"


def test_messages_are_equal_when_their_values_are():
    """Not when only their packed bytes are, and an empty value is no tombstone."""

    def message(value, codec="zstd", stored=None):
        kind, body = (Message, value) if stored is None else (LazyMessage, stored)
        return kind("t", 0, 5, None, body, 1, 2, {}, None, None, None, codec, 1)

    packed = codecs.encode(codecs.ZSTD, b"value")
    assert message(UNSET, stored=packed) == message(b"value")
    assert message(UNSET, stored=packed) == message(
        UNSET, stored=codecs.encode(codecs.ZSTD, b"val") + codecs.encode(codecs.ZSTD, b"ue")
    )
    assert message(UNSET, stored=packed) != message(packed)
    assert message(b"", "raw", stored=b"") != message(None, "raw")
    unknown = message(UNSET, "10099", stored=b"?")
    assert unknown == copy.copy(unknown)
    assert unknown != "a message"


# What a topic allows.


def test_a_writer_with_a_codec_that_is_not_allowed_is_refused_when_it_is_opened(store):
    """S001-52, B001-07; nothing is written."""
    topic = store.create_topic("picky", codecs=("raw", "zstd", 10_001))
    assert topic.options.codecs == ("raw", "zstd", "10001")
    with pytest.raises(penstock.InvalidOption, match=r"gzip is not allowed.*raw, zstd, 10001"):
        topic.writer(codec="gzip")
    write(topic, "zstd", TEXT)
    topic.write(b"raw is fine")
    assert [m.codec for m in topic.read()] == ["zstd", "raw"]


def test_without_raw_in_the_list_plain_writing_is_refused(store):
    topic = store.create_topic("packed", codecs=["zstd"])
    for call in (lambda: topic.write(b"x"), lambda: topic.write_many([b"x"]), topic.writer):
        with pytest.raises(penstock.InvalidOption, match=r"raw is not allowed.*zstd"):
            call()
    assert topic.stats().messages == 0


def test_the_list_can_be_changed_and_is_kept(store, open_store, clock):
    topic = store.create_topic("picky", codecs=["raw"])
    with pytest.raises(penstock.InvalidOption, match="gzip is not allowed"):
        topic.writer(codec="gzip")
    topic.alter(codecs=["gzip", "raw"])
    write(topic, "gzip", TEXT)
    store.close()
    again = open_store(clock=clock)
    assert again.topic("picky").options.codecs == ("raw", "gzip")
    again.create_topic("picky", codecs=["gzip", "raw"], exists_ok=True)  # the order says nothing
    with pytest.raises(penstock.InvalidOption, match="codecs"):
        again.create_topic("picky", codecs=["raw"], exists_ok=True)
    again.topic("picky").alter(codecs=())
    write(again.topic("picky"), "zstd", TEXT)


@pytest.mark.parametrize("codec", ["brotli", 5, 20_000, "", "-1"])
def test_a_codec_that_nobody_knows_is_refused(topic, codec):
    with pytest.raises(penstock.InvalidOption, match="not known"):
        topic.writer(codec=codec)


def test_a_codec_that_is_not_registered_here_is_refused_when_the_writer_is_opened(topic):
    with pytest.raises(penstock.InvalidOption, match=r"10002 is not registered.*register_codec\(10002"):
        topic.writer(codec=10_002)


# Codecs of one's own.


def test_a_codec_of_ones_own(topic, shout):
    """B001-07: 10000 to 19999, by number or as text."""
    write(topic, 10_001, b"abc", None)
    write(topic, "10001", b"def")
    assert [(m.codec, m.value) for m in topic.read()] == [
        ("10001", b"abc"),
        ("10001", None),
        ("10001", b"def"),
    ]
    assert topic.get(0).stored == b"cba"


def test_a_codec_may_have_a_name_in_this_process(topic, store, shout):
    penstock.register_codec(10_001, encode=zlib.compress, decode=zlib.decompress, name="deflate")
    try:
        write(topic, "deflate", TEXT)
        assert (topic.get(0).codec, topic.get(0).value) == ("deflate", TEXT)
        named = store.create_topic("named", codecs=["deflate"])
        assert named.options.codecs == ("10001",)  # names do not last, numbers do
        write(named, 10_001, TEXT)
    finally:
        codecs._NUMBERS.pop("deflate", None)


@pytest.mark.parametrize(
    ("number", "options", "error"),
    [
        (1, {}, penstock.InvalidOption),
        (9_999, {}, penstock.InvalidOption),
        (20_000, {}, penstock.InvalidOption),
        ("10001", {}, penstock.WrongType),
        (10_003, {"name": "zstd"}, penstock.InvalidOption),
        (10_003, {"name": "10004"}, penstock.InvalidOption),
        (10_003, {"name": ""}, penstock.InvalidOption),
        (10_003, {"name": 7}, penstock.WrongType),
        (10_003, {"encode": None}, penstock.WrongType),
    ],
)
def test_a_registration_that_makes_no_sense(number, options, error):
    with pytest.raises(error):
        penstock.register_codec(number, **{"encode": bytes, "decode": bytes, **options})
    assert 10_003 not in codecs._KNOWN


def test_a_codec_that_fails_to_encode_stores_nothing(topic, shout):
    penstock.register_codec(10_001, encode=lambda value: "text", decode=bytes)
    with topic.writer(codec=10_001) as writer:
        with pytest.raises(penstock.WrongType, match="10001 encoded a value to str"):
            writer.write(b"x")
        with pytest.raises(penstock.WrongType, match="10001"):
            writer.write_many([b"x", b"y"])
    assert topic.stats().messages == 0


# What cannot be unpacked.

WRITE_ELSEWHERE = """
import sys, penstock
penstock.register_codec(10_005, encode=lambda v: v.hex().encode(), decode=lambda b: bytes.fromhex(b.decode()))
with penstock.open(sys.argv[1]) as store:
    with store.topic("orders").writer(codec=10_005) as writer:
        writer.write(b"secret", key="k", headers={"h": "x"})
"""


def test_a_codec_that_is_not_known_here_is_an_error_for_that_message_only(store, topic):
    """Not a hang, not the end of reading: the reader goes on and commits."""
    topic.write(b"before")
    subprocess.run([sys.executable, "-c", WRITE_ELSEWHERE, store.path], check=True, timeout=PATIENCE_S)
    topic.write(b"behind")
    got = []
    with topic.reader(consumer="c", follow=False) as reader:
        for message in reader:
            try:
                got.append(message.value)
            except penstock.UnknownCodec as error:
                got.append(error)
            reader.commit(message)
    assert (got[0], got[2]) == (b"before", b"behind")
    error = got[1]
    assert isinstance(error, penstock.Undecodable)
    assert isinstance(error, penstock.DataError)
    assert (error.topic, error.partition, error.offset, error.codec) == ("orders", 0, 1, "10005")
    assert "offset 1 of 'orders' partition 0" in str(error)
    assert "register_codec(10005" in str(error)
    assert topic.consumers()[0].lag == 0
    message = topic.get(1)
    assert (message.codec, message.key, dict(message.headers)) == ("10005", b"k", {"h": "x"})
    assert message.stored == b"736563726574"
    assert "cannot be decoded" in repr(message)
    assert pickle.loads(pickle.dumps(message)).stored == message.stored
    require("pyarrow")
    with pytest.raises(penstock.UnknownCodec, match="offset 1 of 'orders' partition 0"):
        topic.read().to_arrow()
    assert topic.scan(columns=["offset", "codec"]).to_arrow()["codec"].to_pylist() == ["raw", "10005", "raw"]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
@pytest.mark.parametrize("spoil", [lambda b: b[:-3], lambda b: b"", lambda b: b"x" + b[1:], lambda b: b[:20]])
def test_bytes_that_the_codec_did_not_make_are_an_error_for_that_message_only(
    topic, codec, spoil, monkeypatch
):
    number = codecs.number_of(codec)
    known = codecs._KNOWN[number]
    monkeypatch.setitem(codecs._KNOWN, number, known._replace(encode=lambda v: spoil(known.encode(v))))
    write(topic, codec, TEXT)
    monkeypatch.undo()
    write(topic, codec, TEXT)
    bad, good = topic.read()
    with pytest.raises(penstock.Undecodable, match=f"offset 0 of 'orders' partition 0.*{codec}"):
        _ = bad.value
    assert good.value == TEXT


def test_a_library_that_is_missing_says_how_to_install_it(topic, monkeypatch):
    write(topic, "zstd", TEXT)

    def missing():
        raise penstock.MissingExtra("zstd", "codecs")

    monkeypatch.setattr(codecs.zstd, "library", missing)
    monkeypatch.setattr(codecs.zstd, "_contexts", missing)
    with pytest.raises(penstock.UnknownCodec, match=r'pip install "penstock\[codecs\]"'):
        _ = topic.get(0).value
    with pytest.raises(penstock.MissingExtra, match=r'pip install "penstock\[codecs\]"'):
        topic.writer(codec="zstd")


# Sizes.


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
def test_the_limit_is_for_what_is_stored(store, codec):
    topic = store.create_topic("small", max_message_bytes=1000)
    with pytest.raises(penstock.MessageTooLarge):
        topic.write(b"x" * 5000)
    noise = bytes(hash((n, "seed")) & 0xFF for n in range(3000))
    with topic.writer(codec=codec) as writer:
        writer.write(b"x" * 5000)
        with pytest.raises(penstock.MessageTooLarge, match="limit of 1000"):
            writer.write(noise)
        with pytest.raises(penstock.MessageTooLarge, match="limit of 1000"):
            writer.write_many([b"fine", noise])
        writer.write(b"after")
    assert [m.value for m in topic.read()] == [b"x" * 5000, b"after"]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lzop"])
def test_a_value_that_would_fill_the_memory_is_refused(topic, codec, monkeypatch):
    write(topic, codec, bytes(4_000_000))
    monkeypatch.setattr(limits_module, "DECODED_BYTES_MAX", 1_000_000)
    with pytest.raises(penstock.Undecodable, match="more than 1000000 bytes"):
        _ = topic.get(0).value


def test_repacking_keeps_codecs_and_values(store, clock):
    topic = store.create_topic("events", sync="os", segment_age="1h")
    for number in range(300):
        write(topic, BUILT_IN[number % 4], b"%d " % number * 20)
    before = [(m.offset, m.key, m.value, m.stored, m.codec) for m in topic.read()]
    size = topic.stats().bytes
    clock.advance("2h")
    topic.write(b"next")
    assert store.flush_housekeeping()
    assert topic.stats().bytes < size
    assert [(m.offset, m.key, m.value, m.stored, m.codec) for m in topic.read()][:-1] == before
    assert [topic.get(n).value for n in range(300)] == [row[2] for row in before]
    require("pyarrow")
    assert topic.scan().to_arrow()["value"].to_pylist()[:-1] == [row[2] for row in before]
