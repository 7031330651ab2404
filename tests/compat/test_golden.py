"""A partition's folder, kept in the repository: it must be read, and written again, just the same."""

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.compat.make_golden import GOLDEN, KEYED, open_golden, write
from tests.kit.logs import Log, stored_keys
from tests.kit.logs import segment_module as segment
from tests.kit.values import match

HUNDRED = [b"%03d" % i for i in range(100)]


def messages(log: Log) -> list:
    cursor = log.cursor(0)
    found = []
    while rows := cursor.read(1000, 1 << 20):
        for each in rows:
            found += each.messages()
    return found


@pytest.mark.parametrize("read_only", [True, False])
def test_the_golden_partition_is_read(tmp_path: Path, read_only: bool):
    folder = shutil.copytree(GOLDEN, tmp_path / "partition")
    log = open_golden(folder, read_only=read_only)
    found = messages(log)
    assert [m.offset for m in found] == list(range(108))
    assert [m.value for m in found] == [b"first", None, b"", b"x", b"h", b"p", b"q", *HUNDRED, b"active"]
    assert [m.key for m in found[:5]] == [b"k1", None, b"", b"k", None]
    assert [m.timestamp for m in found[1:4]] == [5, -6, 7]
    assert found[4].headers == {"text": "ä", "raw": b"\xff"}
    assert [(m.producer_id, m.group, m.seqno) for m in found[5:7]] == [("shop", "g", 10), ("shop", "g", 12)]
    assert len({m.written_at for m in found}) == 6
    log.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_the_golden_key_index_is_read(tmp_path: Path, read_only: bool):
    folder = shutil.copytree(KEYED, tmp_path / "partition")
    log = open_golden(folder, read_only=read_only, index="key")
    stored = stored_keys(log.segments, 0)
    assert stored is not None
    assert stored.is_sound()
    expected = {b"k1": [0], b"": [2], b"k": [3], b"k2": [107], b"nothing": []}
    for key, offsets in expected.items():
        assert log.keys.oldest(match([key]), 0, 108, 10) == offsets
    assert log.keys.oldest(match(prefixes=["k"]), 0, 108, 10) == [0, 3, 107]
    log.close()


@pytest.mark.parametrize(("golden", "index"), [(GOLDEN, None), (KEYED, "key")])
def test_the_same_messages_make_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Path, index: str | None
):
    monkeypatch.setattr(segment, "new_salt", lambda: 0x5A17)
    log = open_golden(tmp_path / "partition", index=index)
    write(log)
    log.tidy()
    log.close()

    def digests(folder: Path) -> dict[str, str]:
        names = [path.name for path in folder.iterdir() if path.name not in ("append", "vacuum")]
        return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}

    # `append` holds a pid; everything else is the same to the byte.
    assert digests(tmp_path / "partition") == digests(golden)
