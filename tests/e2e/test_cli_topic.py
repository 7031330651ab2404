"""`penstock topic create | list | show | alter | split | drop`."""

import dataclasses

import pytest

import penstock
from tests.e2e.command import Command


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


def defaults() -> dict[str, object]:
    """The options of a topic that was made without any."""
    with penstock.open(":memory:") as store:
        return dataclasses.asdict(store.create_topic("plain").options)


def test_create_takes_every_option_and_makes_the_store(cli):
    ended = cli.ok(
        "topic", "create", "orders", "--partitions", "3", "--retention", "7d", "--max-bytes", "1GiB",
        "--sync", "os", "--segment-bytes", "1MiB", "--segment-age", "1h", "--max-message-bytes", "2MiB",
        "--partitioner", "kafka", "--codecs", "zstd,raw,10001", "--compress", "zstd", "--index", "key",
        "--key-retention", "progress.*=10m", "--key-retention", '["chat", 1]=1h', "--json",
        "--partition-write-speed", "2MiB", "--partition-write-burst", "4MiB", "--write-quota", "on",
    )  # fmt: skip
    assert "created store penstock-data" in ended.err
    (made,) = ended.json_lines()
    assert (made["topic"], made["created"], made["before"]) == ("orders", True, None)
    assert made["after"] == defaults() | {
        "partitions": 3, "retention_s": 604800.0, "max_bytes": 2**30, "sync": "os", "segment_bytes": 2**20,
        "segment_age_s": 3600.0, "max_message_bytes": 2**21, "partitioner": "kafka",
        "codecs": ["raw", "zstd", "10001"], "compress": "zstd", "index": "key", "payloads": None,
        "partition_write_speed": 2**21, "partition_write_burst": 2**22, "write_quota": True,
        "key_retention": [['["chat",1]', 3600.0], ["progress.*", 600.0]],
    }  # fmt: skip


def test_create_of_one_that_exists_is_refused_unless_it_is_the_same(cli):
    cli.quick("topic", "create", "orders")
    ended = cli.quick("topic", "create", "orders")
    assert ended.code == 2
    assert "hint: --exists-ok" in ended.err
    assert "is there already" in cli.quick("topic", "create", "orders", "--exists-ok").out
    ended = cli.quick("topic", "create", "orders", "--exists-ok", "--partitions", "2")
    assert ended.code == 2
    assert "partitions=1 there, 2 asked" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--partitions", "0"),
        ("--retention", "soon"),
        ("--sync", "maybe"),
        ("--partitioner", "x"),
        ("--bogus",),
        ("--index", "key", "--key-retention", "10m"),
        ("--key-retention", "a=10m"),
    ],
)
def test_bad_options_make_nothing(cli, arguments):
    assert cli.quick("topic", "create", "orders", *arguments).code == 2
    assert not cli.store.exists()


def test_list_and_show_say_the_same_as_table_and_as_json(cli):
    with penstock.open(cli.store) as store:
        topic = store.create_topic("orders", partitions=2, retention="12h")
        topic.write_many(["a", "b", "c"], partition=1)
        topic.add_consumer("billing", important=True)
        store.create_topic("empty")
    table = cli.ok("topic", "list").lines
    assert [line.split()[0] for line in table] == ["topic", "empty", "orders"]
    listed = {each["topic"]: each for each in cli.quick_json("topic", "list")["topics"]}
    orders = listed["orders"]
    assert (orders["partitions"], orders["messages"], orders["consumers"]) == (2, 3, 1)
    assert orders["oldest_ns"] <= orders["newest_ns"]
    assert orders["oldest"].endswith("Z")
    assert listed["empty"]["oldest"] is None
    shown = cli.quick_json("topic", "show", "orders")
    assert shown["topic"] == orders
    assert [(p["partition"], p["start"], p["end"]) for p in shown["partitions"]] == [(0, 0, 0), (1, 0, 3)]
    assert [(c["consumer"], c["lag"], c["important"]) for c in shown["consumers"]] == [("billing", 3, True)]
    text = cli.quick("topic", "show", "orders").out
    assert "retention               12h" in text
    assert "billing" in text


def test_an_empty_store_lists_nothing(cli):
    with penstock.open(cli.store):
        pass
    assert cli.quick("topic", "list").out == "no topics yet\n"


def test_alter_shows_what_changed_and_none_clears_a_limit(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders", retention="1h")
    ended = cli.quick("topic", "alter", "orders", "--retention", "none", "--partitions", "2")
    assert ended.lines == ["partitions: 1 → 2", "retention: 1h → none"]
    ended = cli.quick("topic", "alter", "orders", "--retention", "7d", "--json")
    (change,) = ended.json_lines()
    assert (change["before"]["retention_s"], change["after"]["retention_s"]) == (None, 604800.0)
    assert cli.quick("topic", "alter", "orders").code == 2
    assert cli.quick("topic", "alter", "orders", "--partitions", "1").code == 2
    assert cli.quick("topic", "alter", "orders", "--sync", "os").code == 2
    assert "nothing changed" in cli.quick("topic", "alter", "orders", "--retention", "7d").out


def test_drop_asks_and_takes_only_yes_for_an_answer(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders").write("x")
    ended = cli.run("topic", "drop", "orders", input="n\n")
    assert ended.code == 1
    assert "Drop orders with 1 message and 0 consumers" in ended.err
    assert "nothing was changed" in ended.err
    ended = cli.quick("topic", "drop", "orders")
    assert ended.code == 1
    assert "--yes" in ended.err
    assert cli.run("topic", "drop", "orders", input="y\n").out == "topic orders dropped\n"
    assert cli.quick("topic", "list", "--json").json_lines() == [{"topics": []}]
    assert cli.quick("topic", "drop", "orders", "--yes").code == 2


def test_drop_with_yes_does_not_ask(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders")
    ended = cli.run("topic", "drop", "orders", "--yes", "--json")
    assert ended.json_lines() == [{"topic": "orders", "dropped": True, "messages": 0}]
    assert ended.err == ""


def test_lifetimes_are_shown_changed_and_taken_away(cli):
    cli.quick("topic", "create", "jobs", "--index", "key", "--key-retention", "progress.*=10m")
    assert "progress.*=10m" in cli.quick("topic", "show", "jobs").out
    changed = cli.quick("topic", "alter", "jobs", "--key-retention", "a=b=5s").out
    assert "key_retention: progress.*=10m → a=b=5s" in changed
    assert "→ none" in cli.quick("topic", "alter", "jobs", "--key-retention", "none").out


def test_split_says_what_it_made_and_show_draws_the_tree(cli):
    """S001-15; `--json` has the same facts."""
    cli.ok("topic", "create", "orders", "--autopartitioning", "paused")
    ended = cli.quick("topic", "split", "orders", "0")
    assert ended.out.splitlines() == [
        "partition 1: hashes 0 to 2147483647",
        "partition 2: hashes 2147483648 to 4294967295",
    ]
    (made,) = cli.quick("topic", "split", "orders", "2", "--at", "3221225472", "--json").json_lines()
    assert [(each["partition"], each["low"], each["parents"]) for each in made["children"]] == [
        (3, 2147483648, [2]),
        (4, 3221225472, [2]),
    ]
    assert cli.quick("topic", "show", "orders").out.splitlines()[-5:] == [
        "0  100 %, inactive",
        "├─ 1  50 %, active",
        "└─ 2  50 %, inactive",
        "   ├─ 3  25 %, active",
        "   └─ 4  25 %, active",
    ]
    (shown,) = cli.quick("topic", "show", "orders", "--json").json_lines()
    assert [(each["state"], each["children"]) for each in shown["partitions"]][:3] == [
        ("inactive", [1, 2]),
        ("active", []),
        ("inactive", [3, 4]),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("topic", "split", "orders", "0"), 1, "write to 1 and 2"),
        (("topic", "split", "orders", "9"), 2, "no partition 9"),
        (("topic", "split", "orders", "1", "--at", "0"), 2, "choose a hash between 1 and"),
        (("topic", "split", "fixed", "0"), 2, "autopartitioning"),
        (("topic", "alter", "orders", "--autopartitioning", "disabled"), 2, "only be paused"),
        (("topic", "alter", "orders", "--max-bytes", "1MiB"), 2, "max_bytes"),
    ],
)
def test_what_cannot_be_split_is_refused(cli, arguments, code, said):
    cli.ok("topic", "create", "orders", "--autopartitioning", "paused")
    cli.quick("topic", "create", "fixed")
    cli.quick("topic", "split", "orders", "0")
    ended = cli.quick(*arguments)
    assert (ended.code, said in ended.err) == (code, True), ended.err
