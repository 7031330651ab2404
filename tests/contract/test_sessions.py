"""Sessions: changeable work with deferred repeats (B003-01 to B003-04, B003-08)."""

import os
import uuid

import msgspec
import pytest

import penstock
from penstock import InvalidOption, Retry, WrongType

EXACT = Retry(first="10s", factor=2, limit="1h", attempts=3, jitter=0)


@pytest.fixture
def sessions(store):
    store.sessions.declare("mail", EXACT)
    return store.sessions


def test_a_finished_session_never_touches_the_files(store):
    session = store.sessions.open("mail")
    session.append(b"to")
    session.append(b"from")
    assert (session.chunks, session.data, session.attempt) == ([b"to", b"from"], b"tofrom", 1)
    session.replace(b"all")
    assert session.chunks == [b"all"]
    session.finish()
    assert not os.path.exists(os.path.join(store.path, "delay"))


def test_a_stored_session_comes_again_with_its_chunks(sessions, clock):
    session = sessions.open("mail", data=b"a")
    session.append(b"b")
    assert session.store(error=ValueError("no answer")) is True
    assert sessions.due("mail") == []
    clock.advance("10s")
    (again,) = sessions.due("mail")
    assert (again.id, again.attempt, again.chunks) == (session.id, 2, [b"a", b"b"])
    assert again.last_error == "ValueError: no answer"
    again.append(b"c")
    again.finish()
    clock.advance("1d")
    assert sessions.due("mail") == []
    assert sessions.count("mail") == 0


def test_changes_of_a_repeated_session_are_kept_when_it_is_stored_again(sessions, clock):
    sessions.open("mail", data=b"a").store()
    clock.advance("10s")
    (again,) = sessions.due("mail")
    again.replace(b"new")
    again.store()
    clock.advance("19s")
    assert sessions.due("mail") == []
    clock.advance("1s")
    assert sessions.due("mail")[0].chunks == [b"new"]


def test_a_delay_of_ones_own_is_never_shorter_than_the_topics(sessions, clock):
    sessions.open("mail").store("1s")
    sessions.open("mail").store("1m")
    clock.advance("9s")
    assert sessions.due("mail") == []
    clock.advance("1s")
    assert len(sessions.due("mail")) == 1
    clock.advance("50s")
    assert len(sessions.due("mail")) == 1


def test_after_the_last_attempt_it_is_a_dead_letter(store, sessions, clock):
    assert sessions.open("mail", data=b"hello").store(error="one")
    clock.advance("1m")
    assert sessions.due("mail")[0].store(error="two")
    clock.advance("1m")
    assert sessions.due("mail")[0].store(error="three") is False
    clock.advance("1d")
    assert sessions.due("mail") == []
    (letter,) = store.topic("mail.dead").read()
    assert letter.value == b"hello"
    assert (letter.headers["penstock-first-error"], letter.headers["penstock-last-error"]) == ("one", "three")
    assert letter.headers["penstock-attempts"] == "3"


def test_with_finishes_or_stores(sessions, clock):
    with sessions.open("mail") as session:
        session.append(b"fine")

    def break_off():
        with sessions.open("mail") as session:
            session.append(b"broken")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        break_off()
    clock.advance("10s")
    (again,) = sessions.due("mail")
    assert (again.data, again.last_error) == (b"broken", "RuntimeError: half way")


def test_ended_twice_is_told_so(sessions, clock):
    session = sessions.open("mail")
    session.finish()
    for call in (session.finish, session.store, lambda: session.append(b"x"), lambda: session.replace(b"x")):
        with pytest.raises(penstock.UsageError, match="was finished before"):
            call()
    stored = sessions.open("mail")
    stored.store()
    with pytest.raises(penstock.UsageError, match="was stored before"):
        stored.finish()


def test_two_workers_on_one_session_one_is_told_so(open_store, clock):
    first, second = open_store(clock=clock), open_store(clock=clock)
    first.sessions.declare("mail", EXACT)
    first.sessions.open("mail", data=b"x").store()
    clock.advance("10s")
    (mine,) = first.sessions.due("mail")
    assert second.sessions.due("mail") == []  # one process at a time hands them out
    first.sessions.close()
    (theirs,) = second.sessions.due("mail")
    assert theirs.id == mine.id
    with pytest.raises(penstock.PenstockError):
        mine.finish()
    theirs.finish()


def test_the_policy_is_kept_in_the_store(open_store):
    store = open_store()
    assert store.sessions.policy("mail") == Retry()
    store.sessions.declare("mail", EXACT)
    store.close()
    store = open_store()
    kept = store.sessions.policy("mail")
    assert (kept.wait_s(1), kept.wait_s(2), kept.wait_s(3)) == (10, 20, None)
    assert store.sessions.topics() == ["mail"]


def test_a_durable_session_outlives_its_store(open_store, clock):
    store = open_store(clock=clock)
    kept = store.sessions.open("mail", data=b"a", durable=True)
    kept.append(b"b")
    store.sessions.open("mail", data=b"done", durable=True).finish()
    store.sessions.open("mail", data=b"lost")
    store.close()
    store = open_store(clock=clock)
    (again,) = store.sessions.due("mail")
    assert (again.id, again.chunks) == (kept.id, [b"a", b"b"])


def test_wrong_calls_are_told_so(sessions):
    session = sessions.open("mail")
    for wrong in (0, -1, "3650d", "soon"):
        with pytest.raises(penstock.InvalidOption):
            session.store(wrong)
    with pytest.raises(penstock.WrongType):
        session.append("text")
    with pytest.raises(penstock.MessageTooLarge):
        session.append(bytes(17 << 20))
    with pytest.raises(penstock.UsageError):
        sessions.open("../mail")
    with pytest.raises(penstock.UsageError):
        sessions.declare("mail", 3)
    session.finish()


def test_waiting_for_the_next_one(open_store):
    store = open_store()
    store.sessions.declare("mail", Retry(first="20ms", limit="1s"))
    store.sessions.open("mail", data=b"x").store()
    assert store.sessions.due("mail", timeout="10s")[0].data == b"x"


def chains(tmp_path):
    folder = tmp_path / "store" / "delay" / "sessions" / "mail" / "waiting"
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_delays_are_chosen_and_each_has_files_of_its_own(open_store, clock, tmp_path):
    """S003-02, S003-04, S003-24: the waits of the attempts, one after another, without chance."""
    store = open_store(clock=clock)
    store.sessions.declare("mail", Retry(delays=("30s", "60s", "90s"), attempts=5))
    store.close()
    store = open_store(clock=clock)
    assert store.sessions.policy("mail").delays == (30.0, 60.0, 90.0)
    session = store.sessions.open("mail", data=b"x")
    for attempt, wait in enumerate((30, 60, 90, 90), 1):
        assert session.attempt == attempt
        assert session.store()
        assert f"{wait}s" in chains(tmp_path)
        clock.advance(wait - 1)
        assert store.sessions.due("mail") == []
        clock.advance(1)
        (session,) = store.sessions.due("mail")
    assert not session.store(), "the fifth attempt was the last"


def test_waits_with_chance_in_them_are_on_the_ladder(store, tmp_path):
    """They would make a file each; a delay that was asked for has its own."""
    store.sessions.declare("mail", Retry(first="30s", jitter=0.5))
    store.sessions.open("mail", data=b"x").store()
    assert chains(tmp_path) == ["ladder-30s"]
    store.sessions.open("mail", data=b"x").store("45s")
    assert chains(tmp_path) == ["45s", "ladder-30s"]


def test_an_id_is_a_uuid_of_version_7(store):
    """S003-06, RFC 9562."""
    first, second = (uuid.UUID(store.sessions.open("mail").id) for _ in range(2))
    assert first.version == second.version == 7
    assert first.variant == uuid.RFC_4122
    assert first != second


def test_the_data_of_a_session_is_found_in_its_file(store, tmp_path):
    """S003-06: with what is ours around it as docs/FORMAT.md has it, a msgpack array."""
    session = store.sessions.open("mail", data=b"one")
    session.append(b"two")
    session.store("1h", error="away")
    (path,) = (tmp_path / "store" / "delay" / "sessions" / "mail" / "waiting" / "3600s").glob("*.data")
    record = path.read_bytes()
    assert record[8:24].hex() == session.id
    assert record[24:29] == b"\x04mail"
    assert record[29] == 1
    assert msgspec.msgpack.decode(record[31:]) == [[b"one", b"two"], "away", "away"]
    assert record[30] == len(record) - 31


@pytest.mark.parametrize("delays", ["30s", ("0s",), (-1,), ("soon",), (None,), 5, ("400d",)])
def test_delays_that_make_no_sense_are_refused(delays):
    with pytest.raises((InvalidOption, WrongType)):
        Retry(delays=delays)
