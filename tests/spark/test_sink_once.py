"""Which commit is new, which is a repetition, and which is neither: no Spark, no files."""

import pytest

from penstock.errors import ConflictError
from tests.kit.sinks import WriterCommit, commits, is_repeated, superseded

QUERY, OTHER = "6a1f", "9c0d"


def stream(number: int, rows: int = 10, *, query: str = QUERY, app: str | None = None) -> WriterCommit:
    return WriterCommit(query, number, rows, app)


def batch(version: int, rows: int = 10) -> WriterCommit:
    return WriterCommit(None, version, rows, "app")


@pytest.mark.parametrize(
    "commit",
    [
        stream(3), stream(3, app="a/b c"), WriterCommit(None, 3, 10, "nightly/é"),
        WriterCommit(None, 3, 10, "a", topic=0x5F), WriterCommit("q", 3, 10, "a", topic=2**63),
        WriterCommit("q", 3, 10, "a", mark="5f0c"), WriterCommit("q", 3, 10, mark="5f0c"),
    ],
)  # fmt: skip
def test_names_are_read_back(commit):
    assert commit.name.startswith(commit.series)
    assert commits([commit.name], commit) == [commit]


def test_names_of_different_writers_never_meet():
    writers = [stream(1), stream(1, query=OTHER), stream(1, app="a"), stream(1, app="a/6a1f"), batch(1)]
    for one in writers:
        assert [other for other in writers if other.name.startswith(one.series)] == [one]


def test_next_batch_is_new_and_the_last_one_a_repetition():
    past = [stream(4), stream(5)]
    assert not is_repeated(stream(0), [])
    assert not is_repeated(stream(6), past)
    assert is_repeated(stream(5), past)


def test_earlier_batch_is_refused_for_it_comes_from_a_stale_driver_or_an_old_checkpoint():
    for number in (3, 4):
        with pytest.raises(ConflictError, match=f"batch {number} .* after 5 was committed.*another driver"):
            is_repeated(stream(number), [stream(4), stream(5)])


def test_last_batch_with_other_rows_is_not_skipped():
    """A checkpoint put back by one batch plans it anew, with whatever has come since."""
    with pytest.raises(ConflictError, match="committed with 10 rows and comes again with 25"):
        is_repeated(stream(5, 25), [stream(5)])


def test_last_batch_with_as_many_rows_from_other_offsets_is_not_skipped():
    """A checkpoint put back by one batch, whose source then grew by as many messages as before."""
    past = [stream(5)._replace(mark="5f0c")]
    assert is_repeated(stream(5)._replace(mark="5f0c"), past)
    assert is_repeated(stream(5), past)  # where the checkpoint cannot be looked at, rows are counted
    assert is_repeated(stream(5)._replace(mark="5f0c"), [stream(5)])  # of before there were marks
    with pytest.raises(ConflictError, match=r"batch 5 .* was committed from other offsets"):
        is_repeated(stream(5)._replace(mark="77aa"), past)


def test_new_checkpoint_with_the_same_app_is_refused_whatever_its_number():
    past = [stream(5, app="app")]
    for number in (0, 5, 6):
        with pytest.raises(ConflictError, match=f"'app' belongs to .*{QUERY}.*this is .*{OTHER}"):
            is_repeated(stream(number, query=OTHER, app="app"), past)
    with pytest.raises(ConflictError, match="belongs to batch writes"):
        is_repeated(stream(0, app="app"), [batch(1)])


def test_versions_of_batch_writes_come_in_any_order_and_each_once():
    past = [batch(7), batch(3)]
    assert is_repeated(batch(3), past)
    assert is_repeated(batch(7), past)
    assert not is_repeated(batch(5), past)
    with pytest.raises(ConflictError, match=r"txnVersion 3 of 'app' was committed with 10 rows .* with 11"):
        is_repeated(batch(3, 11), past)


def test_only_the_last_batch_of_a_query_is_remembered():
    past = [stream(4), stream(5)]
    assert superseded(stream(6), past) == past
    assert superseded(batch(8), [batch(7)]) == []


def test_batches_that_a_store_put_back_has_lost_are_noticed():
    """18.1: Spark counts 0 to 9 as written, the store was put back to where it had 0 to 6."""
    there = [WriterCommit("q", 6, 10, is_counted=True)]
    with pytest.raises(ConflictError, match=r"7 to 9 are not there: the store was put back"):
        is_repeated(WriterCommit("q", 10, 10, is_counted=True), there)
    assert not is_repeated(WriterCommit("q", 7, 10, is_counted=True), there)


@pytest.mark.parametrize("app", [None, "pipeline/mirror-orders/1", "checkpoint/5f"])
def test_a_store_put_back_to_before_the_first_batch_is_noticed_too(app):
    """Nothing of the writer is there, and batch 4 was taken for its first."""
    with pytest.raises(ConflictError, match=r"0 to 3 are not there: the store was put back"):
        is_repeated(WriterCommit("q", 4, 10, app, is_counted=True), [])
    assert not is_repeated(WriterCommit("q", 0, 10, app, is_counted=True), [])


def test_a_name_of_the_users_own_may_be_new_to_an_old_checkpoint():
    assert not is_repeated(WriterCommit("q", 4, 10, "nightly", is_counted=True), [])


def test_batch_writes_may_leave_numbers_out():
    assert not is_repeated(WriterCommit("q", 10, 10, "app"), [WriterCommit("q", 6, 10, "app")])


def test_a_version_is_counted_for_each_topic_by_itself():
    """As Delta counts them for each table: one batch id, one app, two topics."""
    first, second = (WriterCommit(QUERY, 5, 10, "app", topic=topic) for topic in (1, 2))
    assert is_repeated(first, [first])
    assert not is_repeated(second, [first])
    later = first._replace(number=6)
    assert not is_repeated(second, [later])  # the other topic is a batch ahead
    assert superseded(later, [first, second]) == [first]


def test_names_of_before_topics_were_named_count_for_all_topics():
    before = [WriterCommit(QUERY, 5, 10, "app")]
    assert is_repeated(WriterCommit(QUERY, 5, 10, "app", topic=1), before)
    assert superseded(WriterCommit(QUERY, 6, 10, "app", topic=1), before) == before
