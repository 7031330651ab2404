"""Two functions of one sum: which is quicker differs between processors, what they give does not."""

import random
import zlib

from penstock.checksum import FEW, crc32, crc32_of_few


def test_few_bytes_have_the_same_sum_by_either_function():
    chance = random.Random(5)
    for length in range(FEW + 2):
        data = chance.randbytes(length)
        before = chance.getrandbits(32)
        assert crc32_of_few(data) == crc32(data) == zlib.crc32(data)
        assert crc32_of_few(memoryview(data), before) == crc32(data, before) == zlib.crc32(data, before)
