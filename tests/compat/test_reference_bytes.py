"""References and the paths of bodies, kept in the repository: both must stay as they are."""

from pathlib import Path

import pytest

from penstock import Reference
from penstock.errors import UnknownFormat
from tests.kit import frames as encode
from tests.kit.bodies import name_of, note_of, path_of
from tests.kit.bodies import references_module as references
from tests.kit.frames import frame_module as frame
from tests.kit.values import codecs_module as codecs

GOLDEN = Path(__file__).parent / "golden" / "references.frame"
REFERENCE = Reference(0x1122334455667788, "2026-11-16/0f/cat.png", 3, 5, bytes(range(32)), codecs.ZSTD, 7)


def made() -> bytes:
    """A frame of a small value, one that lies outside, and a tombstone."""
    values = [b"small", REFERENCE.packed(), None]
    numbers = [codecs.RAW, codecs.REFERENCE, codecs.RAW]
    draft = encode.encode(values, created=1, codec=numbers[0], codecs=numbers)
    return draft.header(base=10, written_at=2, synced=0, salt=3) + bytes(draft.body)


def test_the_golden_frame_is_made_and_read():
    assert made() == GOLDEN.read_bytes()
    [(_, found)] = frame.walk(GOLDEN.read_bytes(), 0)
    small, outside, tombstone = found.messages("t", 0, 0, 3)
    assert (small.value, small.reference) == (b"small", None)
    assert (outside.codec, outside.reference) == ("reference", REFERENCE)
    assert tombstone.value is tombstone.reference is None


def test_a_reference_is_64_bytes_and_a_name():
    packed = REFERENCE.packed()
    assert packed.hex() == (
        "0100" "0400" "07000000" "8877665544332211" "0300000000000000" "0500000000000000"
        + bytes(range(32)).hex() + b"2026-11-16/0f/cat.png".hex()
    )  # fmt: skip
    assert references.unpack(packed) == REFERENCE


@pytest.mark.parametrize("stored", [b"", b"\x01" * 64, b"\x02" + bytes(80)])
def test_what_is_no_reference_is_said(stored):
    with pytest.raises(UnknownFormat):
        references.unpack(stored)


def test_the_number_of_a_place_stays():
    assert references.place_id("5f", 7, "files") == 0x13082D9C8EAB6E0A


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("2026-11-16/0f3a/cat.png", "2026-11-16=/0f3a=/cat.png"),
        ("../x", "%2E%2E=/x"),
        ("a=/100%", "a%3D=/100%25"),
        ("/", "=/%-"),
        ("x" * 300, "%long/0d4e2ca9e9cbced7a7a5380eb29e1a3783b9b6d0db72de36a1051038e1c1fbc7/body"),
    ],
)
def test_paths_of_names_stay(name, path):
    assert path_of(name) == path
    if note_of(path) is None:
        assert name_of(path) == name
    else:
        assert note_of(path) == path.removesuffix("body") + "name"
