"""The account of messages that left a partition, for a cleanup that must hear of each one.

A stream tells its caller which messages are gone, so that bodies kept elsewhere can be deleted. Retention
removes messages in any process, at any roll, so it writes down what goes before it goes:

    1  the messages of a trim are added to `left`, durably, as offset, key and Penstock's own headers
    2  the partition's start is moved
    3  the cleanup takes all that lie before the start, and all whose key's retention ended: they are
       moved to a file `left-….handed`, which the process keeps locked
    4  that file goes with the next take, and with an orderly end of the process

A process that is killed between 3 and 4 leaves a file that nobody has locked: the next cleanup reports its
messages again. So each is reported at least once, and twice only after a kill. What key retention ended may
lie in the log for long: `left.told` says up to which moment, and under which rules, it was reported.

Only a partition that has a file `left` keeps the account; opening a stream makes it. Until somebody takes
from it for the first time it is no larger than `UNASKED_BYTES`: beyond, messages go unnamed whose body
nobody gave a name, for the topic removes those bodies itself.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import weakref
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

import msgspec

from penstock.checksum import crc32
from penstock.errors import Corrupt, OffsetTrimmed
from penstock.files import Files, read_whole, replace
from penstock.log.cursor import Cursor
from penstock.log.key_retention import KeyDurations, KeyFloors
from penstock.log.log import Log
from penstock.message import Message
from penstock.options import Rule
from penstock.parse import MIB

logger = logging.getLogger("penstock.retention")

ACCOUNT, TOLD, HANDED = "left", "left.told", ".handed"
UNASKED_BYTES = 64 * MIB

#: Before each block of the account: its length and its CRC-32.
_BLOCK = Struct("<II")
_BLOCK_MESSAGES, _READ_BYTES = 10_000, 16 * MIB
_OWN = "penstock-"


class LeftMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message that left, or is about to."""

    offset: int
    key: bytes | None
    #: Penstock's own, such as the name of a body.
    headers: dict[str, str]
    #: It left by its key's retention, wherever the partition begins.
    by_key: bool = False


class _Told(NamedTuple):
    """Everything whose retention had ended at a moment, under these rules, was reported."""

    rules: tuple[Rule, ...]
    moment_ns: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[LeftMessage])
_told_decoder = msgspec.json.Decoder(list[_Told])


class LeftMessages:
    """The account of one partition. Those who change it hold the partition's housekeeping lock."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._files: Files = log.folder.files
        self._path = log.folder.name(ACCOUNT)
        self._in_hand = _InHand(self._files)
        self._finalizer = weakref.finalize(self, self._in_hand.settle)

    @property
    def is_kept(self) -> bool:
        """Whether this partition has an account."""
        return self._files.exists(self._path)

    def begin(self) -> None:
        """Keep an account from now on."""
        if not self.is_kept:
            replace(self._files, self._path, b"")
            self._files.sync_dir(self._log.folder.path)

    def add(self, first: int, stop: int) -> None:
        """Write down the messages from `first` up to `stop`, durably, since they are about to go."""
        told = [self._floors(each) for each in self._told() or ()]
        self._append(
            _left(message)
            for message in _messages(self._log, first, stop)
            if not any(floors.has_expired(message) for floors in told)
        )

    def take(self, since_ns: int | None = None) -> list[LeftMessage]:
        """Return all that left and was not reported yet, ascending; reported again only if this process dies.

        `since_ns` is up to when an older version reported what key retention ended.
        """
        self._in_hand.settle()
        self._add_ended(since_ns)
        start = self._log.stored().start
        found = {each.offset: each for each in self._read(self._path)}
        left = {offset: each for offset, each in found.items() if offset < start or each.by_key}
        orphans = list(self._orphans())
        for path in orphans:
            left |= {each.offset: each for each in self._read(path)}
        if not left:
            return []
        taken = [left[offset] for offset in sorted(left)]
        self._hand_out(taken, [each for offset, each in found.items() if offset not in left])
        for path in orphans:
            self._files.unlink(path)
        return taken

    def settle(self) -> None:
        """Forget what was taken: it has been dealt with."""
        self._in_hand.settle()

    # Inside.

    def _hand_out(self, taken: list[LeftMessage], rest: list[LeftMessage]) -> None:
        folder = self._log.folder
        path = folder.name(f"{ACCOUNT}-{secrets.token_hex(8)}{HANDED}")
        replace(self._files, path, b"".join(_blocks(taken)))
        self._files.sync_dir(folder.path)
        self._in_hand.hold(path)
        replace(self._files, self._path, b"".join(_blocks(rest)))
        self._files.sync_dir(folder.path)

    def _orphans(self) -> Iterator[str]:
        """Files of processes that were killed with messages in hand."""
        folder = self._log.folder
        for name in sorted(self._files.listdir(folder.path)):
            is_handed = name.startswith(f"{ACCOUNT}-") and name.endswith(HANDED)
            if is_handed and not _is_locked(self._files, folder.name(name)):
                yield folder.name(name)

    def _add_ended(self, since_ns: int | None) -> None:
        """Write down what key retention ended, and that it was reported."""
        log, rules = self._log, self._log.options.key_retention
        history = self._told()
        is_new = history is None
        history = [] if history is None else history
        if is_new and since_ns is not None:
            history.append(_Told(rules, since_ns))
        if rules:
            now_ns = log.folder.clock.now_ns()
            floors = self._floors(_Told(rules, now_ns))
            told = [self._floors(each) for each in history]
            start = log.stored().start
            self._append(
                _left(message, by_key=True)
                for message in _messages(log, start, floors.highest)
                if floors.has_expired(message) and not any(each.has_expired(message) for each in told)
            )
            kept = [each for each, reach in zip(history, told, strict=True) if reach.highest > start]
            history = [each for each in kept if each.rules != rules] + [_Told(rules, now_ns)]
        if is_new or rules:
            replace(self._files, self._log.folder.name(TOLD), msgspec.json.encode(history))
            self._files.sync_dir(log.folder.path)

    def _told(self) -> list[_Told] | None:
        data = read_whole(self._files, self._log.folder.name(TOLD))
        try:
            return _told_decoder.decode(data) if data else None
        except msgspec.DecodeError as error:
            logger.warning("%s cannot be read, some messages are reported again: %s", self._path, error)
            return []

    def _floors(self, told: _Told) -> KeyFloors:
        return KeyFloors(
            KeyDurations(told.rules), lambda lasting: self._log.offset_at(told.moment_ns - lasting)
        )

    def _append(self, messages: Iterable[LeftMessage]) -> None:
        """Add to the account; on disk when it returns. What a crash tore is written over."""
        fd = self._files.open(self._path, create=True)
        try:
            begin = at = _sound_bytes(self._files.pread(fd, self._files.size(fd), 0))
            self._files.truncate(fd, at)
            for block in _blocks(self._worth_noting(messages, is_large=at >= UNASKED_BYTES)):
                at += self._files.pwrite(fd, block, at)
            if at > begin:
                self._files.sync(fd)
        finally:
            self._files.close(fd)

    def _worth_noting(self, messages: Iterable[LeftMessage], *, is_large: bool) -> Iterator[LeftMessage]:
        """Leave out what nobody misses, once an account for which nobody ever asked has become large."""
        if is_large and not self._files.exists(self._log.folder.name(TOLD)):
            return (message for message in messages if message.headers)
        return iter(messages)

    def _read(self, path: str) -> Iterator[LeftMessage]:
        data = read_whole(self._files, path)
        for begin, end in _sound_blocks(data):
            yield from _decoder.decode(data[begin:end])


class _InHand:
    """What one process has taken: a locked file, until it is dealt with."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._held: tuple[str, int, int] | None = None

    def hold(self, path: str) -> None:
        fd = self._files.open(path)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._held = path, fd, os.getpid()

    def settle(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return
        path, fd, pid = held
        if pid == os.getpid():  # a child that was forked has it open, but not in hand
            try:
                self._files.unlink(path)
            except OSError:
                pass  # its topic was dropped
        self._files.close(fd)


def _is_locked(files: Files, path: str) -> bool:
    fd = files.open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        files.close(fd)
    return False


def _left(message: Message, *, by_key: bool = False) -> LeftMessage:
    own = {
        name: value if isinstance(value, str) else value.decode(errors="replace")
        for name, value in message.headers.items()
        if name.startswith(_OWN)
    }
    return LeftMessage(message.offset, message.key, own, by_key)


def _messages(log: Log, first: int, stop: int) -> Iterator[Message]:
    """Read all messages between two offsets, also those that key retention ended; damage is skipped."""
    cursor = Cursor(log.segments, first, far=True)
    while cursor.offset < stop:
        try:
            rows = cursor.read(_BLOCK_MESSAGES, _READ_BYTES, stop)
        except (Corrupt, OffsetTrimmed) as error:
            behind = error.stop if isinstance(error, Corrupt) else error.first
            if behind is None or behind <= cursor.offset:
                return
            cursor.offset = behind
            continue
        if not rows:
            return
        for each in rows:
            yield from each.messages()


def _blocks(messages: Iterable[LeftMessage]) -> Iterator[bytes]:
    """Messages as blocks with a checksum each."""
    block: list[LeftMessage] = []
    for message in messages:
        block.append(message)
        if len(block) == _BLOCK_MESSAGES:
            yield _packed(block)
            block = []
    if block:
        yield _packed(block)


def _packed(block: list[LeftMessage]) -> bytes:
    data = _encoder.encode(block)
    return _BLOCK.pack(len(data), crc32(data)) + data


def _sound_blocks(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each whole block begins and ends; one that a crash tore ends them."""
    at = 0
    while at + _BLOCK.size <= len(data):
        length, check = _BLOCK.unpack_from(data, at)
        begin = at + _BLOCK.size
        at = begin + length
        if at > len(data) or crc32(data[begin:at]) != check:
            return
        yield begin, at


def _sound_bytes(data: bytes) -> int:
    """Where the last whole block ends."""
    sound = max((end for _, end in _sound_blocks(data)), default=0)
    if sound < len(data):
        logger.warning("%d bytes of an account of messages that left were torn by a crash", len(data) - sound)
    return sound
