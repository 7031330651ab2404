"""go-diskq folders written and read by the seed's tables alone (S004-15…21, B004-01…06), for the tests."""

import json
import struct
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One message."""

    key: bytes
    time: int
    data: bytes


def fixed(row: Row) -> bytes:
    """What go-diskq's code writes (B004-01)."""
    head = struct.pack("<I", len(row.key)) + row.key
    return head + struct.pack("<qQ", row.time, len(row.data)) + row.data


def varuint(row: Row) -> bytes:
    """What go-diskq's README says (S004-21)."""
    return uvarint(len(row.key)) + row.key + struct.pack("<q", row.time) + uvarint(len(row.data)) + row.data


def uvarint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number % 128 + 128])
        number //= 128
    return out + bytes([number])


def rows(count: int, *, begin: int = 0, size: int = 12) -> list[Row]:
    first = 1_700_000_000_000_000_000
    return [
        Row(b"key-%d" % (n % 7), first + 1000 * n, b"%0*d" % (size, n)) for n in range(begin, begin + count)
    ]


def write_segment(folder: Path, base: int, messages: list[Row], encode=fixed) -> Path:
    """Three files; returns the `.data` one."""
    folder.mkdir(parents=True, exist_ok=True)
    data, index, times = b"", b"", b""
    for number, row in enumerate(messages):
        record = encode(row)
        index += struct.pack("<QQQ", base + number, len(data), len(record))
        times += struct.pack("<Qq", base + number, row.time)
        data += record
    for ending, content in (("data", data), ("index", index), ("timeindex", times)):
        (folder / f"{base:020d}.{ending}").write_bytes(content)
    return folder / f"{base:020d}.data"


def write_folder(
    path: Path, partitions: list[dict[int, list[Row]]], *, settings: dict[str, int] | None = None,
    groups: dict[str, dict[int, int | None]] | None = None, encode=fixed,
) -> Path:  # fmt: skip
    """A whole folder: segments of each partition by their first offset."""
    path.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (path / "settings.json").write_text(json.dumps(settings, indent=2) + "\n")
    for number, segments in enumerate(partitions):
        for base, messages in segments.items():
            write_segment(path / "parts" / f"{number:06d}", base, messages, encode)
    for name, marks in (groups or {}).items():
        folder = path / "groups" / name
        folder.mkdir(parents=True)
        for number, mark in marks.items():
            content = b"" if mark is None else mark.to_bytes(8, "little")
            (folder / f"{number:06d}").write_bytes(content)
    return path


def read_segment(path: Path) -> list[tuple[int, Row]]:
    """Offsets and messages of a `.data` file by its index, everything checked."""
    data, index = path.read_bytes(), path.with_suffix(".index").read_bytes()
    times = path.with_suffix(".timeindex").read_bytes()
    assert len(index) % 24 == 0
    assert len(times) % 16 == 0
    found, end = [], 0
    for number, (offset, at, size) in enumerate(struct.iter_unpack("<QQQ", index)):
        assert (offset, at) == (int(path.stem) + number, end)
        (key_length,) = struct.unpack_from("<I", data, at)
        key = data[at + 4 : at + 4 + key_length]
        time, length = struct.unpack_from("<qQ", data, at + 4 + key_length)
        body = data[at + 20 + key_length :][:length]
        assert size == 20 + key_length + length
        assert struct.unpack_from("<Qq", times, 16 * number) == (offset, time)
        found.append((offset, Row(key, time, body)))
        end = at + size
    assert end == len(data)
    return found


def read_partition(path: Path, number: int) -> list[tuple[int, Row]]:
    segments = sorted((path / "parts" / f"{number:06d}").glob("*.data"))
    return [each for segment in segments for each in read_segment(segment)]


def all_files(path: Path) -> dict[str, bytes]:
    """Every file but the owner."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and file.name != "owner"
    }


def fnv1(key: bytes) -> int:
    hashed = 2166136261
    for byte in key:
        hashed = hashed * 16777619 % 2**32 ^ byte
    return hashed
