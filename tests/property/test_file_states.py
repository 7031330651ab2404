"""States of files of waiting messages: any snapshot with any torn log is the state at some point."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.waiting import (
    READING,
    WRITING,
    Change,
    FileState,
    Operation,
    StateId,
    decode_changes,
    decode_snapshot,
    encode_change,
    encode_snapshot,
    fold,
    uvarint,
)
from tests.kit.waiting import records_module as records

numbers = st.integers(0, 2**63)


@st.composite
def histories(draw):
    """Changes as they happen; ids grow, the clock does not always."""
    last, changes, known, made = StateId(draw(numbers) >> 8, 0), [], {}, 0
    for _ in range(draw(st.integers(0, 25))):
        last = last.following(draw(numbers) >> 8)
        kinds = list(Operation) if known else [Operation.CREATE]
        kind = draw(st.sampled_from(kinds))
        name = (
            f"30@2022042817-{made + 1:012d}.data"
            if kind is Operation.CREATE
            else draw(st.sampled_from(sorted(known)))
        )
        if kind is Operation.CREATE:
            made += 1
            change = Change(kind, last, name, draw(numbers) >> 2, draw(numbers) >> 2)
            known[name] = True
        elif kind in (Operation.STOP_WRITING, Operation.SHIFT):
            change = Change(kind, last, name, draw(st.integers(0, 2**40)))
        else:
            change = Change(kind, last, name)
            if kind is Operation.DELETE:
                del known[name]
        changes.append(change)
    return changes


def naive(changes):
    """The same by hand."""
    files = {}
    for kind, state_id, name, first, second in changes:
        if kind is Operation.CREATE:
            files[name] = [state_id, WRITING, 0, 0, first + second]
            continue
        if kind is Operation.DELETE:
            del files[name]
            continue
        files[name][0] = state_id
        if kind is Operation.STOP_WRITING:
            files[name][1] &= READING
            files[name][3] = first
        elif kind is Operation.OPEN_FOR_READING:
            files[name][1] |= READING
        else:
            files[name][2] += first
    return {name: FileState(name, *fields) for name, fields in files.items()}


@given(histories(), st.data())
def test_a_snapshot_and_what_is_left_of_the_log_are_the_state_at_some_point(changes, data):
    """S003-15, S003-16: whatever the snapshot has seen, and wherever the log is torn."""
    cut = data.draw(st.integers(0, len(changes)))
    snapshot = encode_snapshot(fold({}, changes[:cut]).values())
    entries = [encode_change(change) for change in changes[cut:]]
    log = b"".join(entries)
    torn = data.draw(st.integers(0, len(log)))
    garbage = data.draw(st.binary(max_size=30))
    seen = changes[cut - 1].id if cut else StateId(0, 0)
    found = list(decode_changes(log[:torn] + garbage if torn < len(log) else log, seen))
    whole = next((n for n in range(len(entries), -1, -1) if sum(map(len, entries[:n])) <= torn), 0)
    assert len(found) >= whole
    kept = [change for change, _ in found][:whole]
    assert fold(decode_snapshot(snapshot), kept) == naive(changes[: cut + whole])


@given(histories())
def test_changes_and_snapshots_come_back_as_they_were(changes):
    data = b"".join(map(encode_change, changes))
    assert [change for change, _ in decode_changes(data, StateId(0, 0))] == changes
    states = fold({}, changes)
    assert decode_snapshot(encode_snapshot(states.values())) == states


@given(histories(), st.data())
def test_a_flipped_bit_in_the_log_is_never_taken_for_a_change(changes, data):
    log = bytearray(b"".join(map(encode_change, changes)))
    if log:
        log[data.draw(st.integers(0, len(log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        found = [change for change, _ in decode_changes(bytes(log), StateId(0, 0))]
        assert found == changes[: len(found)]
        assert len(found) < len(changes)


@given(st.integers(0, 2**64))
def test_uvarints_come_back(number):
    data = b"x" + uvarint.encode_uvarint(number) + b"y"
    assert uvarint.decode_uvarint(data, 1) == (number, len(data) - 1)


entry = st.builds(
    records.NewRecord,
    st.sampled_from([1000, 1001, 4999]),
    st.binary(min_size=16, max_size=16),
    st.sampled_from(["", "orders", "ö" * 100]),
    st.sampled_from([0, 1, 127, 128, 2**40]),
    st.one_of(st.just(bytes(200)), st.binary(max_size=300)),
)


def come_back(entries, rung_ms):
    found, at = [], 0
    for block in records.blocks(records.columns(entries), rung_ms):
        data = block.at(77)
        assert len(data) == block.size
        places = [at + begin for begin in block.begins()]
        has_rests = rung_ms is not None
        decoded = records.decode(data, at, len(block.ids), has_rests, lambda *row: row)
        assert decoded == records.decode(data, at, None, has_rests, lambda *row: row)
        assert [row[-1] for row in decoded] == places
        found += decoded
        at += len(data)
    return [row[:-1] for row in found]


@given(st.lists(entry, min_size=1, max_size=30))
def test_records_come_back_as_they_were_however_alike(entries):
    """S003-06."""
    expected = [(77, 0, e.id, e.topic, e.attempts, e.data) for e in entries]
    assert come_back(entries, None) == expected


@given(st.lists(entry, min_size=1, max_size=30))
def test_records_of_the_ladder_come_back_with_their_rests(entries):
    rests = [e.wait_ms - 1000 for e in entries]
    expected = [(77 + r, r, e.id, e.topic, e.attempts, e.data) for e, r in zip(entries, rests, strict=True)]
    assert come_back(entries, 1000) == expected


@given(st.lists(entry, min_size=1, max_size=30), st.lists(st.integers(0, 50), min_size=30, max_size=30))
def test_records_are_ordered_by_their_planned_times(entries, steps):
    """S003-05: T1 <= T2 in a file, by the first field of its records, and none before what lies there."""
    begun = [1000 + sum(steps[: n + 1]) for n in range(len(entries))]
    columns = records.columns([e._replace(wait_ms=500) for e in entries])._replace(begun=begun)
    (block,) = records.blocks(columns, None)
    data, first, last = block.written(0, 1600)
    dues = [row[0] for row in records.decode(data, 0, None, False, lambda *row: row)]
    assert dues == [max(each + 500, 1600) for each in begun]
    assert (first, last) == (dues[0], dues[-1])
