"""Streams in a Tarantool, besides what all streams do: its Lua as others call it, installing, the engine."""

import threading
import time

import pytest

import penstock
from penstock.errors import Closed, ConflictError, DataError, InvalidOption, Unavailable, UsageError
from tests.kit.bodies import open_bodies
from tests.kit.tarantools import SEED_FUNCTIONS, VERSION, install_text
from tests.s3 import s3_server
from tests.tarantool import tarantool_server

#: The spaces as MiniToolStream's own script makes them, with messages in them and no counter that is kept.
BARE_SEED = """
local message = box.schema.space.create('%(prefix)smessage', {format = {
    {name = 'sequence', type = 'unsigned'}, {name = 'headers', type = 'any'},
    {name = 'object_name', type = 'string'}, {name = 'subject', type = 'string'},
    {name = 'create_at', type = 'unsigned'}}})
message:create_index('primary', {parts = {'sequence'}})
message:create_index('subject', {parts = {'subject'}, unique = false})
message:create_index('subject_sequence', {parts = {'subject', 'sequence'}})
message:create_index('create_at', {parts = {'create_at'}, unique = false})
local consumers = box.schema.space.create('%(prefix)sconsumers', {format = {
    {name = 'durable_name', type = 'string'}, {name = 'subject', type = 'string'},
    {name = 'last_sequence', type = 'unsigned'}}})
consumers:create_index('primary', {parts = {'durable_name', 'subject'}})
consumers:create_index('subject', {parts = {'subject'}, unique = false})
message:insert({1, {}, 'orders/1', 'orders', 1700000000})
message:insert({2, {source = 'shop'}, 'orders/2', 'orders', 1700000001})
message:insert({5, {}, 'images/5', 'images', 1700000002})
consumers:insert({'billing', 'orders', 9})
"""


@pytest.fixture(scope="module")
def server():
    with tarantool_server() as server:
        yield server


@pytest.fixture
def prefix(request):
    """A stream nobody has used."""
    return f"t{abs(hash(request.node.name)):x}_"


@pytest.fixture
def place(server, prefix):
    with penstock.Tarantool(
        server.host, server.port, user=server.user, password=server.password, prefix=prefix
    ) as place:
        yield place


@pytest.fixture
def call(server, prefix):
    """Calls as any other language makes them: a name, positional arguments, plain results."""
    return lambda function, *arguments: server.call(prefix + function, *arguments)


@pytest.fixture
def stream(place, tmp_path):
    place.install()
    with penstock.open(tmp_path / "store") as store:
        yield store.stream("s", engine=place)


# As the seed has it.


def test_spaces_and_indexes_are_those_of_the_seed(server, place, prefix):
    place.install()
    lua = """
    local found = {}
    for _, name in ipairs({'message', 'consumers'}) do
        local space, indexes = box.space[... .. name], {}
        for i = 0, #space.index do
            local index, parts = space.index[i], {}
            for _, part in ipairs(index.parts) do table.insert(parts, space:format()[part.fieldno].name) end
            indexes[i + 1] = {index.name, index.type, index.unique, parts}
        end
        local fields = {}
        for _, field in ipairs(space:format()) do table.insert(fields, {field.name, field.type}) end
        table.insert(found, {fields, indexes})
    end
    return unpack(found)
    """
    message, consumers = server.eval(lua, prefix)
    assert message == [
        [
            ["sequence", "unsigned"], ["headers", "map"], ["object_name", "string"], ["subject", "string"],
            ["create_at", "unsigned"],
        ],
        [
            ["primary", "TREE", True, ["sequence"]],
            ["subject", "TREE", False, ["subject"]],
            ["subject_sequence", "TREE", True, ["subject", "sequence"]],
            ["create_at", "TREE", False, ["create_at"]],
        ],
    ]  # fmt: skip
    assert consumers == [
        [["durable_name", "string"], ["subject", "string"], ["last_sequence", "unsigned"]],
        [["primary", "TREE", True, ["durable_name", "subject"]], ["subject", "TREE", False, ["subject"]]],
    ]


def test_the_eight_functions_are_called_by_name_with_plain_arguments_and_results(place, call):
    place.install()
    before = int(time.time())
    assert call("publish_message", "orders", "minio/orders/1.json", {"source": "api"}) == [1]
    assert call("publish_message", "images", "minio/images/2.png") == [2]
    assert call("publish_message", "orders", "minio/orders/3.json", {}) == [3]
    (row,) = call("get_message_by_sequence", 1)
    assert row[:4] == [1, {"source": "api"}, "minio/orders/1.json", "orders"]
    assert before <= row[4] <= time.time()
    assert call("get_message_by_sequence", 4) == [None]
    (rows,) = call("get_messages_by_subject", "orders", 1, 10)
    assert [each[0] for each in rows] == [1, 3]
    assert rows[1][1] == {}
    assert [[each[0] for each in call("get_messages_by_subject", *asked)[0]] for asked in (
        ("orders", 2, 10), ("orders", 1, 1), ("orders", 4, 10), ("nobody", 1, 10),
    )] == [[3], [1], [], []]  # fmt: skip
    assert call("get_latest_sequence_for_subject", "orders") == [3]
    assert call("get_latest_sequence_for_subject", "nobody") == [0]
    assert call("get_consumer_position", "billing", "orders") == [0]
    assert call("update_consumer_position", "billing", "orders", 3) == [True]
    assert call("update_consumer_position", "billing", "orders", 1) == [True]  # anywhere, as in the seed
    assert call("get_consumer_position", "billing", "orders") == [1]
    call("update_consumer_position", "audit", "orders", 2)
    assert sorted(call("get_consumers_by_subject", "orders")[0]) == [
        ["audit", "orders", 2], ["billing", "orders", 1],
    ]  # fmt: skip
    assert call("delete_old_messages", 3600) == [0, []]
    count, deleted = call("delete_old_messages", 0)
    assert count == 3
    assert deleted[1] == {"sequence": 2, "subject": "images", "object_name": "minio/images/2.png"}
    assert call("publish_message", "orders", "minio/orders/4.json") == [4]


def test_counts_are_of_messages_not_of_sequences(place, call):
    place.install()
    for subject in ("a", "b", "a", "b", "a"):
        call("publish_message", subject, "x")
    call("update_consumer_position", "d", "a", 1)
    assert call("get_subject_message_count", "a") == [3]
    assert call("get_new_messages_count", "a", "d") == [2]
    assert call("get_new_messages_count", "a", None, 3) == [1]
    assert call("check_new_messages", "a", "d") == [
        {"has_new": True, "latest_sequence": 5, "consumer_position": 1, "new_count": 2}
    ]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("publish_message", ("", "x")),
        ("publish_message", ("a",)),
        ("publish_message", ("a", "x", {"n": 1})),
        ("publish_message", ("a", "x", "headers")),
        ("get_message_by_sequence", (-1,)),
        ("get_message_by_sequence", ("1",)),
        ("get_messages_by_subject", ("a", 0, -1)),
        ("update_consumer_position", ("", "a", 1)),
        ("update_consumer_position", ("d", "a", -1)),
        ("delete_old_messages", (-1,)),
    ],
)
def test_bad_arguments_are_refused_and_nothing_is_stored(place, call, function, arguments):
    from asynctnt.exceptions import TarantoolDatabaseError

    place.install()
    with pytest.raises(TarantoolDatabaseError, match=r"^penstock: "):
        call(function, *arguments)
    assert call("publish_message", "a", "x") == [1]


def test_lua_in_the_instance_uses_the_same_functions(server, place, prefix):
    place.install()
    assert server.eval(f"return {prefix}publish_message('a', 'x'), {prefix}publish_message('a', 'y')") == [
        1,
        2,
    ]
    # Inside somebody's transaction: nothing of it stays when that is rolled back.
    server.eval(f"box.begin() {prefix}publish_message('a', 'z') box.rollback()")
    assert server.call(f"{prefix}get_subject_message_count", "a") == [2]


@pytest.mark.parametrize(
    "look",
    [
        "get_message_by_sequence(1)",
        "get_messages_by_subject('a', 1, 10)[1]",
        "get_latest_sequence_for_subject('a')",
        "penstock_rows('a', true, 1, 10)[1]",
        "penstock_rows('', true, 1, 10)[1]",
        "penstock_last()",
        "penstock_wait(0, 10)",
    ],
)
def test_nobody_is_shown_a_message_before_the_wal_has_it(server, place, prefix, look):
    """What a crash could take back, and give its number to another, must not have been seen."""
    place.install()
    server.call(f"{prefix}penstock.count", "a", False, 0)  # the functions are loaded
    name, _, arguments = look.partition("(")
    function = name.replace("penstock_", "penstock.")
    arguments, _, part = arguments.partition(")")
    lua = f"""
    local is_stored = false
    require('fiber').create(function()
        box.func['{prefix}publish_message']:call({{'a', 'x'}})
        is_stored = true
    end)
    local is_there, before = box.space.{prefix}message:get(1) ~= nil, is_stored
    local found = box.func['{prefix}{function}']:call({{{arguments}}}){part}
    return is_there, before, found ~= nil, is_stored
    """
    assert server.eval(lua) == [True, False, True, True]


# Installing.


def test_installing_twice_changes_nothing(place, call):
    assert place.install() == VERSION
    call("publish_message", "a", "x")
    assert place.install() == VERSION
    assert call("publish_message", "a", "y") == [2]
    assert place.check()["messages"] == 2


def test_the_functions_are_back_after_a_restart_and_sequences_go_on_though_all_expired(prefix):
    with tarantool_server() as server:
        with penstock.Tarantool(
            server.host, server.port, user=server.user, password=server.password
        ) as place:
            place.install()
        for _ in range(3):
            server.call("publish_message", "a", "x")
        assert server.call("delete_old_messages", 0)[0] == 3
        server.kill()
        server.start()
        assert server.call("publish_message", "a", "y") == [4]


def test_the_seeds_own_spaces_are_taken_over_with_what_is_in_them(server, place, call, prefix):
    server.eval(BARE_SEED % {"prefix": prefix})
    place.install()
    (rows,) = call("get_messages_by_subject", "orders", 1, 10)
    assert [(each[0], each[1]) for each in rows] == [(1, {}), (2, {"source": "shop"})]
    assert call("get_consumer_position", "billing", "orders") == [9]
    # A consumer has read up to 9, so 6 to 9 were given once, to messages that expired.
    assert call("publish_message", "orders", "orders/10") == [10]


def test_an_insert_past_the_functions_does_not_break_the_counter(server, place, call, prefix):
    place.install()
    call("publish_message", "a", "x")
    server.eval(f"box.space.{prefix}message:insert({{7, {{a = 'b'}}, 'y', 'a', 1700000000}})")
    assert call("publish_message", "a", "z") == [8]


def test_other_indexes_under_our_names_are_refused(server, place, prefix):
    server.eval(f"box.schema.space.create('{prefix}message'):create_index('primary', {{type = 'HASH'}})")
    with pytest.raises(InvalidOption, match="index primary is another"):
        place.install()


def test_a_newer_version_is_not_put_back(server, place, prefix):
    place.install()
    server.eval(f"box.space.{prefix}penstock:replace({{'version', {VERSION + 1}}})")
    with pytest.raises(InvalidOption, match="newer version"):
        place.install()


def test_a_user_may_call_and_nothing_else_once_he_is_allowed(server, prefix):
    def app():
        return penstock.Tarantool(server.host, server.port, user="app", password="app-secret", prefix=prefix)

    with penstock.Tarantool(
        server.host, server.port, user=server.user, password=server.password, prefix=prefix
    ) as admin:
        admin.install()
        with app() as place, pytest.raises(UsageError, match="refuses"):
            place.check()
        admin.install(allow="app")
        admin.install()  # stays so
    with app() as place:
        assert place.check()["messages"] == 0
        with pytest.raises(UsageError, match="refuses"):
            place.install()
    assert server.call(f"{prefix}publish_message", "a", "x", user="app", password="app-secret") == [1]


def test_the_text_can_be_loaded_from_a_file(server, prefix, tmp_path):
    path = tmp_path / "streams.lua"
    path.write_text(install_text(prefix))
    assert server.eval(f"return dofile('{path}')") == [VERSION]
    assert server.call(f"{prefix}publish_message", "a", "x") == [1]


@pytest.mark.parametrize("prefix_given", ["1a", "a-b", "a b", "a'b", "x" * 50, None])
def test_a_prefix_that_names_cannot_begin_with(prefix_given):
    with pytest.raises(InvalidOption):
        penstock.Tarantool(prefix=prefix_given)


def test_every_function_of_the_seed_is_there_under_its_name(server, place, prefix):
    place.install()
    (names,) = server.eval(
        "local n = {} for _, f in box.space._func:pairs() do table.insert(n, f.name) end return n"
    )
    assert {prefix + name for name in SEED_FUNCTIONS} <= set(names)


# The engine.


def test_what_the_engine_stores_other_languages_see(stream, call, tmp_path):
    sequence = stream.publish("orders", b"paid", headers={"k": "v"}, object_name="orders/1.txt")
    (row,) = call("get_message_by_sequence", sequence)
    assert row[2:4] == ["orders/1.txt", "orders"]
    assert row[1]["k"] == "v"
    (message,) = stream.fetch("d", "orders")
    assert (message.data, message.headers) == (b"paid", {"k": "v"})
    bodies = tmp_path / "store" / "payloads" / "streams" / "s"
    assert (bodies / "orders" / "1.txt").read_bytes() == b"paid"


@pytest.mark.slow
def test_bodies_may_lie_in_s3(place, tmp_path, monkeypatch):
    place.install()
    with s3_server() as s3, penstock.open(tmp_path / "store") as store:
        for name, value in s3.options.items():
            monkeypatch.setenv(name, value)
        address = s3.table("bodies")
        stream = store.stream("s", engine=place, payloads=address)
        stream.publish("a", b"in a bucket", headers={"content-type": "text/plain"})
        stream.publish("a", b"x" * 3_000_000)
        assert [len(message.data) for message in stream.fetch("d", "a")] == [11, 3_000_000]
        assert len(list(open_bodies(address).list())) == 2
        assert stream.delete_old_messages(0)[0] == 2
        assert list(open_bodies(address).list()) == []


def test_a_body_that_was_changed_is_not_given_out(stream, tmp_path):
    stream.publish("a", b"what was stored", object_name="x")
    open_bodies(tmp_path / "store" / "payloads" / "streams" / "s").put("x", b"something else")
    with pytest.raises(DataError, match="digest"):
        _ = stream.fetch("d", "a")[0].data


def test_bodies_go_behind_their_messages_also_when_that_was_interrupted(stream, tmp_path, monkeypatch):
    bodies = open_bodies(tmp_path / "store" / "payloads" / "streams" / "s")
    stream.publish("a", b"1")
    stream.publish("b", b"2")
    broken = stream.engine._bodies.store
    with monkeypatch.context() as patch:
        patch.setattr(type(broken), "delete", lambda self, names: (_ for _ in ()).throw(OSError("no disk")))
        with pytest.raises(OSError, match="no disk"):
            stream.delete_old_messages(0)
    assert stream.get_message_count() == 0
    assert len(list(bodies.list())) == 2
    stream.delete_old_messages(0)
    assert list(bodies.list()) == []


def test_bodies_that_others_stored_are_left_to_them(stream, tmp_path):
    bodies = open_bodies(tmp_path / "store" / "payloads" / "streams" / "s")
    bodies.put("theirs", b"1")
    stream.publish_message("a", "theirs")
    assert stream.fetch("d", "a")[0].data == b"1"
    assert stream.delete_old_messages(0)[1][0]["object_name"] == "theirs"
    assert [found.name for found in bodies.list()] == ["theirs"]


def test_a_refused_message_leaves_no_body(stream, server, prefix, tmp_path):
    server.eval(f"box.space.{prefix}message:on_replace(function() error('penstock: no more', 0) end)")
    with pytest.raises(InvalidOption, match="no more"):
        stream.publish("a", b"body")
    assert list(open_bodies(tmp_path / "store" / "payloads" / "streams" / "s").list()) == []


def test_one_stream_a_prefix(stream, place, tmp_path):
    with penstock.open(tmp_path / "other") as store, pytest.raises(ConflictError, match="prefix"):
        store.stream("another", engine=place)


def test_without_the_functions_the_error_says_how_to_install_them(place, tmp_path):
    with penstock.open(tmp_path / "store") as store, pytest.raises(UsageError, match="stream engine install"):
        store.stream("s", engine=place)


def test_wrong_credentials_and_no_instance_are_told_apart_and_never_show_the_password(server):
    with penstock.Tarantool(server.host, server.port, user="app", password="wrong-secret") as place:
        with pytest.raises(UsageError, match="user or password") as wrong:
            place.check()
        assert "secret" not in f"{wrong.value}{place!r}"
    with (
        penstock.Tarantool("127.0.0.1", 1, timeout=0.2) as place,
        pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"),
    ):
        place.check()


def test_a_closed_link_says_so(stream, place):
    place.close()
    with pytest.raises(Closed):
        stream.publish("a", b"x")


def test_closing_ends_calls_that_wait_for_an_answer(server, prefix):
    place = penstock.Tarantool(
        server.host, server.port, user=server.user, password=server.password, prefix=prefix
    )
    place.install()
    ended = []

    def wait():
        try:
            place._link.call(f"{prefix}penstock.wait", 0, 5)
        except Closed as error:
            ended.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    place.close()
    for thread in threads:
        thread.join(30)
    assert len(ended) == 3


def test_subscribers_hear_of_what_another_language_publishes(stream, call):
    heard = []
    ready = threading.Event()

    def follow():
        ready.set()
        for message in stream.subscribe("d", "a", timeout=30):
            heard.append(message.sequence)
            if len(heard) == 2:
                return

    thread = threading.Thread(target=follow)
    thread.start()
    ready.wait()
    call("publish_message", "a", "x")
    call("publish_message", "b", "x")
    call("publish_message", "a", "x")
    thread.join(30)
    assert heard == [1, 3]


def test_threads_share_the_connection_and_nothing_is_skipped(stream):
    """A reader that acks what it saw has seen everything: sequences become visible in their order."""
    per_thread, threads = 50, 8
    seen = []

    def publish(number):
        for i in range(per_thread):
            stream.publish(f"s{number % 3}", b"x" * (i % 5))

    workers = [threading.Thread(target=publish, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    while len(seen) < per_thread * threads:
        for message in stream.fetch("d", "*", 37):
            seen.append(message.sequence)
            stream.ack("d", "*", message.sequence)
    for worker in workers:
        worker.join()
    assert seen == list(range(1, per_thread * threads + 1))


def test_a_pattern_merges_subjects_by_sequence(stream):
    for i in range(60):
        stream.publish(f"images.{i % 7}" if i % 3 else "other", b"")
    found = stream.get_messages_by_subject("images.*", 10, 25)
    expected = [i + 1 for i in range(60) if i % 3 and i + 1 >= 10][:25]
    assert [row[0] for row in found] == expected
    assert stream.get_latest_sequence_for_subject("images.*") == 60


def test_more_than_one_answer_holds_is_asked_for_in_parts(stream, server, prefix):
    server.eval(f"for i = 1, 2500 do {prefix}publish_message('a', 'x') end")
    assert [row[0] for row in stream.get_messages_by_subject("a", 1, 2400)] == list(range(1, 2401))
    count, deleted = stream.delete_old_messages(0)
    assert (count, deleted[-1]["sequence"]) == (2500, 2500)
