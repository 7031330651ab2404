"""Real kill -9 of processes that retry, reject, delay and hold sessions: nothing is lost (B003-04, C19)."""

import itertools
import os
import random
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

import penstock
from penstock import Retry
from tests.crash.processes import Worker, no_orphans
from tests.crash.retry_workers import POLICY, never_works
from tests.crash.workers import ORDERS
from tests.kit.patience import wait_until
from tests.kit.waiting import file_reader_module as file_reader

JOBS = "tests.crash.retry_workers"
PARTITIONS = 2


@pytest.fixture
def store(scratch):
    return os.path.join(scratch, "store")


def said(workers):
    """(what, partition, offset, when) of everything that was said."""
    lines = [line.split() for worker in workers for line in worker.lines()]
    return [(what, *map(int, numbers)) for what, *numbers in lines]


def dead(store):
    with penstock.open(store, read_only=True) as opened:
        letters = opened.dead_letters(ORDERS).list(limit=100_000)
    return {(letter.message.partition, letter.message.offset) for letter in letters}


def kill_in_a_loop(scratch, store, count, kills, seed, *, keep_order="", kind="stream"):
    """Fill the topic, have three processes handle it while one after another is killed, wait for all."""
    chance = random.Random(seed)
    with penstock.open(store) as opened:
        topic = opened.create_topic(ORDERS, partitions=PARTITIONS)
        topic.write_many([b"x"] * count, keys=[b"k%d" % (n % 20) for n in range(count)])
        places = {(m.partition, m.offset): m.key for m in topic.scan().messages()}
    stop = os.path.join(scratch, "stop")
    everyone = []

    def start():
        out = os.path.join(scratch, f"w{len(everyone)}")
        everyone.append(Worker("process", store, stop, keep_order, kind, out=out, jobs=JOBS))

    with no_orphans(everyone):
        for _ in range(3):
            start()
        for _ in range(kills):
            time.sleep(chance.uniform(0.1, 0.6))
            victim = everyone[chance.randrange(-3, 0)]
            victim.send(signal.SIGKILL)
            victim.end()
            everyone.remove(victim)
            everyone.insert(0, victim)
            start()
        rest = {place for place in places if never_works(place[1])}

        def handled():
            return {(p, o) for what, p, o, _ in said(everyone) if what == "done"}

        wait_until(lambda: handled() >= places.keys() - rest and dead(store) >= rest, "something was lost")
        with open(stop, "w"):
            pass
        for worker in everyone[-3:]:
            if worker.process.poll() is None:
                worker.end()
    assert dead(store) == rest
    assert handled() == places.keys() - rest
    return places, everyone


def check_nothing_waits(store, kind="stream"):
    with penstock.open(store) as opened, opened.topic(ORDERS).reader(consumer="c", kind=kind) as reader:

        def all_is_committed():
            while (message := reader.receive(timeout=1)) is not None:
                reader.commit(message)  # handled, and its commit was lost with its process
            return opened.topic(ORDERS).consumers()[0].lag == 0

        wait_until(all_is_committed, "something waits that nobody is given")


def test_workers_that_are_killed_lose_nothing(scratch, store):
    kill_in_a_loop(scratch, store, 300, 6, seed=1)
    check_nothing_waits(store)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_are_killed_again_and_again_lose_nothing(scratch, store, seed):
    kill_in_a_loop(scratch, store, 5000, 60, seed=seed)
    check_nothing_waits(store)


def test_readers_of_a_queue_that_are_killed_lose_nothing(scratch, store):
    """U04: what a killed reader had comes to the others at once, not when its lease runs out."""
    kill_in_a_loop(scratch, store, 300, 6, seed=3, kind="queue")
    check_nothing_waits(store, kind="queue")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_readers_of_a_queue_that_are_killed_again_and_again_lose_nothing(scratch, store, seed):
    kill_in_a_loop(scratch, store, 3000, 40, seed=seed, kind="queue")
    check_nothing_waits(store, kind="queue")


def test_order_of_keys_survives_kills(scratch, store):
    """When a message of a key is first done, all earlier ones of it are done, or become dead letters."""
    places, everyone = kill_in_a_loop(scratch, store, 200, 4, seed=2, keep_order="yes")
    check_nothing_waits(store)
    first = {}
    for what, partition, offset, at in said(everyone):
        if what == "done":
            first[partition, offset] = min(at, first.get((partition, offset), at))
    by_key = {}
    for (partition, offset), key in sorted(places.items()):
        if (partition, offset) in first:
            by_key.setdefault((partition, key), []).append(first[partition, offset])
    assert all(earlier < later for line in by_key.values() for earlier, later in pairwise(line))


def settled(store, kind="stream", *, attempts=1):
    """What became of the three messages: offsets that come again, by their attempts, and dead letters.

    Waits until all three are accounted for, and the first was delivered for the `attempts`th time.
    """
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)
        found = {}

        def letters():
            return {letter.message.offset for letter in opened.dead_letters(ORDERS).list()}

        with topic.reader(consumer="c", retry=POLICY, kind=kind) as reader:

            def are_all_there():
                while (message := reader.receive(timeout=0.2)) is not None:
                    found[message.offset] = max(found.get(message.offset, 0), message.attempt)
                    reader.commit(message)
                return {*found, *letters()} == {0, 1, 2} and found.get(0, 0) >= attempts

            wait_until(are_all_there, lambda: f"lost: found {found}, dead {letters()}")
            assert reader.receive(timeout=0) is None
        return found, letters()


def die_at_each_call(scratch, step, kind="stream"):
    everyone = []
    with no_orphans(everyone):
        for calls in itertools.count(0, step):
            store = os.path.join(scratch, f"store{calls}")
            with penstock.open(store) as opened:
                topic = opened.create_topic(ORDERS)
                topic.write_many([b"a", b"b", b"c"])
            worker = Worker(
                "die_settling", store, str(calls), kind, out=os.path.join(scratch, f"d{calls}"), jobs=JOBS
            )
            everyone.append(worker)
            assert worker.end() == -signal.SIGKILL, worker.errors()
            assert "begun" in worker.lines()
            has_settled = "settled" in worker.lines()
            found, letters = settled(store, kind, attempts=3 if has_settled else 1)
            assert {*found, *letters} == {0, 1, 2}, f"lost at call {calls}"
            assert letters <= {1}
            if has_settled:
                assert letters == {1}
                assert found[0] == 3
                return calls
    raise AssertionError


def test_a_process_killed_while_it_settles_loses_nothing(scratch):
    assert die_at_each_call(scratch, 7) > 20


@pytest.mark.slow
def test_a_process_killed_at_any_step_of_settling_loses_nothing(scratch):
    assert die_at_each_call(scratch, 1) > 20


def test_a_reader_of_a_queue_killed_while_it_settles_loses_nothing(scratch):
    assert die_at_each_call(scratch, 24, "queue") > 7


@pytest.mark.slow
def test_a_reader_of_a_queue_killed_at_any_step_of_settling_loses_nothing(scratch):
    assert die_at_each_call(scratch, 1, "queue") > 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_finish_and_commit_what_runs(scratch, store, number):
    """`process` returns its summary, and the program goes on behind it."""
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS).write_many([b"x"] * 1000)
    worker = Worker("interruptible", store, out=os.path.join(scratch, "w"), jobs=JOBS)
    with no_orphans([worker]):
        worker.wait_for("begun 4")
        worker.send(number)
        assert worker.end() == 0, worker.errors()
    lines = [line.split() for line in worker.lines()]
    begun, ended = ({int(n) for what, n in lines if what == wanted} for wanted in ("begun", "ended"))
    assert lines[-1] == ["returned", str(len(begun))]
    assert begun == ended == set(range(len(begun)))
    with penstock.open(store) as opened, opened.topic(ORDERS).reader(consumer="c") as reader:
        assert reader.receive(timeout=5).offset == len(begun)


def run_until_it_lives(scratch, store, *arguments):
    """Start the worker again each time it dies; what each said, and how many died."""
    for died in range(20):
        worker = Worker("deadly", store, *arguments, out=os.path.join(scratch, f"d{died}"), jobs=JOBS)
        with no_orphans([worker]):
            code = worker.end()
        assert code in (0, -signal.SIGKILL), worker.errors()
        if code == 0:
            return died
    raise AssertionError("it kills each process that gets it, and nobody notices")


@pytest.mark.parametrize(
    ("kind", "how", "at", "deaths"),
    [
        ("stream", "process", 0, 3), ("stream", "process", 40, 8), ("stream", "receive", 40, 3),
        ("stream", "batch", 40, 5), ("queue", "process", 40, 3), ("queue", "batch", 40, 3),
    ],
)  # fmt: skip
def test_a_message_that_kills_its_process_becomes_a_dead_letter(scratch, store, kind, how, at, deaths):
    """Crashes count as attempts; the others are handled, and one that was beside it is none the worse."""
    with penstock.open(store) as opened:
        topic = opened.create_topic(ORDERS)
        topic.write_many([b"deadly" if number == at else b"x" for number in range(100)])
    died = run_until_it_lives(scratch, store, kind, how)
    with penstock.open(store) as opened:
        (letter,) = opened.dead_letters(ORDERS).list()
        assert (letter.message.offset, letter.reason) == (at, "the process died while handling it")
        assert letter.attempts == POLICY.attempts
        assert opened.topic(ORDERS).consumers()[0].lag == 0
    lines = [line for n in range(died + 1) for line in Path(scratch, f"d{n}").read_text().splitlines()]
    said = [line.split() for line in lines]
    assert {int(offset) for _, offset, _ in said} == set(range(100)) - {at}
    assert died <= deaths


def test_a_process_that_dies_and_got_on_each_time_makes_no_dead_letters(scratch, store):
    """Killed by somebody else again and again, it is nobody's fault."""
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS).write_many([b"x", b"deadly"] * 10)
    for _ in range(3):
        worker = Worker("deadly", store, "stream", "receive", out=os.path.join(scratch, "w"), jobs=JOBS)
        with no_orphans([worker]):
            assert worker.end() == -signal.SIGKILL
        with penstock.open(store) as opened, opened.topic(ORDERS).reader(consumer="c") as reader:
            reader.commit(reader.receive(timeout=10))  # the deadly one, by someone who survives it
    with penstock.open(store) as opened:
        assert opened.dead_letters(ORDERS).list() == []


def test_delayed_messages_survive_who_wrote_them(scratch, store):
    with penstock.open(store) as opened:
        opened.create_topic(ORDERS)
    everyone = []
    with no_orphans(everyone):
        for number in range(2):
            out = os.path.join(scratch, f"w{number}")
            everyone.append(Worker("delay", store, "40", out=out, jobs=JOBS))
        wait_until(lambda: all(len(each.lines()) > 10 for each in everyone), "nobody writes")
        for each in everyone:
            each.send(signal.SIGKILL)
            each.end()
    promised = {line for each in everyone for line in each.lines()}
    with penstock.open(store) as opened:
        topic = opened.topic(ORDERS)

        def there():
            return {message.text for message in topic.scan().messages()}

        wait_until(lambda: there() >= promised, "a delayed message was lost")


def die_and_look(scratch, job, step, prepare, look):
    """Kill a worker by its own hand, later and later, until it gets through; look at each store it left."""
    everyone = []
    with no_orphans(everyone):
        for calls in itertools.count(0, step):
            store = os.path.join(scratch, f"store{calls}")
            with penstock.open(store) as opened:
                prepare(opened.create_topic(ORDERS))
            worker = Worker(job, store, str(calls), out=os.path.join(scratch, f"d{calls}"), jobs=JOBS)
            everyone.append(worker)
            assert worker.end() == -signal.SIGKILL, worker.errors()
            look(store)
            if "settled" in worker.lines():
                return calls
    raise AssertionError


def arrived(store):
    """What is in the topic when all that waited has entered it."""
    with penstock.open(store) as opened:
        wait_until(lambda: nothing_is_delayed(opened), "a delayed message does not enter")
        return [message.text for message in opened.topic(ORDERS).read()]


def nothing_is_delayed(opened):
    if opened._database.row("SELECT 1 FROM delayed") is not None:
        return False
    folder, files = os.path.join(opened.path, "delay", "publish"), penstock.Files()
    return not file_reader.count(folder, files, file_reader.stored_states(folder, files))


def die_while_delaying(scratch, step):
    def look(store):
        found = arrived(store)
        assert found.count("now") <= 1
        assert ("now" in found) == ("later" in found), found

    return die_and_look(scratch, "die_delaying", step, lambda topic: None, look)


def test_what_a_transaction_delays_is_there_with_the_rest_of_it_or_not_at_all(scratch):
    assert die_while_delaying(scratch, 5) > 10


@pytest.mark.slow
def test_what_a_transaction_delays_is_whole_after_a_kill_at_any_step(scratch):
    assert die_while_delaying(scratch, 1) > 10


def die_while_publishing(scratch, step):
    counts = []

    def look(store):
        found = arrived(store)
        counts.append(len(found))
        assert set(found) == {"x"}, "lost"

    die_and_look(scratch, "die_publishing", step, lambda topic: topic.write("x", delay="200ms"), look)
    return counts


def test_a_delayed_message_is_appended_at_least_once_after_a_kill(scratch):
    assert max(die_while_publishing(scratch, 5)) <= 2


@pytest.mark.slow
def test_a_kill_between_appending_and_noting_so_appends_it_twice(scratch):
    """What docs/retries.md says of delayed messages: at least once. Nothing hides the second one."""
    assert set(die_while_publishing(scratch, 1)) == {1, 2}


def test_sessions_survive_as_they_promise(scratch, store):
    with penstock.open(store) as opened:
        opened.sessions.declare("mail", Retry(first="10ms", limit="1s"))
        opened.sessions.open("mail", data=b"due").store()
    worker = Worker("open_sessions", store, out=os.path.join(scratch, "w"), jobs=JOBS)
    with no_orphans([worker]):
        wait_until(lambda: worker.lines(), "it holds nothing")
        held, durable, _ = worker.lines()[0].split()
        worker.send(signal.SIGKILL)
        worker.end()
    with penstock.open(store) as opened:
        found = {}
        wait_until(
            lambda: found.update({s.id: s.data for s in opened.sessions.due("mail")}) or len(found) >= 2,
            "a session was lost",
        )
        assert found == {held: b"due", durable: b"ab"}
