"""A go-diskq folder becomes a topic: same partitions, offsets, keys, times and data.

    look at the folder → make the topic, and keep where it came from → import segment after segment
    → groups become consumers → whole

Messages keep their offsets, so where a partition ends says how far it came: an import that was killed and is
started again goes on there. Offsets that go-diskq's vacuum took stay gaps.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import InvalidOption, MessageTooLarge, PenstockError
from penstock.exchange.arrival import PartitionArrival
from penstock.exchange.diskq_folder import DiskqFolder, DiskqSegment, Marks, look, refuse_owned
from penstock.exchange.diskq_format import FIXED_BYTES, Encoding
from penstock.exchange.diskq_segment import Note, SegmentReader
from penstock.exchange.origin import Origin, mark_whole, sole_importer, topic_to_fill, write_origin
from penstock.options import TopicOptions
from penstock.parse import FRAME_BYTES_MAX, MIB, consumer_name, topic_name
from penstock.store.topic import Topic

if TYPE_CHECKING:
    from penstock.store.store import Store

logger = logging.getLogger("penstock.exchange")

KIND = "diskq"
#: The largest value that a topic may keep in its log.
_VALUE_BYTES_MOST = FRAME_BYTES_MAX - MIB
#: Called with how many messages have been imported, and how many there are.
Progress = Callable[[int, int], None]


class DiskqImported(NamedTuple):
    """What an import did."""

    topic: Topic
    #: Messages of this run, without those that an earlier run had imported.
    messages: int
    #: Messages that an earlier run, cut short, had imported.
    before: int
    partitions: int
    consumers: tuple[str, ...]
    #: What was not as it should be, and was left out.
    notes: tuple[str, ...]


def import_diskq(
    store: Store, path: str | os.PathLike[str], topic: str, *, owned_ok: bool = False,
    progress: Progress = lambda done, total: None, **options: Any,
) -> DiskqImported:  # fmt: skip
    """Bring a go-diskq folder into a new topic; see `Store.import_diskq`."""
    topic_name(topic)
    _refuse_settled_options(options)
    folder = look(os.path.abspath(os.fspath(path)))
    if not owned_ok:
        refuse_owned(folder)
    notes: list[str] = list(folder.notes)
    facts, largest = _survey(folder, notes.append)
    origin = Origin(KIND, folder.path, facts=facts)
    made = topic_to_fill(store, topic, origin, _options(folder, largest, options))
    with sole_importer(made.open_topic):
        write_origin(made.open_topic, origin)  # anew: the folder may have grown since a run that was killed
        run = _Run(made, folder, facts, progress, notes.append)
        try:
            run.bring_in()
        except PenstockError as error:
            error.add_note(f"topic {topic!r} holds what came before: import again to go on, or drop it")
            raise
        consumers = _add_consumers(made, folder, notes.append)
        mark_whole(made.open_topic, origin)
    notes = list(dict.fromkeys(notes))
    for note in notes:
        logger.warning("%s", note)
    return DiskqImported(made, run.done, run.before, len(folder.partitions), consumers, tuple(notes))


class _Run:
    """One run of an import."""

    def __init__(
        self, topic: Topic, folder: DiskqFolder, facts: dict[str, Any], progress: Progress, note: Note
    ) -> None:
        self._topic, self._folder, self._facts = topic, folder, facts
        self._progress, self._note = progress, note
        self.done = self.before = 0

    def bring_in(self) -> None:
        for number, segments in enumerate(self._folder.partitions):
            arrival = PartitionArrival(self._topic.open_topic, number)
            arrival.begin_at(segments[0].base)
            for segment in segments:
                self._bring_in_segment(arrival, segment)
            arrival.finish()

    def _bring_in_segment(self, arrival: PartitionArrival, segment: DiskqSegment) -> None:
        arrival.skip_to(segment.base)
        there = min(arrival.next - segment.base, segment.count)
        self.before += there
        if there == segment.count:
            return
        encoding = Encoding(self._facts["encoding"])
        with SegmentReader(segment, self._note) as reader:
            reader.encoding()  # says what is torn, and so how many messages there are
            for piece in reader.pieces(encoding, arrival.next):
                keys, times, values = piece.records
                receipts = self._topic.write_many(
                    values, keys=keys, timestamps=times, partition=segment.partition
                )
                for stored in receipts.runs:
                    arrival.arrived(stored.first, stored.count)
                    self.done += stored.count
                self._progress(self.before + self.done, self._folder.messages)


def _refuse_settled_options(options: dict[str, Any]) -> None:
    for name in ("partitions", "partitioner"):
        if name in options:
            raise InvalidOption(f"{name} is what the diskq folder says", hint=f"leave {name} out")


def _survey(folder: DiskqFolder, note: Note) -> tuple[dict[str, Any], int]:
    """What an export must know again, and the size of the largest value; damage at the ends is found now."""
    encodings: set[Encoding] = set()
    ends: list[int] = []
    largest = 0
    for segments in folder.partitions:
        for segment in segments:
            with SegmentReader(segment, note) as reader:
                encoding = reader.encoding()
                if reader.count:
                    encodings.add(encoding)
                    largest = max(largest, reader.largest())
                end = segment.base + reader.count
        ends.append(end)
    if len(encodings) > 1:
        raise InvalidOption(
            f"{folder.path} mixes both encodings of messages", hint="import its segments as two folders"
        )
    return {
        "settings": folder.settings_text,
        "encoding": next(iter(encodings), Encoding.FIXED).value,
        "segments": [[segment.base for segment in segments] for segments in folder.partitions],
        "ends": ends,
        "groups": {
            name: {str(number): mark for number, mark in marks.items()}
            for name, marks in folder.groups.items()
        },
    }, max(largest - FIXED_BYTES, 0)


def _options(folder: DiskqFolder, largest: int, wanted: dict[str, Any]) -> dict[str, Any]:
    """The options of a topic that takes the folder; raises when it cannot be kept as they say."""
    for group in folder.groups:
        consumer_name(group)  # a name that cannot be kept is said before anything is made
    options = {**wanted, "partitions": len(folder.partitions), "partitioner": "diskq"}
    if options.get("payloads") is None:
        if largest > _VALUE_BYTES_MOST:
            raise MessageTooLarge(
                f"{folder.path} holds a message of {largest} bytes; a log takes {_VALUE_BYTES_MOST} at most",
                hint='let large ones lie beside it: payloads="files", --payloads files',
            )
        options.setdefault("max_message_bytes", max(largest, TopicOptions().max_message_bytes))
    return options


def _add_consumers(topic: Topic, folder: DiskqFolder, note: Note) -> tuple[str, ...]:
    """Groups as consumers: theirs is the last offset read, ours the next to read."""
    known = {each.consumer for each in topic.consumers()}
    for name, marks in folder.groups.items():
        if name not in known:
            topic.add_consumer(name, start=_positions(topic, name, marks, note))
    return tuple(folder.groups)


def _positions(topic: Topic, name: str, marks: Marks, note: Note) -> dict[int, int]:
    positions = {}
    for log in topic.open_topic.logs():
        bounds, mark = log.bounds(), marks.get(log.partition)
        positions[log.partition] = bounds.start if mark is None else mark + 1
        if positions[log.partition] > bounds.end:
            note(f"group {name!r} marks offset {mark} of partition {log.partition}, which ends before it")
            positions[log.partition] = bounds.end
    return positions
