"""Facts of messages besides their values: keys, headers and times, of many single offsets in one call.

A search by key finds offsets that lie scattered over a partition. Decoding a whole message for each of them
costs several times what its headers do, so this reads only those: straight from the mapping where a frame
holds one message, and from views of a frame's columns where it holds many.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from struct import Struct
from typing import Any, cast
from weakref import WeakKeyDictionary

from penstock.codecs import RAW
from penstock.log.frame import Frame
from penstock.log.frame_header import COMPRESSED, HEADER_BYTES, HEADERS, KEY_NULLS, KEYS, WRITTEN
from penstock.log.mapped_segment import MappedActive, MappedSealed
from penstock.log.segments import Bounds, Segments

#: Offset, key, headers in a dict of the caller's own (bytes as text, by surrogateescape), written_at.
Facts = tuple[int, bytes | None, dict[str, str], int]

#: After so many reads of a frame it is worth a look whether all its messages have the same headers.
_READS_WORTH_A_LOOK = 8
#: Views of so many frames are kept for each segment.
_FRAMES_KEPT = 256
#: Lengths, flags and codec as one number · count · base · written_at · bytes of key, of value · headers.
_SINGLE = Struct("<16xQI4xQq16x4xI4xI4xI")
_SINGLE_SHAPE = HEADER_BYTES | (KEYS | HEADERS) << 16 | RAW << 48
#: Where, behind the start of such a frame, the offsets of its headers' names and values lie.
_TABLE_AT = HEADER_BYTES + 24
_HEADERS_MOST = 16
#: By the number of headers: the bytes of both lists of offsets, each padded, and of the bits for "is text".
_TABLE_BYTES = [2 * (4 * (count + 1) + 7 & ~7) + 8 for count in range(_HEADERS_MOST + 1)]
_SHAPES_KEPT, _FRONTS_KEPT = 4096, 1024


class FactsReader:
    """Reads facts of one partition for one process; shared by threads."""

    def __init__(self, view: Segments) -> None:
        self._view = view
        self._known: WeakKeyDictionary[MappedActive | MappedSealed, dict[int, _FrameFacts]]
        self._known = WeakKeyDictionary()
        #: The segment that was asked for last; what is weakly kept is slow to find.
        self._recent: tuple[MappedActive | MappedSealed | None, dict[int, _FrameFacts]] = None, {}

    def read(self, offsets: Sequence[int]) -> list[Facts]:
        """The facts of the messages at those offsets, which ascend; a gap is left out.

        Raises `OffsetTrimmed` when retention took one, `Corrupt` where bytes are damaged.
        """
        found: list[Facts] = []
        view, at, count = self._view, 0, len(offsets)
        while at < count:
            bounds = view.readable_from(offsets[at])
            base = view.segment_of(offsets[at], bounds)
            try:
                if base == bounds.segment:
                    rest = self._of_active(view.active(base), offsets[at:] if at else offsets, bounds)
                    return found + rest if found else rest
                stop = view.next_segment(base)
                end = count if stop is None else bisect_left(offsets, stop, at + 1)
                found += self._of_sealed(view.sealed(base), offsets[at:end])
                at = end
            except FileNotFoundError:  # vacuumed or repacked meanwhile
                view.refuse_missing(base, bounds, offsets[at])
        return found

    def _of_active(self, active: MappedActive, offsets: Sequence[int], bounds: Bounds) -> list[Facts]:
        if offsets[-1] >= bounds.end:
            offsets = offsets[: bisect_left(offsets, bounds.end)]
        starts = active.frame_starts(offsets, bounds.byte)
        data: Any = active.mapped(bounds.byte).obj  # slices of the mapping itself are bytes
        known = self._known_of(active)
        found: list[Facts | None] = [None] * len(starts) if known else _singles(data, starts)
        if None not in found:
            return cast("list[Facts]", found)
        for place, facts in enumerate(found):
            if facts is None:
                offset, at = offsets[place], starts[place]
                frame = known.get(at)
                if frame is None:
                    facts = _singles(data, (at,))[0]
                    if facts is None:
                        frame = _FrameFacts(active.frame(offset, bounds.byte), data, at)
                        _keep(known, at, frame)
                found[place] = facts if frame is None else frame.read(offset - frame.base)
        return cast("list[Facts]", found)

    def _of_sealed(self, segment: MappedSealed, offsets: Sequence[int]) -> list[Facts]:
        found: list[Facts] = []
        known, number, frame = self._known_of(segment), -1, None
        for offset in offsets:
            if frame is None or offset >= frame.stop:
                number = segment.index.find(offset)
                frame = known.get(number)
                if frame is None:
                    holding = segment.holding(offset)
                    if holding is None:
                        continue
                    at = segment.index.bytes[number]
                    frame = _keep(known, number, _FrameFacts(holding, segment.data.obj, at))
                elif offset >= frame.stop:
                    continue
            found.append(frame.read(offset - frame.base))
        return found

    def _known_of(self, segment: MappedActive | MappedSealed) -> dict[int, _FrameFacts]:
        recent, known = self._recent
        if recent is not segment:
            found = self._known.get(segment)
            if found is None:
                found = self._known[segment] = {}
            known = found
            self._recent = segment, known
        return known


def _keep(known: dict[int, _FrameFacts], number: int, facts: _FrameFacts) -> _FrameFacts:
    """Remember a frame, unless it was unpacked: then it takes as much memory as its messages."""
    if len(known) >= _FRAMES_KEPT:
        known.clear()
    if not facts.is_unpacked:
        known[number] = facts
    return facts


def _singles(data: Any, starts: Sequence[int]) -> list[Facts | None]:
    """The facts of frames of one message with a key and headers that are text; None for any other."""
    found: list[Facts | None] = []
    unpack, sizes = _SINGLE.unpack_from, _TABLE_BYTES
    if starts and starts[-1] + _SINGLE.size > len(data):  # a smaller frame, at the very end
        return [*_singles(data, starts[:-1]), None]
    for at in starts:
        shape, count, base, written_at, key_bytes, value_bytes, headers = unpack(data, at)
        if shape != _SINGLE_SHAPE or count != 1 or not 0 < headers <= _HEADERS_MOST:
            found.append(None)
            continue
        table_at = at + _TABLE_AT
        key_at = table_at + sizes[headers]
        key_stop = key_at + key_bytes
        cut = _cut(data[table_at:key_at], headers)
        if cut is None:
            found.append(None)
            continue
        front, last = cut.unpack(data, key_stop + value_bytes)
        before, name = cut.known.get(front) or cut.learn(front)
        made = before.copy()
        made[name] = last.decode()
        found.append((base, data[key_at:key_stop], made, written_at))
    return found


class _HeaderCut:
    """How to cut the strings of headers that have certain lengths.

    Names come first, then values. The last value often differs from message to message, such as the name of
    an object, and those before it seldom: what lies in front of the last value is looked up as a whole.
    """

    def __init__(self, names: Sequence[int], values: Sequence[int]) -> None:
        self._names = list(pairwise(names))
        behind = names[-1]
        self._values = [(behind + start, behind + stop) for start, stop in pairwise(values)][:-1]
        self.unpack = Struct(f"<{behind + values[-2]}s{values[-1] - values[-2]}s").unpack_from
        #: By those bytes: the headers but for the last, and its name.
        self.known: dict[bytes, tuple[dict[str, str], str]] = {}

    def learn(self, front: bytes) -> tuple[dict[str, str], str]:
        if len(self.known) >= _FRONTS_KEPT:
            self.known.clear()
        *names, last = (front[start:stop].decode() for start, stop in self._names)
        values = (front[start:stop].decode() for start, stop in self._values)
        found = self.known[front] = dict(zip(names, values, strict=True)), last
        return found


@lru_cache(maxsize=_SHAPES_KEPT)
def _cut(table: bytes, headers: int) -> _HeaderCut | None:
    """How to cut headers whose offsets are those of a table; None when not all values are text."""
    if int.from_bytes(table[-8:], "little") != (1 << headers) - 1:
        return None
    numbers = memoryview(table).cast("I").tolist()
    behind = len(numbers) // 2 - 1
    return _HeaderCut(numbers[: headers + 1], numbers[behind : behind + headers + 1])


class _FrameFacts:
    """The keys, headers and times of one frame, read from its columns."""

    def __init__(self, frame: Frame, data: Any, at: int) -> None:
        head, layout, body = frame.head, frame.layout, memoryview(frame.body)
        count, flags = head.count, head.flags
        self.base, self.stop = head.base, head.stop
        self.is_unpacked = bool(flags & COMPRESSED)
        #: What strings are cut from, and where the body begins in it.
        self._data: Any = frame.body if self.is_unpacked else data
        body_at = 0 if self.is_unpacked else at + head.header_length
        self._frame = frame
        self._reads = 0
        self._has_keys = bool(flags & KEYS and not flags & KEY_NULLS)
        self._key_bounds = _numbers(body, layout.key_offsets, count + 1 if self._has_keys else 0)
        self._keys_at = body_at + layout.keys
        self._written = (
            body[layout.written : layout.written + 8 * count].cast("q") if flags & WRITTEN else None
        )
        self._entries = _numbers(body, layout.header_offsets, count + 1 if flags & HEADERS else 0)
        entries = self._entries[count] if flags & HEADERS else 0
        self._name_bounds = _numbers(body, layout.header_name_offsets, entries + 1 if entries else 0)
        self._bounds = _numbers(body, layout.header_value_offsets, entries + 1 if entries else 0)
        self._is_text = body[layout.header_is_text : layout.header_is_text + (entries + 7) // 8]
        self._names_at, self._texts_at = body_at + layout.header_names, body_at + layout.header_values
        #: Where all messages have the same headers, but for their last values.
        self._each = 0
        self._known: dict[bytes, dict[str, str]] = {}
        self._last = ""

    def read(self, place: int) -> Facts:
        """The facts of the message at a place in the frame."""
        data, bounds, at = self._data, self._bounds, self._keys_at
        if self._has_keys:
            limits = self._key_bounds
            key: bytes | None = data[at + limits[place] : at + limits[place + 1]]
        else:
            key = self._frame.keys(place, place + 1)[0]
        written = self._frame.head.written_at if self._written is None else self._written[place]
        each = self._each
        if not each:
            return self.base + place, key, self._headers(place), written
        last, at = place * each + each - 1, self._texts_at
        last_at = at + bounds[last]
        front = data[at + bounds[place * each] : last_at]
        known = self._known.get(front)
        if known is None:
            return self.base + place, key, self._learnt(place, front), written
        headers = known.copy()
        headers[self._last] = data[last_at : at + bounds[last + 1]].decode()
        return self.base + place, key, headers, written

    def _headers(self, place: int) -> dict[str, str]:
        """Headers of any kind, one by one."""
        if not self._bounds:
            return {}
        self._reads += 1
        if self._reads == _READS_WORTH_A_LOOK:
            self._look_at_all()
        found: dict[str, str] = {}
        data, names, values = self._data, self._name_bounds, self._bounds
        names_at, texts_at = self._names_at, self._texts_at
        for entry in range(self._entries[place], self._entries[place + 1]):
            name = data[names_at + names[entry] : names_at + names[entry + 1]].decode()
            value = data[texts_at + values[entry] : texts_at + values[entry + 1]]
            is_text = self._is_text[entry >> 3] >> (entry & 7) & 1
            found[name] = value.decode(errors="strict" if is_text else "surrogateescape")
        return found

    def _learnt(self, place: int, front: bytes) -> dict[str, str]:
        """Headers one by one; all but the last are remembered by their bytes."""
        headers = self._headers(place)
        if len(self._known) >= _FRONTS_KEPT:
            self._known.clear()
        self._known[front] = {name: text for name, text in headers.items() if name != self._last}
        return headers

    def _look_at_all(self) -> None:
        """Find out whether all messages have the same headers in one order, as text, each as long as its
        namesakes but for the last: then what lies in front of the last value tells all others.
        """
        count = self.stop - self.base
        entries, names = self._entries[count], self._name_bounds.tolist()
        each = entries // count
        if not each or self._entries.tolist() != list(range(0, entries + 1, each)):
            return
        if int.from_bytes(self._is_text, "little") != (1 << entries) - 1:
            return
        period = names[each]
        if any(
            names[i::each] != list(range(names[i], names[i] + period * len(names[i::each]), period))
            for i in range(each)
        ):
            return
        texts = self._data[self._names_at : self._names_at + period * count]
        if texts != texts[:period] * count:
            return
        lengths = [stop - start for start, stop in pairwise(self._bounds.tolist())]
        if any(lengths[i::each] != lengths[i : i + 1] * count for i in range(each - 1)):
            return
        self._last = texts[names[each - 1] : period].decode()
        self._each = each


def _numbers(body: memoryview, at: int, count: int) -> memoryview:
    return body[at : at + 4 * count].cast("I")
