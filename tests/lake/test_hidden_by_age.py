"""What has expired by age is not archived, also before it is removed (S001-48)."""

from tests.kit.expired_topics import half_expired
from tests.lake.rows import of_table


def test_an_archive_begins_behind_what_is_over(run, store, table):
    store.close()
    with half_expired(store.path):
        summary = run()
        assert (summary.rows, summary.first) == (5, {0: 5})
        assert [row["value"] for row in of_table(table)] == [b"young %d" % number for number in range(5)]
