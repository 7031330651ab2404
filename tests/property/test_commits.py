"""Commits in any order against a plain model: the position is the first message that is not done."""

from hypothesis import given
from hypothesis import strategies as st

from tests.kit.consumers import Commits


@st.composite
def deliveries(draw):
    """Runs of offsets as a reader delivers them, with holes between some (never given out, or skipped)."""
    first = draw(st.integers(0, 50))
    at, runs = first, []
    for _ in range(draw(st.integers(1, 8))):
        at += draw(st.sampled_from([0, 0, 0, 1, 7]))
        stop = at + draw(st.integers(1, 6))
        runs.append((at, stop))
        at = stop
    return first, runs


def expected(first, runs, done):
    """Everything before the first message that is not done; behind the last one when all are."""
    position = first
    for run, stop in runs:
        for offset in range(run, stop):
            if offset not in done:
                return position
            position = offset + 1
    return position


@given(deliveries(), st.data())
def test_the_position_is_behind_the_contiguous_prefix_of_what_is_done(delivered, data):
    first, runs = delivered
    commits = Commits(first)
    offsets = [offset for run, stop in runs for offset in range(run, stop)]
    for run in runs:
        commits.deliver(*run)
    done = set()
    ranges = data.draw(
        st.lists(
            st.one_of(
                st.sampled_from(runs),  # a whole batch
                st.sampled_from(offsets).map(lambda offset: (offset, offset + 1)),  # a single message
            ),
            max_size=30,
        )
    )
    before = commits.position
    for begin, stop in ranges:
        moved = commits.commit(begin, stop)
        done.update(range(begin, stop))
        assert commits.position == expected(first, runs, done)
        assert moved == (commits.position > before)
        before = commits.position
    for offset in offsets:
        commits.commit(offset, offset + 1)
    assert commits.position == runs[-1][1] == commits.delivered


@given(deliveries(), st.data())
def test_commits_between_deliveries_go_the_same_way(delivered, data):
    first, runs = delivered
    commits, done, seen = Commits(first), set(), []
    for run in runs:
        commits.deliver(*run)
        seen.append(run)
        offsets = [offset for begin, stop in seen for offset in range(begin, stop)]
        for offset in data.draw(st.lists(st.sampled_from(offsets), max_size=8)):
            commits.commit(offset, offset + 1)
            done.add(offset)
            assert commits.position == expected(first, seen, done)


@given(deliveries(), st.integers(1, 20))
def test_what_was_not_delivered_cannot_be_committed(delivered, ahead):
    first, runs = delivered
    commits = Commits(first)
    for run in runs:
        commits.deliver(*run)
    end = runs[-1][1]
    try:
        commits.commit(end, end + ahead)
    except ValueError:
        assert commits.position == first
    else:
        raise AssertionError("it was accepted")


@given(deliveries(), st.integers(1, 9), st.data())
def test_what_is_passed_over_behind_the_last_message_is_done_with_it(delivered, more, data):
    first, runs = delivered
    commits = Commits(first)
    for run in runs:
        commits.deliver(*run)
    end = runs[-1][1]
    commits.skip(end + more)
    assert commits.position == first or first == end
    offsets = [offset for run, stop in runs for offset in range(run, stop)]
    for offset in data.draw(st.permutations(offsets)):
        assert commits.position < end + more
        commits.commit(offset, offset + 1)
    assert commits.position == commits.delivered == end + more
    assert commits.is_idle


@given(deliveries(), st.data())
def test_what_did_not_go_out_after_all_can_go_out_again(delivered, data):
    first, runs = delivered
    commits = Commits(first)
    for run in runs:
        commits.deliver(*run)
    at = data.draw(st.integers(0, len(runs) - 1))
    commits.rewind(runs[at][0])
    trial = commits.copy()
    for run in runs[at:]:
        commits.deliver(*run)
    for run in data.draw(st.permutations(runs)):
        commits.commit(*run)
    assert commits.position == runs[-1][1]
    for run in runs[:at]:
        trial.commit(*run)
    assert trial.position == (runs[at - 1][1] if at else first), "a trial leaves the original alone"
