"""Writes to one partition measured and held to a quota, for all processes together, by the record R.

Measuring costs an append one comparison; once every tenth of the window somebody takes a sample. A quota is
reserved under the append lock and waited for outside it: those who wait queue up in the order in which they
came, and a writer that waits holds up nobody else.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.clock import NANOSECONDS
from penstock.errors import WriteTimeout
from penstock.growth_rules import DISABLED
from penstock.locks import hold, try_hold
from penstock.log.folder import Folder
from penstock.log.rate_policy import SAMPLES, RateSample, is_hot, reserved, write_rate
from penstock.log.rate_record import RateFile, RateRecord, counted
from penstock.log.records import AppendRecord
from penstock.options import TopicOptions


class QuotaTerms(NamedTuple):
    """How a quota applies to a write: how long it may be held back, and whether it is at all."""

    #: Seconds; None is for ever.
    timeout_s: float | None = None
    #: False: it is taken out of the quota at once, and those behind it wait the longer.
    is_held: bool = True


#: What holds for most writes.
HELD = QuotaTerms()
#: For those who cannot wait, since others would have to wait for them.
CHARGED = QuotaTerms(is_held=False)


class WriteMeter:
    """What one process does to measure and limit the writes to a partition."""

    def __init__(self, folder: Folder, options: TopicOptions) -> None:
        self._folder = folder
        self._file = RateFile(folder)
        #: When the next sample is due, in seconds.
        self._due = 0.0
        #: Whether the partition was written to at its speed throughout the window, by the latest sample.
        self.is_hot = False
        self._is_noticed = False
        self.use(options)

    def use(self, options: TopicOptions) -> None:
        """Go by these options from now on."""
        self._limit = options.write_limit
        #: Writers are held to the speed; otherwise they are only measured.
        self.is_limited = self._limit is not None
        self._speed = options.partition_write_speed
        #: Over so long writes are measured; so much of the speed throughout is too much for one partition.
        self._window = round(options.stabilization_window_s * NANOSECONDS)
        self._percent = options.up_utilization_percent

    def admit(self, size: int, terms: QuotaTerms, *, tree: int | None, wait: bool) -> float | None:
        """Reserve so many bytes of the quota, and wait for one's turn; seconds waited.

        With `wait=False` None when there is something to wait for, and nothing is reserved. Raises
        `WriteTimeout` when it takes longer than `terms` allow; nothing is reserved then either. Nor is it
        when `tree` is no longer the number of the partition tree: the append refuses, the quota may be new.
        """
        if self._limit is None:
            return 0.0
        timeout, is_held = terms
        most = 0 if not wait else None if timeout is None else round(timeout * NANOSECONDS)

        def reserve() -> int:
            a = self._folder.read_append()
            is_old = a is not None and tree is not None and a.tree != tree & 0xFFFF
            if is_old:
                return 0
            return self._reserve(size, most) if is_held else self.charge(size)

        if not wait:
            return 0.0 if try_hold(self._folder.append, reserve) == 0 else None
        held = hold((self._folder.append,), reserve)
        if held:
            self._folder.clock.sleep((held if most is None else min(held, most)) / NANOSECONDS)
        if most is not None and held > most:
            raise WriteTimeout(
                f"{self._folder.path}: partition_write_speed is {self._speed} bytes a second, and the quota "
                f"would have to be waited for {held / NANOSECONDS:.1f} s, longer than {timeout:g} s",
                hint="write it again later, write more slowly, or raise partition_write_speed",
            )
        return held / NANOSECONDS

    def charge(self, size: int) -> int:
        """Take so many bytes out of the quota; 0: nothing is to be waited for. The append lock is held."""
        if self._limit is not None:
            record = self._file.read()
            arrival, _ = reserved(record.arrival, self._now(), size, *self._limit)
            self._file.write(record._replace(arrival=arrival))
        return 0

    def appended(self, a: AppendRecord) -> None:
        """Take a sample if a tenth of the window has passed. The append lock is held."""
        if self._folder.clock.monotonic() >= self._due:
            self._sample(self._now(), a)

    def notice(self) -> bool:
        """Whether the partition is hot, reported once for each sample."""
        is_new = self.is_hot and not self._is_noticed
        self._is_noticed = True
        return is_new

    def write_rate(self) -> float | None:
        """Bytes a second over the window; None where nothing was measured yet."""
        record, a = self._file.read(), self._folder.read_append()
        if a is None or record.segment < 0:
            return None
        now = self._now()
        return write_rate([*record.samples, self._present(record, a, now)], now, self._window)

    def waited(self) -> float:
        """For how many seconds writers were held back since the machine was started, all together."""
        return self._file.read().waited / NANOSECONDS

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        self._file.close()

    # Inside.

    def _now(self) -> int:
        return round(self._folder.clock.monotonic() * NANOSECONDS)

    def _reserve(self, size: int, most: int | None) -> int:
        """How long to wait for so many bytes; reserved, unless that is longer than `most`."""
        record, limit = self._file.read(), self._limit
        assert limit is not None
        arrival, held = reserved(record.arrival, self._now(), size, *limit)
        if most is None or held <= most:
            self._file.write(record._replace(arrival=arrival, waited=record.waited + held))
        return held

    def _sample(self, now: int, a: AppendRecord) -> None:
        tenth = self._window // SAMPLES
        record = counted(self._file.read(), a, self._folder)
        samples = record.samples
        if samples and now < samples[-1].at + tenth:  # another process was quicker
            self._due = (samples[-1].at + tenth) / NANOSECONDS
            return
        present = self._present(record, a, now)
        self._is_noticed = False
        self.is_hot = is_hot([*samples, present], now, self._speed, self._window, self._percent)
        self._file.write(record._replace(samples=(*samples, present)[-SAMPLES:]))
        self._due = (now + tenth) / NANOSECONDS

    def _present(self, record: RateRecord, a: AppendRecord, now: int) -> RateSample:
        return RateSample(now, counted(record, a, self._folder).before + a.byte)


def meter_of(folder: Folder, options: TopicOptions) -> WriteMeter | None:
    """A meter for a partition whose writes are measured or limited; None for all others."""
    is_wanted = options.write_quota or options.autopartitioning != DISABLED
    return WriteMeter(folder, options) if is_wanted else None
