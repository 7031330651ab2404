"""A bit flipped, a file cut, zeroed or removed, in every kind of file that a store has.

What was acknowledged must be there, or it is said that it is not: by the check, by opening, or by reading.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import penstock
from penstock import PenstockError, Store
from tests.chaos.journey import AUDIT, ORDERS, SENT, SPLIT, Account, Journey
from tests.chaos.outcome import Outcome
from tests.kit.stores import StoreVerifier

#: Kinds of files, by the path within the store; the first that fits.
KINDS: tuple[tuple[str, str], ...] = (
    ("waiting", r"^(delay|retries)/(?!.*\.lock$)"),
    ("state.db", r"^state\.db$"),
    ("state.db-wal", r"^state\.db-wal$"),
    ("locks", r"(state\.db-shm|/owner|retention|vacuum|\.lock|queue-readers|/consumers/[^/]+)$"),
    ("topic.json", r"^topics/[^/]+/topic\.json$"),
    ("append", r"/append$"),
    ("tail", r"/tail$"),
    ("rate", r"/rate$"),
    (".data", r"\.data$"),
    (".index", r"\.(index|timeindex)$"),
    (".staged", r"\.staged$"),
    (".keyindex", r"\.keyindex$"),
    (".producers", r"\.producers$"),
    ("left, told", r"/(left|told|swept)[^/]*$"),
)
#: Messages of a rich store that are not due for long.
WAITING = 6
HOW = ("flip", "cut", "zero", "remove")
#: SQLite has no checksums of its pages, and takes a damaged WAL for one that ends there: what a bit says of
#: positions and options may be wrong, and nobody can tell.
MAY_BE_SILENT = ("state.db", "state.db-wal")


class Mutation(NamedTuple):
    """What is done to which file."""

    kind: str
    path: str
    how: str

    def __str__(self) -> str:
        return f"{self.how} of {self.path}"


def kind_of(path: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, path)), "other")


def rich_store(folder: str, seed: int) -> Account:
    """A store with something of everything; its account knows what must be there.

    By chance it is as a process leaves it that is killed: with SQLite's log, and what it had staged.
    """
    working = folder + ".working"
    journey = Journey(working, seed)
    journey.play(60)
    journey.end()
    with penstock.open(working) as store:
        topic = store.create_topic("keyed", index="key", segment_bytes=4096, exists_ok=True)
        for number in range(40):
            topic.write(f"keyed:{number}" + "x" * 300, key=f"k{number % 3}")
            journey.account.promise("keyed", f"keyed:{number}" + "x" * 300)
        for number in range(WAITING):
            topic.write(f"waiting:{number}", delay="1h" if number % 2 else "2h")
        store.flush_housekeeping()
        topic.vacuum()
        if seed % 2:
            with suppress(_Killed), store.transaction() as tx:
                tx.write("keyed", bytes(300_000))
                shutil.copytree(working, folder)
                raise _Killed
    if not seed % 2:
        shutil.copytree(working, folder)
    return journey.account


class _Killed(Exception):
    """Nothing of this transaction is to come true."""


def paths_by_kind(folder: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(parent, name), folder)
            found.setdefault(kind_of(path), []).append(path)
    return {kind: sorted(paths) for kind, paths in found.items()}


def apply(folder: str, mutation: Mutation, chance: random.Random) -> None:
    path = os.path.join(folder, mutation.path)
    size = os.path.getsize(path)
    if mutation.how == "remove":
        os.unlink(path)
    elif mutation.how == "cut":
        os.truncate(path, chance.randrange(size) if size else 0)
    elif size:
        with open(path, "r+b") as file:
            at = chance.randrange(size)
            file.seek(at)
            length = 1 if mutation.how == "flip" else min(512, size - at)
            old = file.read(length)
            file.seek(at)
            file.write(
                bytes([old[0] ^ 1 << chance.randrange(8)]) if mutation.how == "flip" else bytes(length)
            )


class Look:
    """What the next programs find: what they say, and what they miss in silence."""

    def __init__(self, folder: str, account: Account) -> None:
        self._folder = folder
        self._account = account
        self.said: list[str] = []
        self.raw: list[str] = []
        self.missing: list[str] = []
        self.wrong: list[str] = []

    def look(self) -> None:
        for read_only in (True, False):
            self._attempt("verify", self._verify)
            self._attempt("open", lambda read_only=read_only: self._use(read_only=read_only))
        self._attempt("verify again", lambda: self._verify(after=True))

    def _attempt(self, what: str, act: object) -> None:
        try:
            act()  # type: ignore[operator]
        except PenstockError as error:
            self.said.append(f"{what}: {type(error).__name__}")
        except Exception as error:
            self.raw.append(f"{what}: raw {type(error).__name__}: {error}")

    def _verify(self, *, after: bool = False) -> None:
        verifier = StoreVerifier(self._folder)
        for found in verifier.findings():
            if found.severity == "damage" or "torn bytes" in found.what:
                self.said.append("verify")
        if after and verifier.checked.waiting < WAITING:  # a process that writes has mended it by now
            self.missing.append(f"{WAITING - verifier.checked.waiting} that wait")

    def _use(self, *, read_only: bool) -> None:
        with penstock.open(self._folder, create=False, read_only=read_only) as store:
            for name in (ORDERS, AUDIT, SENT, SPLIT, "keyed"):
                self._attempt(f"read {name}", lambda name=name: self._compare(store, name))
            if not read_only:
                self._attempt("write", lambda: self._write(store))

    def _compare(self, store: Store, name: str) -> None:
        topic = store.topic(name)
        texts, gaps = set(), []
        with topic.reader(follow=False, on_gap="skip") as reader:
            for message in reader:
                texts.add(message.text.strip() if name == AUDIT else message.text)
            gaps = reader.gaps
        if gaps:
            self.said.append(f"gaps in {name}")
        promised = self._account.promised.get(name, set())
        self.missing += sorted(promised - texts)
        self.wrong += sorted(texts - promised - self._account.tried.get(name, set()) - _own(texts))

    def _write(self, store: Store) -> None:
        for name in (ORDERS, SPLIT, "keyed"):
            topic = store.topic(name)
            receipt = topic.write(b"new", key="k0")
            assert topic.get(receipt.offset, partition=receipt.partition).value == b"new"
        with store.topic(SENT).writer(producer_id="shop") as writer:
            writer.write("1", key="k1", seqno=1)
        sent = Counter(message.text for message in store.topic(SENT).scan().messages())
        if sent["1"] > 1 and not self.said:
            self.wrong.append("what a producer sent again is there twice")
        with store.topic(ORDERS).reader(consumer="trying", follow=False, on_gap="skip") as reader:
            reader.receive_batch(10, timeout=0)
        with store.transaction() as tx:
            tx.write(AUDIT, "new")
        store.flush_housekeeping()
        store.topic(ORDERS).vacuum()


def _own(texts: set[str]) -> set[str]:
    return {text for text in texts if text == "new" or text.startswith("tx")}


def judged(mutation: Mutation, look: Look) -> tuple[str, list[str]]:
    """healed, said or silent; and what must not be."""
    problems = [f"{mutation}: {each}" for each in look.raw]
    if look.wrong:
        problems.append(f"{mutation}: never written: {look.wrong[:3]}")
    if look.missing and not look.said:
        if mutation.kind not in MAY_BE_SILENT:
            problems.append(f"{mutation}: lost in silence: {look.missing[:3]}")
        return "silent", problems
    return ("said" if look.said else "healed"), problems


def chosen(folder: str, chance: random.Random) -> Mutation:
    """Any kind of file as likely as any other."""
    by_kind = paths_by_kind(folder)
    kind = chance.choice(sorted(by_kind))
    return Mutation(kind, chance.choice(by_kind[kind]), chance.choice(HOW))


def mutations(folder: str, seed: int, each: int = 6) -> Outcome:
    """A rich store, and some mutations of copies of it."""
    chance, whole, copied = random.Random(seed), os.path.join(folder, "whole"), os.path.join(folder, "copy")
    account = rich_store(whole, seed)
    figures: dict[str, int] = {"mutations": 0}
    problems: list[str] = list(account.problems)
    for _ in range(each):
        shutil.copytree(whole, copied)
        mutation = chosen(copied, chance)
        with suppress(FileNotFoundError):
            apply(copied, mutation, chance)
        look = Look(copied, account)
        look.look()
        outcome, found = judged(mutation, look)
        problems += found
        figures["mutations"] += 1
        figures[f"{mutation.kind}: {outcome}"] = figures.get(f"{mutation.kind}: {outcome}", 0) + 1
        shutil.rmtree(copied)
    return Outcome(figures, problems)


def kinds_seen(folder: str) -> Iterator[str]:
    yield from paths_by_kind(folder)
