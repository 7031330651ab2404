"""A stream against a list: whatever is published, acked, deleted and opened again, both say the same."""

import tempfile

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import penstock
from penstock.testing import Clock

SUBJECTS = st.sampled_from(["a", "a.b", "a.c", "b", "ä"])
PATTERNS = st.sampled_from(["a", "a.*", "a*", "b", "*", "nothing", "ä"])
DURABLES = st.sampled_from(["one", "two"])


def takes(pattern, subject):
    return subject.startswith(pattern[:-1]) if pattern.endswith("*") else subject == pattern


class StreamModel(RuleBasedStateMachine):
    """Messages are (sequence, headers, object name, subject, seconds, nanoseconds) of a plain list."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.open()
        self.rows = []
        #: Sequences that were named as gone.
        self.told = set()
        self.last = 0
        self.positions = {}
        self.lives = None

    def open(self):
        self.store = penstock.open(self.folder.name, clock=self.clock)
        # Small segments, so that a subject lies in several of them, sealed ones among them.
        self.stream = self.store.stream("stream", segment_bytes=4096, sync="os", retention=None)

    def teardown(self):
        self.store.close()
        self.folder.cleanup()

    def alive(self):
        """What has not expired."""
        if self.lives is None:
            return self.rows
        default, channel = self.lives
        now = self.clock.now_ns()
        return [row for row in self.rows if now - row[5] <= (channel if row[3] == "a.b" else default) * 10**9]

    def of(self, pattern):
        return [row[:5] for row in self.alive() if takes(pattern, row[3])]

    @rule(subject=SUBJECTS, count=st.integers(1, 40), headers=st.sampled_from([{}, {"k": "v"}]))
    def publish(self, subject, count, headers):
        for number in range(count):
            name = f"{subject}/{number}"
            self.last += 1
            assert self.stream.publish_message(subject, name, headers) == self.last
            now = self.clock.now_ns()
            self.rows.append((self.last, headers, name, subject, now // 10**9, now))

    @rule(seconds=st.integers(1, 20))
    def pass_time(self, seconds):
        self.clock.advance(seconds)

    @rule(ttl=st.integers(0, 30))
    def delete_old(self, ttl):
        if self.lives is not None:
            assert self.store.flush_housekeeping()  # which removes what has expired, in its own time
            self.stream.configure_ttl(enabled=False)
            self.lives = None
            self.rows = [row for row in self.rows if self.stream.get_message_by_sequence(row[0])]
        cutoff = self.clock.now_ns() - ttl * 10**9
        gone = [row for row in self.rows if row[5] <= cutoff]
        self.rows = [row for row in self.rows if row[5] > cutoff]
        count, told = self.stream.delete_old_messages(ttl)
        assert count == len(told)
        named = {each["sequence"]: each for each in told}
        for row in gone:
            assert named.pop(row[0]) == {"sequence": row[0], "subject": row[3], "object_name": row[2]}
        # The rest left before by themselves: each is named once, and none is there any more.
        assert not named.keys() & ({row[0] for row in self.rows} | self.told)
        self.told |= {each["sequence"] for each in told}

    @rule(default=st.integers(5, 40), channel=st.integers(1, 60))
    def choose_lives(self, default, channel):
        assert self.store.flush_housekeeping()  # what expired before may have been removed by now
        self.stream.configure_ttl(enabled=True, default_ttl=default, channels={"a.b": channel})
        self.lives = default, channel
        expired = {row[0] for row in self.rows} - {row[0] for row in self.alive()}
        self.rows = [
            row for row in self.rows if row[0] in expired or self.stream.get_message_by_sequence(row[0])
        ]

    @precondition(lambda self: self.lives is not None)
    @rule()
    def sweep(self):
        alive = self.alive()
        told = {each["sequence"] for each in self.stream.delete_expired()[1]}
        assert told - self.told == told, "each is named once"
        assert not told & {row[0] for row in alive}
        assert told <= set(range(1, self.last + 1))
        self.told |= told
        assert self.stream.delete_expired() == (0, [])

    @rule(durable=DURABLES, pattern=PATTERNS, sequence=st.integers(1, 200))
    def ack(self, durable, pattern, sequence):
        known = self.positions.get((durable, pattern), 0)
        if sequence > self.last:
            try:
                self.stream.ack(durable, pattern, sequence)
            except penstock.OffsetAhead:
                return
            raise AssertionError("a position beyond the end")
        assert self.stream.ack(durable, pattern, sequence) == (sequence > known)
        self.positions[durable, pattern] = max(known, sequence)

    @rule(durable=DURABLES, pattern=PATTERNS, sequence=st.integers(0, 300))
    def put(self, durable, pattern, sequence):
        assert self.stream.update_consumer_position(durable, pattern, sequence) is True
        self.positions[durable, pattern] = sequence

    @rule(durable=DURABLES, pattern=PATTERNS, batch=st.integers(1, 100))
    def fetch(self, durable, pattern, batch):
        behind = self.positions.get((durable, pattern), 0)
        wanted = [row[0] for row in self.of(pattern) if row[0] > behind]
        assert [each.sequence for each in self.stream.fetch(durable, pattern, batch)] == wanted[:batch]
        assert self.stream.get_new_messages_count(pattern, durable) == len(wanted)

    @rule(pattern=PATTERNS, start=st.integers(0, 150), limit=st.integers(1, 60))
    def read(self, pattern, start, limit):
        wanted = [row for row in self.of(pattern) if row[0] >= start][:limit]
        assert self.stream.get_messages_by_subject(pattern, start, limit) == wanted

    @rule(sequence=st.integers(1, 250))
    def get(self, sequence):
        wanted = next((row for row in self.of("*") if row[0] == sequence), None)
        assert self.stream.get_message_by_sequence(sequence) == wanted

    @rule()
    def open_again(self):
        self.store.close()
        self.open()

    @invariant()
    def numbers_agree(self):
        assert self.stream.get_latest_sequence() == self.last
        rows = self.of("*")
        assert self.stream.get_message_count() == len(rows)
        subjects = {}
        for row in rows:
            subjects.setdefault(row[3], []).append(row[0])
        assert list(map(tuple, self.stream.get_subjects())) == [
            (subject, len(found), found[0], found[-1])
            for subject, found in sorted(subjects.items(), key=lambda pair: pair[0].encode())
        ]
        for pattern in ("a", "a.*", "*"):
            wanted = max((row[0] for row in self.of(pattern)), default=0)
            assert self.stream.get_latest_sequence_for_subject(pattern) == wanted
        assert {(d, s): p for d, s, p in self.stream.get_consumers()} == self.positions


TestStreamModel = StreamModel.TestCase
TestStreamModel.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
