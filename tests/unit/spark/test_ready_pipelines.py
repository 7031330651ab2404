"""What of the ready pipelines needs no Spark: choices, options, and refusals before it starts."""

import pytest

import penstock
from penstock.spark.pipelines.dedup import dedup
from penstock.spark.pipelines.engine import PYTHON_MESSAGES_MOST, chosen
from penstock.spark.pipelines.enrich import enrich
from penstock.spark.pipelines.expressions import columns_for, interval
from penstock.spark.pipelines.mirror import mirror
from penstock.spark.pipelines.quality import quality
from penstock.spark.pipelines.rollup import rollup
from penstock.spark.pipelines.rollup_output import check_plot, largest
from penstock.spark.pipelines.sessions import sessions
from tests.require import require


@pytest.fixture
def store(tmp_path, monkeypatch):
    def never(*arguments, **named):
        raise AssertionError("Spark was started")

    for module in ("dedup", "rollup", "compact"):
        monkeypatch.setattr(f"penstock.spark.pipelines.{module}.started", never)
    with penstock.open(tmp_path / "data") as opened:
        opened.create_topic("orders")
        opened.create_topic("other")
        yield opened


def test_small_work_is_done_here_and_the_reason_is_told():
    assert (
        str(chosen("auto", 1200, has_spark=True))
        == "python: 1,200 messages, a JVM would take longer to start"
    )
    large = chosen("auto", PYTHON_MESSAGES_MOST + 1, has_spark=True)
    assert str(large) == "spark: 2,000,001 messages are worth starting a JVM"


def test_what_is_asked_for_holds_unless_it_is_not_there():
    assert chosen("python", 10**9, has_spark=True).engine == "python"
    assert chosen("spark", 1, has_spark=True).engine == "spark"
    assert chosen("auto", 1, is_running=True, has_spark=True).engine == "spark"
    assert str(chosen("auto", 10**9, has_spark=False)) == "python: PySpark is not installed"
    with pytest.raises(penstock.MissingExtra, match=r"penstock\[spark\]"):
        chosen("spark", 1, has_spark=False)
    with pytest.raises(penstock.InvalidOption, match="auto, python, spark"):
        chosen("java", 1)


def test_only_columns_that_are_used_are_read():
    assert columns_for(["timestamp"], [None, "KEY", "a.offset"]) == ("offset", "timestamp", "key")
    assert columns_for(["timestamp"], ["get_json_object(text, '$.key')"]) == ("timestamp", "key", "value")
    assert len(columns_for([], ["struct(*)"])) == 12


def test_durations_as_spark_spells_them():
    assert interval("within", "10m") == "600000000 microseconds"
    assert interval("within", 0.25) == "250000 microseconds"
    for wrong in ("0s", "soon", -1):
        with pytest.raises(penstock.InvalidOption, match="within"):
            interval("within", wrong)


def test_the_largest_groups_are_drawn_with_a_point_for_each_window():
    rows = [
        {"group": group, "window_start": at, "count": count, "count_per_second": count / 60}
        for at, group, count in [(1, "a", 60), (2, "b", 600), (2, None, 120), (3, "a", 30), (3, "c", 1)]
    ]
    lines, others = largest(rows, 3)
    assert lines == {
        "b": [(1, 0.0), (2, 10.0), (3, 0.0)],
        None: [(1, 0.0), (2, 2.0), (3, 0.0)],
        "a": [(1, 1.0), (2, 0.0), (3, 0.5)],
    }
    assert others == 1


def test_a_picture_must_be_a_png_in_a_folder_that_is_there(tmp_path):
    check_plot(str(tmp_path / "x.png"))
    for wrong in ("x.svg", str(tmp_path / "nowhere" / "x.png")):
        with pytest.raises(penstock.InvalidOption, match=r"PNG|no folder"):
            check_plot(wrong)


@pytest.mark.parametrize(
    ("wrong", "options"),
    [
        ("into itself", {"sink": "orders"}),
        ("no topic 'nowhere'", {"sink": "nowhere"}),
        ("within='0s'", {"within": "0s"}),
        ("time='noon'", {"time": "noon"}),
        ("by is empty", {"by": " "}),
        ("trigger='x'", {"trigger": "x"}),
    ],
)
def test_dedup_refuses_before_spark_starts(store, wrong, options):
    with pytest.raises(penstock.UsageError, match=wrong):
        dedup(store, "orders", **{"sink": "other", "within": "10m", **options})
    assert store.pipelines() == []


@pytest.mark.parametrize(
    ("wrong", "options"),
    [
        ("into itself", {"sink": "orders"}),
        ("no topic 'nowhere'", {"sink": "nowhere"}),
        ("where to", {"sink": None}),
        ("made of what is there now", {"plot": "x.png"}),
        ("is not a PNG", {"plot": "x.jpg", "once": True}),
        ("window='0s'", {"window": "0s"}),
        ("top=0", {"top": 0}),
        ("mode='upsert'", {"table": "t", "mode": "upsert", "once": True}),
        ("time='noon'", {"time": "noon"}),
    ],
)
def test_rollup_refuses_before_spark_starts(store, wrong, options):
    with pytest.raises(penstock.UsageError, match=wrong):
        rollup(store, "orders", **{"sink": "other", "window": "1m", **options})
    assert store.pipelines() == []


def test_a_table_that_is_something_else_is_refused(store, tmp_path):
    require("deltalake")
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "letter.txt").touch()
    with pytest.raises(penstock.NotATable, match="no Delta table"):
        rollup(store, "orders", window="1m", table=str(tmp_path / "papers"), once=True)


def test_pipelines_that_stream_refuse_a_client_of_spark_connect_before_they_begin(tmp_path):
    """They ran, told of no rows, or ended with an error of PySpark's own."""
    with penstock.open(tmp_path / "data") as store, penstock.open(tmp_path / "there") as there:
        for each in (store, there):
            each.create_topic("orders")
        store.create_topic("other")
        store.create_topic("bad")
        (tmp_path / "t.csv").write_text("id\n")
        client = object()  # it shows no plans, as a client does not
        streams = [
            lambda: dedup(store, "orders", "other", within="1h", spark=client),
            lambda: sessions(store, "orders", "other", gap="1h", spark=client),
            lambda: rollup(store, "orders", "other", window="1h", spark=client),
            lambda: quality(store, "orders", good="other", bad="bad", rules={"a": "true"}, spark=client),
            lambda: mirror(store, "orders", to=there.path, spark=client),
            lambda: enrich(
                store, "orders", "other", table=str(tmp_path / "t.csv"), column="id", spark=client
            ),
        ]
        for stream in streams:
            with pytest.raises(penstock.UsageError, match="need a classic Spark session"):
                stream()
        assert store.pipelines() == []
