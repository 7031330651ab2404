"""`penstock stream engine` and `penstock stream migrate`, with a real Tarantool."""

import json

import pytest

import penstock
from tests.contract.test_tarantool import BARE_SEED
from tests.e2e.command import Command
from tests.kit.tarantools import VERSION
from tests.tarantool import PASSWORD, USER, tarantool_server

SECRET = {"PENSTOCK_TARANTOOL_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def server():
    with tarantool_server() as server:
        yield server


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_TARANTOOL_PASSWORD", PASSWORD)
    return Command(tmp_path)


def at(server):
    return ("--tarantool", server.address, "--user", USER)


def test_install_then_check(server, command):
    ended = command.quick("stream", "engine", "check", *at(server), "--prefix", "none_")
    assert ended.code == 2
    assert "stream engine install" in ended.err
    installed = command.quick_json(
        "stream", "engine", "install", *at(server), "--prefix", "a_", "--allow", "app"
    )
    assert installed == {"tarantool": server.address, "prefix": "a_", "version": VERSION}
    server.call("a_publish_message", "orders", "o", user="app", password="app-secret")
    found = command.quick_json("stream", "engine", "check", *at(server), "--prefix", "a_")
    assert (found["messages"], found["sequence"], found["wal_mode"]) == (1, 1, "write")
    ended = command.quick("stream", "engine", "check", *at(server), "--prefix", "a_")
    assert "survives a crash of Tarantool, not a power cut" in ended.out
    assert PASSWORD not in ended.out + ended.err


def test_the_lua_is_printed_for_those_who_load_it(server, command, tmp_path):
    ended = command.quick("stream", "engine", "lua", "--prefix", "printed_")
    assert ended.code == 0
    (tmp_path / "streams.lua").write_text(ended.out)
    server.eval(f"dofile('{tmp_path / 'streams.lua'}')")
    assert server.call("printed_publish_message", "a", "o") == [1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tarantool", "nowhere"), "HOST:PORT"),
        (("--tarantool", "127.0.0.1:99999"), "port"),
        (("--prefix", "a b"), "prefix"),
    ],
)
def test_what_cannot_be_meant_is_refused(command, arguments, said):
    ended = command.quick("stream", "engine", "check", *arguments)
    assert ended.code == 2
    assert said in ended.err


def test_a_user_without_a_password_is_told_where_it_comes_from(server, command, monkeypatch):
    monkeypatch.delenv("PENSTOCK_TARANTOOL_PASSWORD")
    ended = command.quick("stream", "engine", "check", *at(server))
    assert ended.code == 2
    assert "PENSTOCK_TARANTOOL_PASSWORD" in ended.err


def test_a_password_that_is_wrong_is_never_shown(server, command, monkeypatch):
    monkeypatch.setenv("PENSTOCK_TARANTOOL_PASSWORD", "hunter2")
    ended = command.quick("stream", "engine", "check", *at(server))
    assert ended.code == 2
    assert "hunter2" not in ended.out + ended.err


def test_migrate_asks_first_and_says_what_it_did(server, command, tmp_path):
    server.eval(BARE_SEED % {"prefix": "old_"})
    where = ("stream", "migrate", "--from", server.address, "--user", USER, "--prefix", "old_")
    found = command.quick_json(*where, "--dry-run")
    assert (found["messages"], found["is_dry_run"], found["numbers_filled"]) == (3, True, 6)
    assert not command.store.exists()
    ended = command.run(*where, input="n\n", **SECRET)
    assert ended.code == 1
    assert "found 3 messages and 1 position" in ended.err
    assert not command.store.exists()
    ended = command.run(*where, "--yes", **SECRET)
    assert ended.code == 0, ended
    assert ended.out == "stream: 3 messages written, 0 were there, 1 position; last sequence 9\n"
    with penstock.open(command.store) as store:
        assert [row[0] for row in store.stream("stream").get_all_messages(1, 10)] == [1, 2, 5]


def test_missing_bodies_are_named_and_the_exit_code_says_so(server, command, tmp_path):
    server.eval(BARE_SEED % {"prefix": "bodies_"})
    (tmp_path / "bodies" / "orders").mkdir(parents=True)
    (tmp_path / "bodies" / "orders" / "1").write_bytes(b"one")
    ended = command.quick(
        "stream", "migrate", "--from", server.address, "--user", USER, "--prefix", "bodies_", "--yes",
        "--json", "--bodies", str(tmp_path / "bodies"),
    )  # fmt: skip
    assert ended.code == 3
    assert json.loads(ended.out)["bodies_missing"] == ["orders/2", "images/5"]
