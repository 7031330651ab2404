"""Server-sent events: the ids are cursors, so a plain `new EventSource(url)` goes on where it was cut.

retry: 1000                 first: where the client stands, without an event
id: 3f.8

id: 3f.9                    an event
data: {"id":8,"time":…,"key":…,"data":…}

id: 3f.12                   each 25 s: where it stands, then an event that a page can see
                            (an event `ping` itself has no id)
event: ping
data: {"next":"3f.12"}
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.events.event import EventGap
from penstock.serve.encoded_event import EncodedEvent, answer_json
from penstock.serve.event_stream import EventStream

#: It ends with the connection: no length and no chunks.
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n"
    b"X-Accel-Buffering: no\r\n%s\r\n"
)


class SseStream(EventStream):
    """A subscriber by server-sent events."""

    __slots__ = ()

    def frame(self, pieces: Sequence[EncodedEvent], behind: int) -> bytes:
        at = self.feed.cursor_at
        return b"".join(
            b"id: %s\ndata: %s\n\n" % (at(piece.offset + 1).encode(), piece.json) for piece in pieces
        )

    def hello_frame(self, offset: int) -> bytes:
        return b"retry: 1000\n" + self._id(offset)

    def ping_frame(self) -> bytes:
        place = self.place
        cursor = self.feed.cursor_at(place).encode()
        return self._id(place) + b'event: ping\ndata: {"next":"%s"}\n\n' % cursor

    def gap_frame(self, gap: EventGap, offset: int) -> bytes:
        told = answer_json([], self.feed.cursor_at(offset), self.feed.least, gap)
        return self._id(offset) + b"event: gap\ndata: %s\n\n" % told

    def say_goodbye(self, error: PenstockError | None, *, expired: bool = False) -> None:
        if expired:
            self.connection.write(b'event: error\ndata: {"status":401,"message":"the token has expired"}\n\n')
        self.connection.close()

    def _id(self, offset: int) -> bytes:
        """Where the client stands, said without an event."""
        return b"id: %s\n\n" % self.feed.cursor_at(offset).encode()
