"""Frames: what goes in comes out, in Python and in Arrow, whole and in parts.

None and b"" are different, as keys and as values; so are an absent and an empty key.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.frames import (
    COMPRESSED,
    RAW,
    SEAL,
    EncodedFrame,
    FrameRows,
    ProducerStamp,
    control,
    encode,
    read_head,
    rows_that_fit,
)
from tests.kit.frames import frame_module as frame
from tests.kit.values import NO_HEADERS
from tests.kit.values import codecs_module as packers
from tests.require import module

SALT = 0xABCD1234
NUMBERS = (packers.RAW, packers.GZIP, packers.LZOP, packers.ZSTD)
times = st.integers(-(2**63), 2**63 - 1)
#: What Arrow can show as a datetime.
shown_times = st.integers(-(2**62), 2**62)
contents = st.one_of(st.none(), st.just(b""), st.binary(max_size=40))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
headers = st.one_of(
    st.none(), st.dictionaries(texts, st.one_of(texts, st.binary(max_size=8)), min_size=1, max_size=3)
)
producers = st.builds(
    ProducerStamp,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    st.one_of(st.none(), st.text("abc", min_size=1, max_size=5)),
    st.integers(0, 2**32 - 1),
)


def a_column(draw, elements, count):
    return draw(st.lists(elements, min_size=count, max_size=count))


@st.composite
def batches(draw):
    """The arguments of `encode`, and the messages that should come back as (key, value, …) tuples."""
    count = draw(st.integers(1, 20))
    values = a_column(draw, contents, count)
    keys = draw(
        st.one_of(st.none(), st.just([None] * count), st.lists(contents, min_size=count, max_size=count))
    )
    created = draw(times)
    columns = {"created": created}
    stamps = written = None
    if draw(st.booleans()):
        stamps = columns["timestamps"] = a_column(draw, times, count)
    if draw(st.booleans()):
        written = columns["written"] = a_column(draw, times, count)
    given_headers = [None] * count
    if draw(st.booleans()):
        given_headers = columns["headers"] = a_column(draw, headers, count)
    who, seqnos = [None] * count, [None] * count
    if draw(st.booleans()):
        if draw(st.booleans()):
            one = draw(producers)
            first = draw(st.integers(0, 2**40))
            steps = a_column(draw, st.sampled_from([1, 1, 1, 5]), count)
            seqnos = [first + sum(steps[1 : n + 1]) for n in range(count)]
            who = [one] * count
            columns["producer"] = (one, seqnos)
        else:
            who = a_column(draw, st.one_of(st.none(), producers), count)
            seqnos = [draw(st.integers(0, 2**62)) if each is not None else None for each in who]
            columns["producers"] = (who, seqnos)
    codec = draw(st.sampled_from(NUMBERS))
    codecs = [codec] * count
    columns["codec"] = codec
    if draw(st.booleans()):
        codecs = columns["codecs"] = a_column(draw, st.sampled_from(NUMBERS), count)
    columns["compress"] = draw(st.booleans())
    return values, keys, columns, stamps, written, given_headers, who, seqnos, codecs


def packed(values, codecs):
    """Values as a writer with these codecs stores them."""
    return [
        None if value is None else packers.encode(number, value)
        for value, number in zip(values, codecs, strict=True)
    ]


def stored(draft: EncodedFrame, base: int, written_at: int) -> frame.Frame:
    """The frame as it is read back from the bytes of a segment, in the middle of others."""
    header = draft.header(base=base, written_at=written_at, synced=64, salt=SALT)
    data = memoryview(b"before.." + header + bytes(draft.body) + b"behind..")
    assert len(header) + len(draft.body) == draft.size
    assert draft.size % 8 == 0
    head = read_head(data, 8)
    assert head is not None
    assert (head.size, head.base, head.salt, head.written_at) == (draft.size, base, SALT, written_at)
    found = frame.read_frame(data, 8, head)
    assert found.check_body()
    return found


@given(batches(), st.integers(0, 2**62), times, st.data())
def test_a_frame_gives_back_every_column_of_every_message(batch, base, written_at, data):
    values, keys, columns, stamps, written, given_headers, who, seqnos, codecs = batch
    found = stored(encode(packed(values, codecs), keys, **columns), base, written_at)
    count = len(values)
    first = data.draw(st.integers(0, count - 1))
    stop = data.draw(st.integers(first + 1, count))
    messages = FrameRows("orders", 7, found, first, stop).messages()
    assert [m.offset for m in messages] == list(range(base + first, base + stop))
    assert {(m.topic, m.partition) for m in messages} == {("orders", 7)}
    assert [m.stored for m in messages] == packed(values, codecs)[first:stop]
    assert [m.value for m in messages] == values[first:stop]
    assert [m.key for m in messages] == (keys or [None] * count)[first:stop]
    assert [m.timestamp for m in messages] == (stamps or [columns["created"]] * count)[first:stop]
    assert [m.headers for m in messages] == [each or NO_HEADERS for each in given_headers[first:stop]]
    assert [m.producer_id for m in messages] == [p and p.id for p in who[first:stop]]
    assert [m.group for m in messages] == [p and p.group for p in who[first:stop]]
    assert [m.seqno for m in messages] == seqnos[first:stop]
    assert [m.codec for m in messages] == [packers.name_of(each) for each in codecs[first:stop]]
    expected = [written_at] * count if written is None or len(set(written)) == 1 else written
    if written is None or len(set(written)) > 1:
        assert [m.written_at for m in messages] == expected[first:stop]


@given(batches(), st.integers(0, 2**40), shown_times, st.data())
def test_python_and_arrow_tell_the_same(batch, base, written_at, data):
    pa = module("pyarrow")
    values, keys, columns, *_, codecs = batch
    clipped = {
        name: [n // 2 for n in column] if name in ("timestamps", "written") else column
        for name, column in columns.items()
    } | {"created": columns["created"] // 2}
    found = stored(encode(packed(values, codecs), keys, **clipped), base, written_at)
    first = data.draw(st.integers(0, len(values) - 1))
    stop = data.draw(st.integers(first + 1, len(values)))
    rows = FrameRows("orders", 7, found, first, stop)
    table = rows.record_batch()
    table.validate(full=True)
    told = [
        {
            "topic": m.topic,
            "partition": m.partition,
            "offset": m.offset,
            "key": m.key,
            "value": m.value,
            "headers": [(n, v.encode() if isinstance(v, str) else v) for n, v in m.headers.items()] or None,
            "timestamp": m.timestamp,
            "written_at": m.written_at,
            "producer_id": m.producer_id,
            "group": m.group,
            "seqno": m.seqno,
            "codec": m.codec,
        }
        for m in rows.messages()
    ]
    for name in ("timestamp", "written_at"):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table.column(place).view(pa.int64()))
    assert table.to_pylist() == told


@given(batches(), st.integers(0, 2**40), times)
def test_a_frame_that_is_encoded_again_stays_the_same(batch, base, written_at):
    """As repacking does: every column of the messages, back into a frame."""
    values, keys, columns, *_, codecs = batch
    found = stored(encode(packed(values, codecs), keys, **columns), base, written_at)
    count = found.head.count
    who, seqnos = list(found.producers(0, count)), list(found.seqnos(0, count))
    again = encode(
        list(found.values(0, count)),
        list(found.keys(0, count)),
        created=found.head.created,
        headers=list(found.headers(0, count)),
        timestamps=list(found.timestamps(0, count)),
        written=list(found.written_times(0, count)),
        producers=(who, seqnos) if any(who) else None,
        codecs=list(found.codec_numbers(0, count)),
        compress=columns["compress"],
    )
    twin = stored(again, base, found.written_times(0, 1)[0])
    assert twin.messages("orders", 0, 0, count) == found.messages("orders", 0, 0, count)


@given(st.lists(contents, min_size=1, max_size=30), st.integers(0, 200), st.data())
def test_rows_that_fit_are_as_many_as_possible_and_one_at_least(values, limit, data):
    keys = data.draw(st.one_of(st.none(), st.lists(contents, min_size=len(values), max_size=len(values))))
    found = stored(encode(values, keys, created=0), 0, 0)
    first = data.draw(st.integers(0, len(values) - 1))
    stop = rows_that_fit(found, first, len(values), limit)
    sizes = [len(v or b"") + len(k or b"") for v, k in zip(values, keys or [None] * len(values), strict=True)]
    assert first < stop <= len(values)
    assert stop == first + 1 or sum(sizes[first:stop]) <= limit
    assert stop == len(values) or sum(sizes[first : stop + 1]) > limit


@given(st.binary(max_size=300), st.integers(0, 40))
def test_bytes_that_are_no_frame_are_not_taken_for_one(data, at):
    assert read_head(data, at) is None
    assert list(frame.walk(data)) == []


@given(batches(), st.data())
def test_any_flipped_bit_is_noticed(batch, data):
    values, keys, columns, *_ = batch
    draft = encode(values, keys, **columns)
    whole = bytearray(draft.header(base=5, written_at=9, synced=0, salt=SALT) + bytes(draft.body))
    head = read_head(whole)
    bit = data.draw(st.integers(0, 8 * (head.header_length + head.body_length) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert list(frame.walk(bytes(whole))) == []


@given(st.binary(max_size=64), producers, st.integers(0, 2**40))
def test_control_frames_hold_no_message_and_keep_their_body(body, producer, seqno):
    found = stored(control(SEAL, body, created=3, producer=producer, seqno=seqno), base=10, written_at=4)
    assert (found.head.count, found.head.codec, bytes(found.body)) == (0, SEAL, body)
    assert found.producer() == (producer, seqno)
    assert found.head.stop == 10


@given(st.lists(st.binary(max_size=30), min_size=2, max_size=6))
def test_drafts_do_not_disturb_each_other(values):
    """Several are made before the first is written."""
    drafts = [encode([value, b"second"], created=0) for value in values]
    for value, draft in zip(values, drafts, strict=True):
        assert stored(draft, 0, 0).values(0, 2) == [value, b"second"]


@given(st.lists(st.sampled_from([b"a" * 50, b"", None, b"b"]), min_size=1, max_size=60))
def test_compression_never_makes_a_frame_larger(values):
    plain, compressed = encode(values, created=0), encode(values, created=0, compress=True)
    assert compressed.size <= plain.size
    found = stored(compressed, 0, 0)
    assert bool(found.head.flags & COMPRESSED) == (bytes(compressed.body) != bytes(plain.body))
    assert list(found.values(0, len(values))) == values
    assert abs(found.weight - plain.weight) <= 8


def test_the_overhead_is_what_was_promised():
    one = encode([b"v" * 220], [b"k" * 16], created=0)
    assert one.size - 236 <= 96
    thousand = encode([b"v" * 220] * 1000, [b"k" * 16] * 1000, created=0)
    assert thousand.size - 236_000 <= 10 * 1000
    assert encode([b""], created=0, codec=RAW).size <= 96


def test_times_keep_their_nanoseconds_before_1970_and_to_the_end_of_2261():
    for moment in (-1, -(2**63), 2**63 - 1, 0):
        (message,) = stored(encode([b""], created=moment), 0, moment).messages("t", 0, 0, 1)
        assert (message.timestamp, message.written_at) == (moment, moment)
