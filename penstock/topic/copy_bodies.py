"""Bodies that lie outside a topic's log, brought along when its messages are copied into another topic.

Each goes where the sink keeps its own, or into the sink's log when it keeps none and the body fits. So the
copy stands on its own: retention of the source takes nothing from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock import codecs, references
from penstock.errors import InvalidOption, MessageTooLarge
from penstock.log.copy import FrameRun
from penstock.log.frame import RAW
from penstock.log.frame_encode import EncodedFrame, MessageColumns, frames
from penstock.parse import MIB
from penstock.references import Reference
from penstock.topic.open_topic import OpenTopic

#: Bodies up to this size are fetched, and so many bytes of them together: small ones share an object again.
_FETCHED_BYTES = MIB
_GROUP_BYTES = 8 * MIB


class BodyCopy:
    """Brings bodies into one topic, which this process has open."""

    def __init__(self, sink: OpenTopic) -> None:
        self._sink = sink
        self._where = f"a copy into {sink.name!r}"
        #: Objects that were made, to be deleted when the copy is given up.
        self.made: list[str] = []
        #: Bytes of all bodies so far.
        self.bytes = 0

    def drafts(self, run: FrameRun, places: Sequence[int] | None) -> Iterator[EncodedFrame]:
        """Messages of a run, or those at some places of it, as frames that refer to the sink's own bodies.

        Raises `MessageTooLarge` or `InvalidOption` for a body that the topic does not take.
        """
        found = run.columns(range(len(run)) if places is None else places)
        assert not isinstance(found.codecs, int)
        values, numbers = list(found.values), list(found.codecs)
        begin = weight = 0
        for place, stored in enumerate(found.values):
            if numbers[place] == references.CODEC:
                reference = None if stored is None else references.unpack(stored)
                values[place], numbers[place] = self._carried(reference)
            weight += len(values[place] or b"")
            if weight >= _GROUP_BYTES or place == len(values) - 1:
                stop = place + 1
                part = found._replace(values=values, codecs=numbers).part(begin, stop)
                yield from self._encoded(part, run.created)
                values[begin:stop] = [None] * (stop - begin)  # they are on disk: release them
                begin, weight = stop, 0

    def discard(self) -> None:
        """Delete the bodies that were made: no message will refer to them."""
        self._sink.bodies.discard(self.made)
        self.made = []

    def _carried(self, reference: Reference | None) -> tuple[bytes | None, int]:
        """Return the value for the copy, and its codec; a large body is stored in the sink."""
        if reference is None:
            return None, RAW
        self._check(reference)
        self.bytes += reference.size
        if reference.size <= max(_FETCHED_BYTES, self._sink.options.inline_bytes):
            return references.fetch(reference, self._where), reference.codec
        with references.open_body(reference, self._where) as body:
            stored = self._sink.bodies.put(body, codec=reference.codec)
        self.made.append(stored.name)
        return stored.packed(), references.CODEC

    def _encoded(self, columns: MessageColumns, created: int) -> list[EncodedFrame]:
        if self._sink.options.payloads is not None:
            stored = self._sink.bodies.store_large(columns)
            self.made += stored.made
            columns = stored.columns
        return frames(columns, created=created, compress=self._sink.options.compress is not None)

    def _check(self, reference: Reference) -> None:
        options, name = self._sink.options, self._sink.name
        if reference.size > options.value_bytes:
            larger = "a larger max_body" if self._sink.bodies.takes_bodies else 'payloads="files"'
            raise MessageTooLarge(
                f"a value of {reference.size} bytes lies outside the source's log, and {name!r} takes "
                f"{options.value_bytes} at most",
                hint=f"give the topic {larger}, or raise its max_message_bytes",
            )
        if options.codecs and codecs.lasting_name(reference.codec) not in options.codecs:
            raise InvalidOption(
                f"topic {name!r} does not allow codec {codecs.name_of(reference.codec)}",
                hint=f"it allows {', '.join(options.codecs)}; values are copied as they are packed",
            )
