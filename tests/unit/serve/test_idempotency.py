"""A push under an Idempotency-Key is stored once, whatever happened to the first attempt."""

import threading

import pytest

import penstock
from penstock.serve.http_messages import Refusal
from penstock.serve.idempotency import push_once
from penstock.serve.push import Push
from penstock.store import Topic

PUSH = Push([b"k", b"other"], [b"1", b"2"], [None, {"audience": b'"ann"'}])


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "data") as store:
        yield store


def push(store, key="once", who="", push=PUSH, body=b"body"):
    return push_once(store, store.events(), push, key=key, who=who, body=body)


def count(store):
    return store.topic("events").stats().messages


def test_a_second_attempt_is_answered_like_the_first(store, tmp_path):
    first = push(store)
    assert push(store) == first
    with penstock.open(tmp_path / "data") as elsewhere:
        assert push(elsewhere) == first
    assert count(store) == 2


def test_keys_of_different_pushers_and_different_keys_never_meet(store):
    assert len({push(store).first, push(store, who="ann").first, push(store, key="twice").first}) == 3
    with pytest.raises(Refusal) as refused:
        push(store, body=b"other")
    assert refused.value.status == 422


def test_who_died_before_noting_the_ids_is_found_out(store, monkeypatch):
    store.events().push("k", "before")
    real = Topic.write

    def die(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Topic, "write", die)
    with pytest.raises(KeyboardInterrupt):
        push(store)
    monkeypatch.setattr(Topic, "write", real)
    store.events().push("k", "after")
    found = push(store)
    assert (found.first, found.last, count(store)) == (2, 3, 4)
    message = store.topic("events").get(2)
    assert message.headers["audience"] == b'"ann"'


def test_attempts_at_the_same_time_store_it_once(store):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(push(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(str, answers))) == 1
    assert (len(answers), count(store)) == (8, 2)


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_that_is_none_is_refused(store, key):
    with pytest.raises(penstock.InvalidOption):
        push(store, key=key)
