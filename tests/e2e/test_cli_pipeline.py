"""`penstock pipeline list | show | stop | drop`."""

import pytest

import penstock
from tests.e2e.command import Command
from tests.kit.commands import Exit
from tests.kit.stores import claim


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        topic = store.create_topic("orders")
        topic.write_many(["x"] * 10)
        topic.add_consumer("hourly", start=4)
        with claim(
            store, "hourly", kind="rollup", identity={"source": "orders"}, consumer="hourly",
            options={"window": "1h"},
        ) as run:  # fmt: skip
            run.report(rows=1500, last_batch=3)
    return command


def test_list_shows_each_with_its_state_and_lag(cli):
    header, line = cli.ok("pipeline", "list").lines
    assert header.split()[:5] == ["pipeline", "kind", "state", "behind", "rows"]
    assert line.split()[:5] == ["hourly", "rollup", "ended", "6", "1,500"]
    (only,) = cli.quick_json("pipeline", "list")["pipelines"]
    assert (only["name"], only["state"], only["lag"], only["run"]["rows"]) == ("hourly", "ended", 6, 1500)


def test_show_tells_everything_about_one(cli):
    shown = cli.ok("pipeline", "show", "hourly").out
    for part in ("rollup, ended", "orders", "1h", "6 messages", "last batch"):
        assert part in shown
    assert cli.quick_json("pipeline", "show", "hourly")["options"] == {"window": "1h"}


def test_stop_waits_for_a_run_and_tells_when_it_goes_on(cli):
    assert cli.quick_json("pipeline", "stop", "hourly") == {"pipeline": "hourly", "stopped": True}
    with penstock.open(cli.store) as store:
        with claim(store, "hourly", kind="rollup", identity={"source": "orders"}) as run:
            assert cli.quick("pipeline", "stop", "hourly", "--timeout", "10ms").code == Exit.TRY_AGAIN
            run.report(rows=0)
            assert run.stopping


def test_drop_asks_first(cli):
    assert cli.quick("pipeline", "drop", "hourly").code == 1
    assert cli.quick_json("pipeline", "drop", "hourly", "--yes") == {"pipeline": "hourly"}
    assert cli.quick("pipeline", "list").out == "no pipelines yet\n"
    assert cli.quick("pipeline", "show", "hourly").code == Exit.USAGE


@pytest.mark.parametrize(
    "verb",
    [
        ("rollup", "orders", "counts", "--window", "1m"),
        ("quality", "orders", "good", "bad", "--rule", "x=partition = 0"),
        ("dedup", "orders", "once", "--within", "1h"),
    ],
    ids=lambda verb: verb[0],
)
def test_a_sink_that_is_missing_is_told_how_to_be_made(cli, verb):
    result = cli.quick("pipeline", *verb)
    assert result.code == Exit.USAGE
    assert result.err.splitlines() == [
        f"error: no topic {verb[2]!r}",
        "hint: --create makes it, with as many partitions as 'orders' has",
    ]


def test_a_mirror_is_told_how_its_store_and_its_topic_are_made(cli, tmp_path):
    other = tmp_path / "other"
    result = cli.quick("pipeline", "mirror", "orders", str(other))
    assert (result.code, "--create makes it" in result.err.splitlines()[-1]) == (Exit.USAGE, True)
    assert not other.exists()
    penstock.open(other).close()
    result = cli.quick("pipeline", "mirror", "orders", str(other))
    assert result.err.splitlines()[0] == "error: no topic 'orders'"
    assert "--create makes it" in result.err.splitlines()[-1]
    assert cli.quick("pipeline", "mirror", "ordres", str(tmp_path / "new"), "--create").code == Exit.USAGE
    assert not (tmp_path / "new").exists()


def test_a_source_that_is_missing_is_said_before_its_sink(cli):
    result = cli.quick("pipeline", "dedup", "ordres", "once", "--within", "1h")
    assert result.err.splitlines()[0] == "error: no topic 'ordres'"


@pytest.mark.parametrize(
    "verb",
    [
        ("dedup", "orders", "made", "--within", "soon"),
        ("quality", "orders", "made", "made", "--rule", "x=partition = 0"),
        ("replay", "orders", "made", "--name", "hourly"),
        ("mirror", "orders", ".", "--topic", "made"),
        ("quality", "orders", "made", "no/name", "--rule", "x=partition = 0"),
    ],
    ids=" ".join,
)
def test_a_sink_that_was_made_for_a_refused_pipeline_goes_again(cli, verb):
    verb = [str(cli.store) if word == "." else word for word in verb]
    result = cli.quick("pipeline", *verb, "--create")
    assert (result.code != 0, result.err[:7]) == (True, "error: ")
    with penstock.open(cli.store) as store:
        assert [each.name for each in store.topics()] == ["orders"]


@pytest.mark.parametrize(
    "refused", [("--every", "soon"), ("--topic", "no/name"), ("--name", "no/name")], ids=" ".join
)
def test_a_store_that_was_made_for_a_refused_mirror_goes_again(cli, tmp_path, refused):
    """An empty store was left behind."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for place in (tmp_path / "new" / "deep", empty):
        result = cli.quick("pipeline", "mirror", "orders", str(place), "--create", *refused)
        assert (result.code, "error: " in result.err) == (Exit.USAGE, True)
    assert not (tmp_path / "new").exists()
    assert list(empty.iterdir()) == []


def test_a_store_that_others_use_stays_when_its_mirror_is_refused(cli, tmp_path):
    with penstock.open(tmp_path / "other") as other:
        other.create_topic("theirs").write(b"x")
    assert cli.quick("pipeline", "mirror", "orders", str(other.path), "--create", "--every", "soon").code != 0
    with penstock.open(other.path) as other:
        assert [each.name for each in other.topics()] == ["theirs"]


def test_a_sink_that_was_made_stays_with_its_pipeline(cli):
    cli.quick("pipeline", "replay", "orders", "made", "--create")
    with penstock.open(cli.store) as store:
        assert store.topic("made").options.partitions == store.topic("orders").options.partitions


def test_a_sink_that_was_there_stays_when_a_pipeline_is_refused(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("there")
    assert cli.quick("pipeline", "dedup", "orders", "there", "--within", "soon", "--create").code != 0
    with penstock.open(cli.store) as store:
        assert store.topic("there").name == "there"


def test_making_a_sink_for_a_table_is_refused(cli):
    result = cli.quick("pipeline", "replay", "--from-table", "lake", "made", "--create")
    assert (result.code, "--create" in result.err) == (Exit.USAGE, True)
