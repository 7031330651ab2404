"""The list of losses of a partition (`lost`), byte by byte."""

from tests.kit.logs import Lost
from tests.kit.logs import lost_module as lost


def test_the_bytes_are_those_of_the_format():
    """docs/FORMAT.md."""
    ranges = [Lost(3, 7, -5), Lost(10, 2**40, 2**62)]
    data = lost.pack(ranges, 0x60D)
    assert data.hex() == (
        "50534b5f4c4f5354" + "38d19ce2" + "0100" + "0000" + "0d06000000000000" + "0200000000000000"
        "0300000000000000" + "0700000000000000" + "fbffffffffffffff"
        "0a00000000000000" + "0000000000010000" + "0000000000000040"
    )  # fmt: skip
    assert lost.parse(data) == ranges
    for byte in range(len(data)):
        spoiled = bytearray(data)
        spoiled[byte] ^= 1
        assert lost.parse(bytes(spoiled)) is None
    assert lost.parse(data[:-1]) is None


def test_what_lies_outside_of_ranges():
    ranges = [(2, 4), (6, 8)]
    assert lost.outside((0, 10), ranges) == [(0, 2), (4, 6), (8, 10)]
    assert lost.outside((2, 8), ranges) == [(4, 6)]
    assert lost.outside((3, 3), ranges) == []
    assert lost.outside((0, 1), ranges) == [(0, 1)]
    assert lost.outside((9, 12), ranges) == [(9, 12)]
