"""Facts of producers: as bytes, folded from frames, and what becomes of them when frames go."""

import struct
import zlib
from pathlib import Path

import pytest

from penstock.clock import Clock
from penstock.errors import Corrupt, ProducerFenced, UnknownFormat
from penstock.files import Files
from penstock.findings import Checked
from penstock.log import producer_table
from penstock.log.folder import PRODUCERS, Folder
from penstock.log.frame import ProducerStamp
from penstock.log.log import Log
from penstock.log.producer_table import LastSeqno, Pair, ProducerTable
from penstock.log.producers import Claim, StaleClaim
from penstock.log.verify import PartitionVerifier
from penstock.options import TopicOptions
from tests.kit import frames as encode
from tests.kit.logs import log_without_store

SHOP = Pair("shop", "")


@pytest.fixture
def log(tmp_path: Path):
    log = opened(tmp_path)
    yield log
    log.close()


def opened(path: Path) -> Log:
    return log_without_store(str(path / "000000"), TopicOptions(segment_bytes=1 << 16))


def claim(first: int, last: int, *, epoch: int = 0, joined: bool = False, dropped: int = -1) -> Claim:
    return Claim(SHOP, epoch, joined, dropped, first, last)


def draft(*seqnos: int, pair: Pair = SHOP, epoch: int = 0) -> encode.EncodedFrame:
    who = ProducerStamp(pair.id, pair.group or None, epoch)
    return encode.encode([b"v"] * len(seqnos), created=1, producer=(who, list(seqnos)))


def store(log: Log, *seqnos: int, **how) -> None:
    log.appender.append([draft(*seqnos)], claim=claim(seqnos[0], seqnos[-1], **how))


# As bytes.


def test_the_bytes_are_those_of_the_format():
    """docs/FORMAT.md."""
    known = ProducerTable()
    known.learn(Pair("shop", "ä"), 12, 3, -5)
    known.learn(Pair("p", ""), -1, 1, 2**62)
    data = producer_table.pack(known, 107, 0x60D)
    assert data[:8] == b"PSKPRODS"
    assert struct.unpack_from("<IHHQQQ", data, 8) == (zlib.crc32(data[12:]), 1, 0, 107, 0x60D, 2)
    entry = struct.Struct("<qqIHH")
    assert entry.unpack_from(data, 40) == (12, -5, 3, 4, 2)
    assert data[64:70] == "shopä".encode()
    assert entry.unpack_from(data, 70) == (-1, 2**62, 1, 1, 0)
    assert data[94:] == b"p"
    assert [*producer_table.parse(data, 107, 0x60D).items()] == [*known.items()]


def test_damage_and_strangers_are_noticed():
    data = producer_table.pack(ProducerTable(), 5, 7)
    assert producer_table.parse(data, 5, 7) is not None
    assert producer_table.parse(data, 5, 0) is not None
    assert producer_table.parse(data, 6, 7) is None
    assert producer_table.parse(data, 5, 8) is None
    assert producer_table.parse(data[:20], 5, 7) is None
    for byte in range(len(data)):
        spoiled = bytearray(data)
        spoiled[byte] ^= 0x40
        assert producer_table.parse(bytes(spoiled), 5, 7) is None
    newer = bytearray(data)
    newer[12] = 9
    newer[8:12] = zlib.crc32(newer[12:]).to_bytes(4, "little")
    with pytest.raises(UnknownFormat):
        producer_table.parse(bytes(newer), 5, 7)


# Claims.


def test_a_claim_must_know_what_is_stored(log):
    store(log, 1, 2, 3)
    with pytest.raises(StaleClaim) as caught:
        store(log, 3, 4)
    assert caught.value.known == LastSeqno(3, 0)
    with pytest.raises(StaleClaim):  # it says that 4 is stored, but it is not
        store(log, 5, dropped=4)
    store(log, 4, dropped=3)
    assert log.appender.producers.peek(SHOP) == LastSeqno(4, 0)


def test_a_fence_stops_those_who_joined_before_it(log):
    store(log, 1)
    fenced = log.appender.take_over(SHOP)
    assert (fenced.seqno, fenced.epoch) == (1, 1)
    with pytest.raises(ProducerFenced):
        store(log, 2, joined=True)
    with pytest.raises(StaleClaim):  # who comes new takes the present epoch
        store(log, 2)
    store(log, 2, epoch=1)
    log.sync_fence(fenced)
    assert log.folder.read_durable().byte == log.folder.read_append().byte


def test_a_fence_alone_is_made_durable(log):
    """It takes no offset, so waiting for an offset would not do."""
    store(log, 1)
    log.sync_all()
    fenced = log.appender.take_over(SHOP)
    assert log.folder.read_durable().byte < fenced.byte
    log.sync_fence(fenced)
    assert log.folder.read_durable().byte == fenced.byte


# Folding.


def test_another_process_sees_the_same(log, tmp_path):
    other = opened(tmp_path)
    for number in range(1, 40):
        store(log if number % 2 else other, number)
        assert (log if number % 2 else other).appender.producers.peek(SHOP).seqno == number
    with pytest.raises(StaleClaim):
        store(other, 39)
    other.close()


def test_large_frames_are_hopped_over_and_long_ids_read(log, tmp_path):
    long = Pair("🙂" * 2048, "g" * 2048)
    log.appender.append([encode.encode([b"x" * 300_000], created=1)])
    log.appender.append([draft(5, 9, pair=long)])
    log.appender.append([encode.encode([b"x" * 300_000], created=1), draft(7)])
    log.sync_all()
    other = opened(tmp_path)
    assert other.appender.producers.peek(long) == LastSeqno(9, 0)
    assert other.appender.producers.peek(SHOP) == LastSeqno(7, 0)
    other.close()


def test_damage_costs_no_more_than_what_it_hit(log, tmp_path, caplog):
    log.appender.append([draft(1)])
    log.appender.append([draft(5, pair=Pair("lost", ""))])
    log.appender.append([draft(2)])
    log.sync_all()
    path = log.folder.segment_path(0)
    with open(path, "r+b") as file:
        at = file.read().index(b"lost")
        file.seek(at)
        file.write(b"Lost")
    other = opened(tmp_path)
    assert other.appender.producers.peek(SHOP).seqno == 2
    assert other.appender.producers.peek(Pair("lost", "")).seqno == -1
    assert "damage" in caplog.text
    other.close()


def test_who_is_overtaken_by_retention_goes_on_from_a_checkpoint(log, tmp_path):
    other = opened(tmp_path)
    store(other, 1)
    for number in range(2, 6):
        store(log, number)
        log.appender.seal_active()
        log.tidy()
    log.sync_all()
    log.trim(log.bounds().end)
    with pytest.raises(StaleClaim) as caught:
        store(other, 5)
    assert caught.value.known == LastSeqno(5, 0)
    other.close()


def test_a_repacked_segment_is_folded_from_its_beginning(log, tmp_path):
    other = opened(tmp_path)
    store(other, 1)
    for number in range(2, 30):
        store(log, number)
    log.appender.seal_active()
    log.tidy()
    assert log.segments.sealed(0).generation == 1
    with pytest.raises(StaleClaim) as caught:
        store(other, 2)
    assert caught.value.known == LastSeqno(29, 0)
    other.close()


# Checkpoints.


def test_the_two_newest_segments_have_a_checkpoint(log):
    for number in range(1, 6):
        store(log, number)
        log.appender.seal_active()
        log.tidy()
    names = sorted(n for n in log.folder.files.listdir(log.folder.path) if n.endswith(PRODUCERS))
    assert names == [f"{base:020d}{PRODUCERS}" for base in (4, 5)]
    assert producer_table.load(log.folder, 4).facts.get(SHOP) == LastSeqno(4, 0)


def test_checkpoints_of_later_segments_let_earlier_ones_go(log, caplog):
    """Many rolls between two visits, and a trim that ends before the newest checkpoints."""
    for visit in range(3):
        for number in range(1 + 6 * visit, 7 + 6 * visit):
            store(log, number)
            log.appender.seal_active()
        log.sync_all()
        log.tidy()
        log.trim(3 + 6 * visit)
    assert log.folder.segments()[0] == 15
    assert producer_table.begin(log.folder)[0].get(SHOP) == LastSeqno(18, 0)
    assert caplog.text == ""


def test_nothing_goes_without_a_sound_checkpoint(log, monkeypatch):
    store(log, 1)
    log.appender.seal_active()
    store(log, 2)
    log.sync_all()
    monkeypatch.setattr(producer_table, "parse", lambda *_: None)
    with pytest.raises(Corrupt):
        log.trim(1)
    assert log.folder.segments() == [0, 1]
    monkeypatch.undo()
    log.trim(1)
    assert log.folder.segments() == [1]
    assert producer_table.facts_before(log.folder, 1).get(SHOP) == LastSeqno(1, 0)


def test_a_checkpoint_that_moves_on_while_one_looks_is_found(log, tmp_path, monkeypatch):
    """Both the older and the newer one may escape a single look."""
    for number in range(1, 4):
        store(log, number)
        log.appender.seal_active()
        log.tidy()
    log.sync_all()
    log.trim(log.bounds().end)
    looks, load = [], producer_table.load

    def blind_at_first(folder, offset, *kind):
        looks.append(offset)
        found = load(folder, offset, *kind)
        return found if len(looks) > 1 else found._replace(is_there=False, facts=None)

    monkeypatch.setattr(producer_table, "load", blind_at_first)
    other = opened(tmp_path)
    assert other.appender.producers.peek(SHOP) == LastSeqno(3, 0)
    other.close()


def findings(log: Log) -> list[tuple[str, str]]:
    folder = Folder(log.folder.path, topic_id=7, partition=0, files=Files(), clock=Clock(), read_only=True)
    found = PartitionVerifier(folder, Checked()).findings()
    return [(each.severity, each.path[-10:]) for each in found if "producer" in each.what]


def test_verify_tells_damage_that_matters_from_damage_that_does_not(log):
    for number in range(1, 4):
        store(log, number)
        log.appender.seal_active()
        log.tidy()
    log.sync_all()
    assert findings(log) == []
    paths = [log.folder.segment_path(base, PRODUCERS) for base in (2, 3)]
    Path(paths[1]).write_bytes(b"damaged")
    assert findings(log) == [("note", ".producers")]
    log.tidy()
    assert findings(log) == []
    log.trim(3)
    Path(paths[1]).write_bytes(b"damaged")
    assert findings(log) == [("damage", ".producers")]


def test_without_a_producer_nothing_is_loaded(log):
    """The fast path stays what it was."""
    log.appender.append([encode.encode([b"v"], created=1)])
    assert log.appender.producers.table is None
