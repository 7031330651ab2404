"""The article's algorithm and lp's own tests, over every transport (B002-09)."""

import threading
import time

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.serve.kit import Polling, Ws, served


def test_what_is_new_comes_at_once_in_order_over_all_keys(server, listening, key):
    """S002-02, S002-22, B002-03."""
    cursor = server.now()
    first = server.push([key, 345], {"n": 1})["first"]
    server.push([key, "other"], {"n": 2})
    server.push(f"{key} plain", None)
    server.push([key, 345], [1, "two", None, 1.5, "ä€😀\n"])
    heard = listening(server, [[key, 345], f"{key} plain"], cursor)
    events = heard.until(3)
    assert [(e["id"] - first, e["key"], e["data"]) for e in events] == [
        (0, [key, 345], {"n": 1}),
        (2, f"{key} plain", None),
        (3, [key, 345], [1, "two", None, 1.5, "ä€😀\n"]),
    ]
    assert all(abs(e["time"] - time.time()) < 600 for e in events)


def test_who_waits_is_told_and_only_of_its_keys(server, listening, key):
    """S002-23, S002-26: three listeners with three keys each."""
    heard = [listening(server, [[key, n], [key, n + 10], [key, n + 20]]) for n in range(3)]
    for n in (1, 10, 22, 5):
        server.push([key, n], n)
    assert [each.until(1)[0]["data"] for each in heard] == [10, 1, 22]
    assert [each.hear(0.05) for each in heard] == [False] * 3


def test_a_push_reaches_who_is_waiting_at_that_moment(server, listening, key):
    heard = listening(server, [key])
    pusher = threading.Timer(0.2, lambda: server.push(key, "late"))
    pusher.start()
    assert heard.until(1)[0]["data"] == "late"
    pusher.join()


def test_without_a_cursor_one_hears_from_now_on(server, listening, key):
    """B002-04."""
    server.push(key, "before")
    heard = listening(server, [key])
    server.push(key, "after")
    heard.until(1)
    assert heard.data == ["after"]


def test_a_cut_connection_goes_on_where_it_was(server, listening, key):
    """S002-11, S002-13, S002-14."""
    heard = listening(server, [key])
    server.push(key, 1)
    heard.until(1)
    heard.close()
    server.push_many((key, 2), (f"{key} other", 0), (key, 3))
    again = listening(server, [key], heard.cursor)
    server.push(key, 4)
    again.until(3)
    assert heard.data + again.data == [1, 2, 3, 4]


def test_prefixes(server, listening, key):
    """W002-4."""
    heard = listening(server, [f"{key}?"], prefixes=[[key]])
    server.push_many(([key, 1], 1), ([key + "x", 1], 2), ([key], 3), (f"{key}?", 4), ([key, 2, "x"], 5))
    heard.until(4)
    assert heard.data == [1, 3, 4, 5]


def test_a_key_that_is_asked_for_twice_gives_nothing_twice(server, listening, key):
    """W002-2."""
    heard = listening(server, [[key, 1], [key, 1]], prefixes=[[key], [key, 1]])
    server.push([key, 1], 1)
    server.push([key, 1], 2)
    heard.until(2)
    assert heard.data == [1, 2]
    assert not heard.hear(0.05)


def test_the_last_value_comes_first_when_asked_for(server, listening, key):
    for n in range(5):
        server.push(key, n)
    heard = listening(server, [key], rewind=2)
    server.push(key, 5)
    heard.until(3)
    assert heard.data == [3, 4, 5]


def test_many_events_come_whole(server, listening, key):
    cursor = server.now()
    for part in range(3):
        server.push_many(*((key, {"n": part * 1000 + n, "text": "x" * 100}) for n in range(1000)))
    heard = listening(server, [key], cursor)
    assert [data["n"] for data in (heard.until(3000), heard.data)[1]] == list(range(3000))


def test_a_cursor_of_another_topic_is_a_gap(server, listening, key):
    with penstock.open(server.folder) as store:
        elsewhere = store.events("others").subscribe(["k"]).next
    heard = listening(server, [key], elsewhere)
    assert heard.until_gap()["reason"] == "epoch"
    server.push(key, "new")
    assert heard.until(1)[-1]["data"] == "new"


def test_a_cursor_ahead_of_everything_is_a_gap(server, listening, key):
    epoch = server.now().partition(".")[0]
    heard = listening(server, [key], f"{epoch}.999999999")
    assert heard.until_gap()["reason"] == "ahead"
    server.push(key, "new")
    heard.until(1)
    assert heard.data == ["new"]


def test_what_another_process_writes_to_the_folder_is_heard_at_once(server, listening, key):
    heard = listening(server, [[key, 1]])
    with penstock.open(server.folder) as store:
        store.events().push([key, 1], {"by": "folder"})
        heard.until(1)
        store.topic("events").write(b"not JSON", key=f'["{key}",1]')
        heard.until(2)
    assert heard.data == [{"by": "folder"}, "not JSON"]


def test_a_time_out_gives_an_empty_answer_that_has_moved_on(server, key):
    """S002-24, S002-25, B002-05."""
    cursor = server.now()
    last = server.push(f"{key} other", 1)["last"]
    began = time.monotonic()
    status, answer, _ = server.ask("GET", f"/v1/events?key=k&cursor={cursor}&timeout=0.2")
    assert time.monotonic() - began >= 0.2
    assert (status, answer["events"], "gap" in answer) == (200, [], False)
    assert answer["next"].endswith(f".{last + 1}")
    assert server.ask("GET", f"/v1/events?key=k&cursor={cursor}&timeout=0")[1]["next"] == answer["next"]


def test_an_answer_has_a_limit_and_the_next_goes_on(server, key):
    """W002-2."""
    cursor, got = server.now(), []
    server.push_many(*((key, n) for n in range(25)))
    for _ in range(3):
        answer = server.ask("GET", f"/v1/events?key={key}&cursor={cursor}&limit=10")[1]
        cursor = answer["next"]
        got.append([event["data"] for event in answer["events"]])
    assert got == [list(range(10)), list(range(10, 20)), list(range(20, 25))]


@pytest.mark.parametrize("restarted", [False, True])
def test_ids_go_on_when_everything_expired(tmp_path, restarted):
    """W002-1, B002-04: a lost cursor is told, also behind a restart."""
    folder = tmp_path / "data"
    with penstock.open(folder) as store:
        store.create_topic("events", index="key", retention="1s")
    with served(folder) as server:
        old = server.now()
        server.push_many(("k", 1), ("k", 2), ("k", 3))
        young = server.now()
        if restarted:
            assert server.end() == 0
        with penstock.open(folder) as store:
            deadline = time.monotonic() + PATIENCE_S
            while store.topic("events").stats().messages:
                assert time.monotonic() < deadline
                store.topic("events").vacuum()
        if not restarted:
            check_expired(server, old, young)
    if restarted:
        with served(folder) as server:
            check_expired(server, old, young)


def check_expired(server, old, young):
    answer = server.ask("GET", f"/v1/events?key=k&cursor={old}")[1]
    assert (answer["gap"]["reason"], answer["gap"]["first"], answer["gap"]["stop"]) == ("retention", 1, 4)
    assert (answer["events"], answer["min"]) == ([], 4)
    assert server.push("k", "again")["first"] == 4
    heard = Polling(server, ["k"], young)
    heard.until(1)
    assert (heard.ids, heard.gaps) == ([4], [])
    heard.close()


def test_a_topic_that_was_made_anew_is_served_anew(tmp_path):
    with served(tmp_path / "data") as server:
        old = server.now()
        server.push("k", "old")
        heard = Ws(server, ["k"])
        with penstock.open(server.folder) as store:
            store.drop_topic("events")
            assert heard.until_closed() == 1012
            heard.close()
            assert server.push("k", "new")["first"] == 1
        answer = server.ask("GET", f"/v1/events?key=k&cursor={old}")[1]
        assert answer["gap"]["reason"] == "epoch"
        again = Polling(server, ["k"], answer["next"])
        assert again.until(1)[0]["data"] == "new"
        again.close()


@pytest.mark.slow
def test_what_expired_goes_by_itself(tmp_path):
    """S002-27."""
    with penstock.open(tmp_path / "data") as store:
        store.create_topic("events", index="key", retention="1s")
        with served(tmp_path / "data") as server:
            server.push("k", 1)
            deadline = time.monotonic() + PATIENCE_S
            while store.topic("events").stats().messages:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_several_servers_on_one_folder_are_one(tmp_path):
    """S002-31: more addresses for more sockets; who is cut off goes on at another."""
    with served(tmp_path / "data") as one, served(tmp_path / "data") as two:
        heard = Ws(two, ["k"])
        one.push("k", "by one")
        two.push("k", "by two")
        assert [event["data"] for event in heard.until(2)] == ["by one", "by two"]
        heard.close()
        two.push("k", "meanwhile")
        elsewhere = Polling(one, ["k"], heard.cursor)
        assert [event["data"] for event in elsewhere.until(1)] == ["meanwhile"]
        elsewhere.close()
