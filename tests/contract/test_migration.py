"""A MiniToolStream, as its own script left it, becomes a stream of a store."""

import itertools

import obstore
import pytest
from obstore.store import S3Store

import penstock
from penstock.errors import ConflictError, DataError, InvalidOption, UsageError
from tests.contract.test_tarantool import BARE_SEED
from tests.s3 import s3_server
from tests.tarantool import tarantool_server

#: The older layout: each channel counts for itself.
OLDER = """
local messages = box.schema.space.create('%(prefix)smessages', {format = {
    {name = 'channel', type = 'string'}, {name = 'sequence', type = 'unsigned'},
    {name = 'minio_key', type = 'string'}, {name = 'content_type', type = 'string'},
    {name = 'size', type = 'unsigned'}, {name = 'created_at', type = 'unsigned'}}})
messages:create_index('primary', {parts = {'channel', 'sequence'}})
local sequences = box.schema.space.create('%(prefix)ssequences', {format = {
    {name = 'channel', type = 'string'}, {name = 'last', type = 'unsigned'}}})
sequences:create_index('primary', {parts = {'channel'}})
for i = 1, 4 do
    messages:insert({'orders', i, 'orders/' .. i, 'text/plain', i, 1700000000 + 10 * i})
    messages:insert({'images', i, 'images/' .. i, 'image/png', i, 1700000005 + 10 * i})
end
sequences:insert({'orders', 4})
sequences:insert({'images', 4})
"""
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server():
    with tarantool_server() as server:
        yield server


@pytest.fixture
def prefix():
    return f"m{next(_NUMBERS)}_"


@pytest.fixture
def source(server, prefix):
    with penstock.Tarantool(
        server.host, server.port, user=server.user, password=server.password, prefix=prefix
    ) as source:
        yield source


@pytest.fixture
def seed(server, prefix, source):
    server.eval(BARE_SEED % {"prefix": prefix})
    return source


def rows(path, name="s"):
    with penstock.open(path) as store:
        return store.stream(name).get_all_messages(1, 10_000)


def test_sequences_times_and_positions_stay_as_they_were(seed, tmp_path):
    done = seed.migrate(tmp_path, "s")
    assert (done.messages, done.written, done.numbers_filled, done.consumers) == (3, 3, 6, 1)
    with penstock.open(tmp_path) as store:
        stream = store.stream("s")
        assert stream.get_all_messages(1, 10) == [
            (1, {}, "orders/1", "orders", 1700000000),
            (2, {"source": "shop"}, "orders/2", "orders", 1700000001),
            (5, {}, "images/5", "images", 1700000002),
        ]
        assert [stream.get_message_by_sequence(each) for each in (3, 4, 6, 9)] == [None] * 4
        assert stream.get_message_count() == 3
        assert stream.get_latest_sequence_for_subject("*") == 5
        assert stream.get_consumers() == [("billing", "orders", 9)]
        # The consumer has read up to 9: no message may ever come before it again.
        assert stream.publish("orders", b"new") == 10
        assert [message.sequence for message in stream.fetch("billing", "orders")] == [10]


def test_a_dry_run_says_what_there_is_and_writes_nothing(seed, tmp_path):
    found = seed.survey("s")
    assert (found.messages, found.last_sequence, found.numbers_filled, found.consumers) == (3, 9, 6, 1)
    assert found.layout == "message, consumers"
    assert not (tmp_path / "state.db").exists()


def test_run_again_it_brings_what_is_new(server, prefix, seed, tmp_path):
    seed.migrate(tmp_path, "s")
    server.eval(f"box.space.{prefix}message:insert({{12, {{a = 'b'}}, 'orders/12', 'orders', 1700000100}})")
    server.eval(f"box.space.{prefix}consumers:replace({{'billing', 'orders', 12}})")
    done = seed.migrate(tmp_path, "s")
    assert (done.already, done.written, done.last_sequence) == (3, 1, 12)
    assert [row[0] for row in rows(tmp_path)] == [1, 2, 5, 12]
    done = seed.migrate(tmp_path, "s")
    assert (done.already, done.written) == (4, 0)


def test_a_stream_with_messages_of_its_own_is_not_written_to(seed, tmp_path):
    with penstock.open(tmp_path) as store:
        store.stream("s").publish("orders", b"mine")
    with pytest.raises(ConflictError, match="new stream"):
        seed.migrate(tmp_path, "s")
    assert len(rows(tmp_path)) == 1


def test_the_store_is_had_exclusively(seed, tmp_path):
    with penstock.open(tmp_path), pytest.raises(penstock.OwnedElsewhere):
        seed.migrate(tmp_path, "s")


def test_a_long_way_to_the_first_message_costs_no_room(server, prefix, seed, tmp_path):
    server.eval(f"box.space.{prefix}message:truncate()")
    server.eval(f"box.space.{prefix}message:insert({{250000, {{a = 'b'}}, 'o', 'orders', 1700000000}})")
    seed.migrate(tmp_path, "s", segment_bytes="1MiB")
    with penstock.open(tmp_path) as store:
        stats = store.topic("s").stats()
        assert store.stream("s").get_message_by_sequence(250000)[2] == "o"
        assert store.stream("s").publish("orders", b"") == 250001
    assert stats.messages < 200_000


def test_where_subjects_counted_for_themselves_messages_are_numbered_by_time(
    server, prefix, source, tmp_path
):
    server.eval(OLDER % {"prefix": prefix})
    server.eval(
        f"local c = box.schema.space.create('{prefix}consumers') "
        "c:create_index('primary', {parts = {{1, 'string'}, {2, 'string'}}}) "
        "c:insert({'billing', 'orders', 3}) c:insert({'audit', 'images', 0})"
    )
    assert source.survey("s").renumbered
    done = source.migrate(tmp_path, "s")
    assert (done.layout, done.written, done.numbers_filled) == ("messages, sequences", 8, 0)
    found = rows(tmp_path)
    assert [(row[0], row[2]) for row in found] == [
        (1, "orders/1"), (2, "images/1"), (3, "orders/2"), (4, "images/2"), (5, "orders/3"), (6, "images/3"),
        (7, "orders/4"), (8, "images/4"),
    ]  # fmt: skip
    assert found[2][1] == {"content-type": "text/plain", "size": "2"}
    with penstock.open(tmp_path) as store:
        stream = store.stream("s")
        assert stream.get_consumer_position("billing", "orders") == 5
        assert [message.object_name for message in stream.messages("orders", 6)] == ["orders/4"]
    assert source.migrate(tmp_path, "s").written == 0


def test_times_that_went_back_do_not_go_back(server, prefix, seed, tmp_path):
    server.eval(f"box.space.{prefix}message:insert({{6, {{a = 'b'}}, 'o', 'orders', 1600000000}})")
    seed.migrate(tmp_path, "s")
    assert [row[4] for row in rows(tmp_path)] == [1700000000, 1700000001, 1700000002, 1700000002]


def test_a_body_that_lay_in_the_message_comes_along(server, prefix, seed, tmp_path):
    server.eval(f"""
    local message = box.space.{prefix}message
    local format = message:format()
    table.insert(format, {{name = 'data_msgpack', type = 'scalar', is_nullable = true}})
    message:format(format)
    message:insert({{6, {{a = 'b'}}, '', 'orders', 1700000003, 'inline'}})
    """)
    seed.migrate(tmp_path, "s")
    with penstock.open(tmp_path) as store:
        assert [message.data for message in store.stream("s").messages("*", 6)] == [b"inline"]


def test_without_their_place_bodies_are_only_named(seed, tmp_path):
    seed.migrate(tmp_path, "s")
    with penstock.open(tmp_path) as store:
        (first, *_) = store.stream("s").messages()
        with pytest.raises(DataError, match="orders/1"):
            _ = first.data


def _check_bodies(done, path):
    assert (done.bodies_copied, done.bodies_missing) == (2, ["orders/2"])
    with penstock.open(path) as store:
        first, second, third = store.stream("s").messages()
        assert (first.data, first.object_name) == (b"one", "orders/1")
        assert third.data == b"five"
        with pytest.raises(DataError, match="orders/2"):
            _ = second.data


def test_bodies_are_copied_from_a_folder_and_missing_ones_are_named(seed, tmp_path):
    bodies = tmp_path / "bodies"
    for name, body in (("orders/1", b"one"), ("images/5", b"five")):
        (bodies / name).parent.mkdir(parents=True, exist_ok=True)
        (bodies / name).write_bytes(body)
    _check_bodies(seed.migrate(tmp_path / "store", "s", bodies=str(bodies)), tmp_path / "store")


@pytest.mark.slow
def test_bodies_are_copied_from_a_bucket(seed, tmp_path, monkeypatch):
    with s3_server() as s3:
        for name, value in s3.options.items():
            monkeypatch.setenv(name, value)
        bucket = S3Store(s3.bucket, prefix="old")
        obstore.put(bucket, "orders/1", b"one")
        obstore.put(bucket, "images/5", b"five")
        done = seed.migrate(tmp_path / "store", "s", bodies=f"s3://{s3.bucket}/old")
        _check_bodies(done, tmp_path / "store")
        large = b"2" * 3_000_000
        obstore.put(bucket, "orders/2", large)
        seed.migrate(tmp_path / "other", "s", bodies=f"s3://{s3.bucket}/old")
        with penstock.open(tmp_path / "other") as store:
            assert store.stream("s").get(2).data == large


def test_a_body_that_is_too_large_for_the_log_lies_beside_it(server, prefix, seed, tmp_path):
    (tmp_path / "bodies" / "orders").mkdir(parents=True)
    large = bytes(range(256)) * 12_000
    (tmp_path / "bodies" / "orders" / "2").write_bytes(large)
    done = seed.migrate(tmp_path / "store", "s", bodies=str(tmp_path / "bodies"))
    assert done.bodies_copied == 1
    with penstock.open(tmp_path / "store") as store:
        message = store.stream("s").get(2)
        assert (message.data == large, message.object_name, message.headers) == (
            True, "orders/2", {"source": "shop"},
        )  # fmt: skip
    assert (tmp_path / "bodies" / "orders" / "2").exists()


def test_a_body_outside_the_folder_is_not_read(server, prefix, seed, tmp_path):
    (tmp_path / "bodies").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    server.eval(f"box.space.{prefix}message:update(1, {{{{'=', 3, '../secret'}}}})")
    done = seed.migrate(tmp_path / "store", "s", bodies=str(tmp_path / "bodies"))
    assert "../secret" in done.bodies_missing


def test_a_stream_of_ours_comes_out_of_tarantool_with_its_bodies(source, tmp_path):
    source.install()
    with penstock.open(tmp_path / "before") as store:
        stream = store.stream("s", engine=source)
        stream.publish("orders", b"one", headers={"k": "v"})
        stream.publish("orders")
        stream.ack("billing", "orders", 1)
    bodies = tmp_path / "before" / "payloads" / "streams" / "s"
    source.migrate(tmp_path / "after", "s", bodies=str(bodies))
    with penstock.open(tmp_path / "after") as store:
        first, second = store.stream("s").messages()
        assert (first.data, first.headers, second.data) == (b"one", {"k": "v"}, b"")
        assert store.stream("s").get_consumer_position("billing", "orders") == 1


def test_what_is_no_minitoolstream_is_told(server, prefix, source, tmp_path):
    with pytest.raises(UsageError, match="no space"):
        source.survey("s")
    server.eval(f"box.schema.space.create('{prefix}message'):create_index('primary')")
    with pytest.raises(DataError, match="no field for sequence"):
        source.survey("s")


def test_a_place_for_bodies_that_is_none(seed, tmp_path):
    with pytest.raises(InvalidOption, match="not a folder"):
        seed.migrate(tmp_path, "s", bodies=str(tmp_path / "nothing"))
