"""Check a folder of waiting messages: its states, and every record that is not finished; never writes.

Others may store, take and remove files meanwhile: what looks wrong is looked at again before it is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from penstock.delay import checksums, file_names, file_repair, states
from penstock.delay.file_reader import FileReader, RecordBlock
from penstock.delay.states import ENTRY_BYTES_MAX, FileState, Loaded, decode_changes, fold
from penstock.files import Files
from penstock.findings import Finding, damage, note

#: States that do not fit together are read again so often: somebody may be replacing them.
_LOOKS = 5


class FolderVerifier:
    """Checks one folder. Take `findings` once; the counts grow along."""

    def __init__(self, folder: str, files: Files, progress: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._files = files
        self._progress = progress
        #: Records that wait and are sound.
        self.messages = 0
        self.bytes = 0

    def findings(self) -> Iterator[Finding]:
        """Everything that is wrong; empty when nothing is."""
        loaded = self._load()
        if loaded is None:
            yield from self._no_states()
            return
        yield from self._log_findings(loaded)
        known = fold(loaded.states, loaded.changes)
        for state in known.values():
            yield from self._file_findings(state)
        yield from self._strangers(known)

    # States.

    def _load(self) -> Loaded | None:
        for _ in range(_LOOKS):
            loaded = states.load(self._folder, self._files)
            if loaded is not None:
                return loaded
        return None

    def _no_states(self) -> Iterator[Finding]:
        path = os.path.join(self._folder, states.LOG)
        if self._files.exists(path) or file_repair.found(self._folder, self._files):
            what = "the states do not fit together: all that waits is delivered again, also what was finished"
            yield damage(path, 0, what)

    def _log_findings(self, loaded: Loaded) -> Iterator[Finding]:
        """Bytes behind the last sound entry: torn, unless sound ones lie behind them."""
        if not loaded.torn:
            return
        path = os.path.join(self._folder, states.LOG_NEXT if loaded.is_next else states.LOG)
        data = states.read_file(self._files, path) or b""
        last = loaded.changes[-1].id if loaded.changes else loaded.header.id
        if next(decode_changes(data[loaded.end :], last), None) is not None:
            return  # it was being written
        for at in range(loaded.end + 1, len(data)):
            if next(decode_changes(data[at : at + 2 * ENTRY_BYTES_MAX], last), None) is not None:
                what = "a damaged entry: what was finished behind it is delivered again"
                yield damage(path, loaded.end, what)
                return
        yield note(path, loaded.end, f"{loaded.torn} torn bytes: cut off when it is next opened")

    def _strangers(self, known: dict[str, FileState]) -> Iterator[Finding]:
        """Files that no state names, and bytes that were put aside."""
        fresh = {state.name for state in self._states_again()}
        for name, _ in file_repair.found(self._folder, self._files):
            path = file_names.data_path(self._folder, name)
            if name not in known and name not in fresh and self._files.exists(path):
                what = "no state names it: taken over or removed when it is next opened"
                yield note(path, None, what)
        for path in _set_aside(self._folder, self._files):
            yield note(path, None, "damaged bytes that were put aside earlier, to be looked at")

    def _states_again(self) -> list[FileState]:
        loaded = self._load()
        return [] if loaded is None else list(fold(loaded.states, loaded.changes).values())

    # Files.

    def _file_findings(self, state: FileState) -> Iterator[Finding]:
        path = file_names.data_path(self._folder, state.name)
        try:
            reader = FileReader(self._folder, state.name, self._files, state.offset)
        except FileNotFoundError:
            if any(again.name == state.name for again in self._states_again()):
                yield damage(path, None, "the file is missing, and what waited in it")
            return
        if not self._files.exists(file_names.sums_path(self._folder, state.name)):
            yield note(path, None, "its checksums are missing: records are taken as they parse")
        try:
            yield from self._block_findings(reader, state)
        except FileNotFoundError:
            return  # finished and removed meanwhile

    def _block_findings(self, reader: FileReader, state: FileState) -> Iterator[Finding]:
        last = state.replay
        while blocks := reader.read(None if state.is_written else state.len):
            self._progress()
            for block in blocks:
                self.bytes += block.end - block.begin
                times = _times(block, state.offset)
                if times is None:
                    yield self._damaged(reader, block, state)
                    continue
                if times and (times[0] < last or times != sorted(times)):
                    yield damage(reader.path, block.begin, "records are not in the order of their times")
                self.messages += len(times)
                last = max(times, default=last)

    def _damaged(self, reader: FileReader, block: RecordBlock, state: FileState) -> Finding:
        length = block.end - block.begin
        if state.is_written and block.begin >= self._sound_end(state.name):
            what = f"{length} torn bytes: cut off by the next process that stores here"
            return note(reader.path, block.begin, what)
        what = f"{length} damaged bytes of waiting messages; those around them are delivered"
        return damage(reader.path, block.begin, what)

    def _sound_end(self, name: str) -> int:
        """Where a file that is written ends once its torn tail is cut off."""
        data = states.read_file(self._files, file_names.sums_path(self._folder, name)) or b""
        entries = list(checksums.layout(name).entries(data))
        fd = self._files.open(file_names.data_path(self._folder, name), write=False)
        try:
            keep = file_repair.sound_entries(entries, self._files, fd)
        finally:
            self._files.close(fd)
        return next((entry.end for entry in reversed(entries[:keep]) if entry is not None), 0)


def _times(block: RecordBlock, offset: int) -> list[int] | None:
    """When the records of a block are due in their file; None when it is damaged."""
    if not block.is_sound:
        return None
    try:
        return [ripe for ripe, at in block.records(_ripe) if at >= offset]
    except ValueError:
        return None


def _ripe(
    due: int, rest: int, record_id: bytes, topic: str, attempts: int, data: bytes, at: int
) -> tuple[int, int]:
    return due - rest, at


def _set_aside(folder: str, files: Files) -> Iterator[str]:
    for name in sorted(files.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".damaged"):
            yield path
        elif os.path.isdir(path):
            yield from (os.path.join(path, each) for each in files.listdir(path) if each.endswith(".damaged"))
