"""Dead letters can be listed, shown, tried again and dropped (wish 16, C19, U04)."""

import pytest

import penstock


@pytest.fixture
def topic(store):
    """With five dead letters of two consumers."""
    topic = store.create_topic("orders", partitions=2)
    for number in range(3):
        topic.write(f"m{number}", key=f"k{number}", headers={"n": str(number)}, partition=number % 2)
    for consumer, reason, count in (("billing", "bad card", 3), ("mail", "no address", 2)):
        with topic.reader(consumer=consumer) as reader:
            for _ in range(count):
                reader.reject(reader.receive(timeout=0), reason)
    return topic


def numbers(letters):
    return [letter.number for letter in letters]


def received(topic, consumer):
    found = []
    with topic.reader(consumer=consumer) as reader:
        while (message := reader.receive(timeout=0)) is not None:
            found.append((message.value.decode(), message.attempt))
            reader.commit(message)
    return sorted(found)


def test_a_topic_without_dead_letters_has_an_empty_list(store):
    store.create_topic("quiet")
    letters = store.dead_letters("quiet")
    assert (letters.list(), letters.count(), letters.drop()) == ([], 0, 0)
    assert [each.name for each in store.topics()] == ["quiet"]
    with pytest.raises(penstock.UnknownTopic):
        store.dead_letters("missing")


def test_they_are_listed_and_chosen(store, topic):
    letters = store.dead_letters("orders")
    assert letters.count() == 5
    assert numbers(letters.list()) == [0, 1, 2, 3, 4]
    assert numbers(letters.list(limit=2)) == [0, 1]
    assert numbers(letters.list(consumer="mail")) == [3, 4]
    assert numbers(letters.list(reason="card")) == [0, 1, 2]
    letter = letters.show(3)
    assert (letter.consumer, letter.reason, letter.attempts) == ("mail", "no address", 1)
    assert letter.message.headers["n"] == letter.message.value.decode()[1:]


def test_replayed_they_come_to_their_consumer_only(store, topic):
    letters = store.dead_letters("orders")
    assert letters.replay(consumer="mail") == 2
    assert received(topic, "billing") == []
    assert sorted(attempt for _, attempt in received(topic, "mail")) == [1, 2, 2]  # the first is new to it
    assert numbers(letters.list()) == [0, 1, 2]
    assert topic.stats().messages == 3


def test_a_replayed_letter_is_the_second_attempt(store, topic):
    assert store.dead_letters("orders").replay([0, 2]) == 2
    assert [attempt for _, attempt in received(topic, "billing")] == [2, 2]


def test_a_reader_that_waits_gets_what_is_replayed(open_store):
    store = open_store()
    topic = store.create_topic("orders")
    topic.write("m0")
    with topic.reader(consumer="billing") as reader:
        reader.reject(reader.receive(timeout=5), "bad")
        assert store.dead_letters("orders").replay() == 1
        assert reader.receive(timeout=10).value == b"m0"


def test_dropped_they_are_gone_and_the_others_stay(store, topic):
    letters = store.dead_letters("orders")
    assert letters.drop([1, 2, 4]) == 3
    assert numbers(letters.list()) == [0, 3]
    with pytest.raises(penstock.OutOfRange, match="no dead letter 1"):
        letters.show(1)
    with pytest.raises(penstock.OutOfRange):
        letters.replay(1)
    assert letters.drop() == 2
    assert letters.list() == []


def test_replay_keeps_to_its_rate(store, topic, clock):
    before = clock.monotonic()
    assert store.dead_letters("orders").replay(rate=2) == 5
    assert clock.monotonic() - before == pytest.approx(2.5)


def test_one_that_fails_again_is_a_new_letter(store, topic, clock):
    letters = store.dead_letters("orders")
    letters.replay(0)
    with topic.reader(consumer="billing", retry=penstock.Retry(attempts=2)) as reader:
        assert reader.retry(reader.receive(timeout=0), error="worse") is False
    assert letters.count() == 5
    assert letters.list(reason="worse")[0].attempts == 2


def test_a_consumer_that_is_gone_gets_nothing_and_that_is_said(store, topic):
    topic.drop_consumer("mail")
    letters = store.dead_letters("orders")
    with pytest.raises(penstock.UnknownConsumer, match="mail"):
        letters.replay(consumer="mail")
    assert letters.count() == 5


def test_letters_of_a_topic_that_was_made_anew_are_not_replayed(store, topic):
    store.drop_topic("orders")
    store.create_topic("orders").add_consumer("billing")
    with pytest.raises(penstock.TopicReplaced):
        store.dead_letters("orders").replay(0)


def test_wrong_calls_are_told_so(store, topic):
    letters = store.dead_letters("orders")
    for wrong in ({"rate": 0}, {"rate": "fast"}, {"numbers": "1"}, {"numbers": [-1]}, {"reason": 7}):
        with pytest.raises(penstock.UsageError):
            letters.replay(**wrong)
    with pytest.raises(penstock.InvalidOption):
        letters.list(limit=0)
    assert letters.count() == 5


def test_they_can_be_looked_at_where_nothing_may_be_changed(open_store, store, topic):
    reading = open_store(read_only=True)
    letters = reading.dead_letters("orders")
    assert letters.count() == 5
    with pytest.raises(penstock.ReadOnly):
        letters.drop()


def test_a_dead_letter_of_dead_letters_keeps_where_it_came_from(store, topic):
    """Whoever works through `orders.dead` may fail too: nothing of the first failure is overwritten."""
    first = store.dead_letters("orders").show(0)
    with store.topic("orders.dead").reader(consumer="doctor") as reader:
        reader.reject(reader.receive(timeout=0), "hopeless")
    (second,) = store.dead_letters("orders.dead").list()
    assert (second.consumer, second.reason, second.message.topic) == ("doctor", "hopeless", "orders.dead")
    assert second.message.headers == store.topic("orders.dead").get(0).headers
    store.topic("orders.dead.dead").write("x")  # a stranger's message is no letter
    with store.topic("orders.dead.dead").reader(consumer="doctor") as reader:
        reader.reject(reader.receive(timeout=0), "twice")
    (third,) = store.dead_letters("orders.dead.dead").list()
    assert third.message.headers == store.topic("orders.dead.dead").get(0).headers
    assert store.dead_letters("orders.dead").replay() == 1
    with store.topic("orders.dead").reader(consumer="doctor") as reader:
        again = next(
            message for message in iter(lambda: reader.receive(timeout=0), None) if message.attempt > 1
        )
    assert again.headers["penstock-reason"] == first.reason
    assert "penstock-before-reason" not in again.headers


def test_a_note_that_is_rejected_settles_nothing(store, topic):
    letters = store.dead_letters("orders")
    letters.drop([0, 1, 2, 3])
    with store.topic("orders.dead").reader(consumer="doctor") as reader:
        for message in iter(lambda: reader.receive(timeout=0), None):
            reader.reject(message, "no")
    assert store.dead_letters("orders.dead").count() == 6
    assert numbers(letters.list()) == [4]


def test_letters_of_a_dropped_topic_can_be_looked_at_and_dropped(store, topic):
    store.drop_topic("orders")
    letters = store.dead_letters("orders")
    assert letters.count() == 5
    with pytest.raises(penstock.TopicReplaced):
        letters.replay(0)
    assert letters.drop() == 5


def test_sessions_that_failed_too_often_are_listed_and_come_again(store, clock):
    """S003, B003-04: their topic is no log."""
    store.sessions.declare("mail", penstock.Retry(attempts=1))
    session = store.sessions.open("mail", data=b"to: ann")
    session.append(b"")
    session.append(b"hello")
    assert session.store(error="the server is away") is False
    letters = store.dead_letters("mail")
    (letter,) = letters.list(reason="away")
    assert (letter.session, letter.consumer, letter.attempts) == (session.id, "", 1)
    assert (letter.message.value, dict(letter.message.headers)) == (b"to: annhello", {})
    assert letters.replay() == 1
    assert letters.count() == 0
    (again,) = store.sessions.due("mail")
    assert (again.id, again.attempt, again.chunks) == (session.id, 2, [b"to: ann", b"", b"hello"])
    assert again.last_error == "the server is away"
    again.finish()
    assert store.sessions.count("mail") == 0
