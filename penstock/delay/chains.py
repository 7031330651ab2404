"""The chains of a folder: which one a message waits in, and appending to several of them under one lock.

A message with a fixed delay waits in the chain of just that delay, made at its first use. What has no fixed
delay, and any further delay where a folder has `CHAINS_MAX` chains, waits on the ladder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from penstock.delay.chain import AppendedBlock, Chain
from penstock.delay.file_names import ChainKind, ChainName, rung
from penstock.delay.ladder import Ladder
from penstock.delay.records import Block, RecordColumns, blocks
from penstock.delay.state_table import StateTable

#: So many delays have chains of their own in a folder; more would be more files than they are worth.
CHAINS_MAX = 256
#: So many chains have their files open.
OPEN_MAX = 32
#: A wait that began longer ago is no fixed delay any more: in a chain it would hold up what comes behind it.
LATE_MS = 1000

Appended = list[tuple[Chain, AppendedBlock]]
Part = tuple[Chain, Sequence[Block]]


class Chains:
    """The chains of a folder, for writing. Threads may share them."""

    def __init__(self, table: StateTable, ladder: Ladder, make: Callable[[ChainName], Chain]) -> None:
        self.ladder = ladder
        self._table = table
        self._make = make
        self._mutex = threading.Lock()
        self._chains: dict[ChainName, Chain] = {}
        #: Those with open files, the least recently used first; under the states' lock.
        self._open: dict[ChainName, Chain] = {}

    def chain(self, name: ChainName) -> Chain:
        """Return the chain of that name, made when first asked for."""
        chain = self._chains.get(name)
        if chain is None:
            with self._mutex:
                chain = self._chains.get(name)
                if chain is None:
                    chain = self._chains[name] = self._make(name)
        return chain

    def chain_for(self, wait_ms: int, *, is_fixed: bool) -> Chain:
        """Return the chain where a message waits that is due after so long."""
        if not is_fixed:
            return self.chain(rung(self.ladder.rung(wait_ms)))
        name = ChainName(wait_ms, ChainKind.FIXED)
        if name not in self._table.chains and self._is_crowded():
            return self.chain_for(wait_ms, is_fixed=False)
        return self.chain(name)

    def parts(self, entries: RecordColumns, now_ms: int, *, is_fixed: bool) -> list[Part]:
        """Checked messages as blocks of the chains they wait in."""
        if entries.begun is not None and (not is_fixed or entries.begun[0] < now_ms - LATE_MS):
            entries, is_fixed = _from_now(entries, now_ms), False
        by_wait = {wait: self.chain_for(wait, is_fixed=is_fixed) for wait in set(entries.waits)}
        if len(set(by_wait.values())) == 1:
            chain = by_wait[entries.waits[0]]
            return [(chain, _blocks(chain, entries, now_ms))]
        places: dict[Chain, list[int]] = {}
        for place, wait in enumerate(entries.waits):
            places.setdefault(by_wait[wait], []).append(place)
        return [(chain, _blocks(chain, entries.take(chosen), now_ms)) for chain, chosen in places.items()]

    def append(self, parts: Iterable[Part], now_ms: int) -> Appended:
        """Append blocks to their chains; they are not durable yet."""
        appended: Appended = []
        lock = self._table.lock
        try:  # as `hold`, which costs a microsecond
            lock.acquire()
            self._table.catch_up()
            for chain, each in parts:
                self._open.pop(chain.name, None)
                self._open[chain.name] = chain
                appended += [(chain, chain.append(block, now_ms)) for block in each]
            while len(self._open) > OPEN_MAX:
                self._open.pop(next(iter(self._open))).release()
            lock.release()
        except BaseException:
            lock.drop()
            raise
        return appended

    def sync(self, appended: Appended) -> None:
        """Return when all of these are durable."""
        last = {(place.name, chain): place for chain, place in appended}
        for (_, chain), place in last.items():
            chain.sync(place)

    def close(self) -> None:
        """Release every chain."""
        for chain in self._chains.values():
            chain.release()

    def _is_crowded(self) -> bool:
        """Whether so many delays have files that no further one may."""
        return sum(each.kind is ChainKind.FIXED for each in self._table.chains) >= CHAINS_MAX


def _blocks(chain: Chain, entries: RecordColumns, now_ms: int) -> list[Block]:
    if not chain.has_rests:
        return blocks(entries, None)
    return blocks(_from_now(entries, now_ms), chain.delay_ms)


def _from_now(entries: RecordColumns, now_ms: int) -> RecordColumns:
    """The entries with what is left of their waits."""
    if entries.begun is None:
        return entries
    left = [max(begun + wait - now_ms, 0) for begun, wait in zip(entries.begun, entries.waits, strict=True)]
    return entries._replace(waits=left, begun=None)
