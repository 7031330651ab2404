"""Files followed as they grow: each line once, through restarts, rotation and truncation (S001-47)."""

import os
import shutil

import pytest

import penstock
from penstock.errors import ConflictError, DataError, InvalidOption
from tests.exchange.killed_import import run_until_killed
from tests.kit.values import CsvRows, FieldChoice, Follower, JsonLines

KEYED = FieldChoice(key="n")


@pytest.fixture
def store(tmp_path):
    with penstock.open(tmp_path / "store") as opened:
        yield opened


def follow(topic, path, **options):
    return Follower(topic, str(path), lambda name: JsonLines(name, KEYED), **options)


def append(path, *numbers, end="\n"):
    with open(path, "a") as file:
        file.write("".join(f'{{"n": {n}}}\n' for n in numbers[:-1]) + f'{{"n": {numbers[-1]}}}{end}')


def keys(topic):
    return sorted(int(m.key) for m in topic.read(limit=10**6))


def in_order(topic):
    return [int(m.key) for m in topic.read(limit=10**6)]


@pytest.mark.parametrize("partitions", [1, 3])
def test_restarts_write_nothing_twice(store, tmp_path, partitions):
    topic = store.create_topic("t", partitions=partitions)
    path = tmp_path / "app.log"
    append(path, 0, 1, 2)
    with follow(topic, path) as follower:
        assert follower.look() == 3
        append(path, 3)
        assert follower.look() == 1
        assert follower.look() == 0
    append(path, 4, 5)
    with follow(topic, path) as follower:
        assert follower.look() == 2
    with follow(topic, path) as follower:
        assert follower.look() == 0
    assert keys(topic) == list(range(6))


def test_a_line_is_taken_when_it_has_its_end(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "app.log"
    append(path, 0, 1, end="")
    with follow(topic, path) as follower:
        assert follower.look() == 1
        assert follower.look() == 0
        append(path, 2)  # which also ends the line before... as a writer of two parts would not
    assert in_order(topic) == [0]
    with open(path, "r+") as file:
        file.write('{"n": 0}\n{"n": 1}\n{"n": 2}\n')
    with follow(topic, path) as follower:
        assert follower.look() == 2
    assert in_order(topic) == [0, 1, 2]


def test_a_file_that_is_rotated_away_is_read_to_its_end_before_the_new_one(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "app.log"
    append(path, 0, 1)
    with follow(topic, path) as follower:
        follower.look()
        append(path, 2)
        os.rename(path, tmp_path / "app.log.1")
        append(tmp_path / "app.log.1", 3)
        append(path, 4)
        follower.look()
        append(path, 5)
        follower.look()
    assert in_order(topic) == [0, 1, 2, 3, 4, 5]


def test_rotation_while_nobody_looked(store, tmp_path):
    topic = store.create_topic("t", partitions=2)
    path = tmp_path / "app.log"
    append(path, 0, 1)
    with follow(topic, path) as follower:
        follower.look()
    append(path, 2)
    os.rename(path, tmp_path / "app.log.1")
    append(path, 10)
    (tmp_path / "other.log").write_text("not followed")
    with follow(topic, path) as follower:
        follower.look()
    assert keys(topic) == [0, 1, 2, 10]


def test_the_last_line_of_a_rotated_file_may_have_no_end(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "app.log"
    append(path, 0, 1, end="")
    with follow(topic, path) as follower:
        follower.look()
        os.rename(path, tmp_path / "app.log.1")
        follower.look()
        assert in_order(topic) == [0]
        os.utime(tmp_path / "app.log.1", (1, 1))
        follower.look()
    assert in_order(topic) == [0, 1]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_file_that_is_copied_and_cut_begins_anew(store, tmp_path, partitions):
    """copytruncate: the inode stays, the content is new."""
    topic = store.create_topic("t", partitions=partitions)
    path = tmp_path / "app.log"
    append(path, *range(20))
    with follow(topic, path) as follower:
        follower.look()
        shutil.copy(path, tmp_path / "app.log.1")
        os.truncate(path, 0)
        follower.look()
        append(path, 20, 21)
        follower.look()
    os.truncate(path, 0)
    append(path, 22)
    with follow(topic, path) as follower:
        follower.look()
    os.truncate(path, 0)
    append(path, *range(23, 60))  # longer than it was: told by its first bytes
    with follow(topic, path) as follower:
        follower.look()
    assert keys(topic) == list(range(60))


def test_a_folder_of_files(store, tmp_path):
    topic = store.create_topic("t")
    folder = tmp_path / "logs"
    folder.mkdir()
    append(folder / "a.log", 0, 1)
    (folder / "b.txt").write_text("no json")
    with follow(topic, folder, pattern="*.log") as follower:
        assert follower.look() == 2
        append(folder / "b.log", 2)
        append(folder / "a.log", 3)
        assert follower.look() == 2
        os.rename(folder / "a.log", folder / "c.log")
        assert follower.look() == 0
    with follow(topic, folder, pattern="*.log") as follower:
        assert follower.look() == 0
    assert keys(topic) == [0, 1, 2, 3]


def test_csv_files_are_followed_too(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "f.csv"
    path.write_text("n")
    with Follower(topic, str(path), lambda name: CsvRows(name, KEYED)) as follower:
        assert follower.look() == 0
        path.write_text("n,b\n1,x\n2,y\n")
        assert follower.look() == 2
        with open(path, "a") as file:
            file.write("3,z\n")
        assert follower.look() == 1
    assert in_order(topic) == [1, 2, 3]


def test_run_goes_on_until_it_is_over(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "app.log"
    append(path, 0)
    with follow(topic, path) as follower:
        looks = iter([False, False, True])
        assert follower.run(lambda: next(looks)).messages == 1


def test_what_cannot_be_followed(store, tmp_path):
    topic = store.create_topic("t")
    with pytest.raises(InvalidOption, match="there is no folder"):
        follow(topic, tmp_path / "missing" / "app.log")
    path = tmp_path / "app.log"
    append(path, 0)
    with follow(topic, path) as follower:
        with pytest.raises(ConflictError, match="is being followed"):
            follow(topic, path)
        follower.look()
    path.write_text(path.read_text() + "no json\n")
    with follow(topic, path) as follower, pytest.raises(InvalidOption, match="line 2 is not JSON"):
        follower.look()
    (state,) = (tmp_path / "store" / "topics" / "t").glob("follow-*.json")
    state.write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        follow(topic, path)


def test_a_bad_line_is_named_and_left_out(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "app.log"
    path.write_bytes(b'{"n": 0}\nno json\n{"m": 1}\n{"n": 1}\n\xff\n{"n": 2}\nbroken')
    named = []
    with follow(topic, path, on_bad=named.append) as follower:
        assert follower.look() == 3
        assert follower.look() == 0
        with open(path, "a") as file:
            file.write('\n{"n": 3}\n')
        assert follower.look() == 1
        assert (follower.done.messages, follower.done.bad) == (4, 4)
    assert in_order(topic) == [0, 1, 2, 3]
    assert [str(error).split(f"{path} ")[1][:6] for error in named] == [
        "line 2",
        "line 3",
        "line 5",
        "line 7",
    ]
    with follow(topic, path, on_bad=named.append) as follower:
        assert follower.look() == 0
    assert len(named) == 4, "what lies before a stored line is not looked at again"


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_line_that_the_topic_does_not_take_is_named_and_left_out(store, tmp_path, partitions):
    topic = store.create_topic("t", partitions=partitions, max_message_bytes="1KiB")
    path = tmp_path / "app.log"
    lines = [f'{{"n": {n}, "v": "{"x" * (2000 if n % 10 == 3 else 20)}"}}\n' for n in range(40)]
    path.write_text("".join(lines))
    named = []
    with follow(topic, path, on_bad=named.append) as follower:
        assert follower.look() == 36
        assert follower.done.bad == 4
    assert keys(topic) == [n for n in range(40) if n % 10 != 3]
    assert [str(error).split(": a value of")[0] for error in named] == [
        f"{path} line {n}" for n in (4, 14, 24, 34)
    ]


def test_what_is_strict_ends_at_a_bad_line_and_stores_what_came_before(store, tmp_path):
    topic = store.create_topic("t", max_message_bytes="1KiB")
    path = tmp_path / "app.log"
    append(path, 0, 1)
    with open(path, "a") as file:
        file.write('{"n": 2, "v": "' + "x" * 2000 + '"}\n{"n": 3}\n')
    with follow(topic, path) as follower, pytest.raises(InvalidOption, match="line 3: a value of"):
        follower.look()
    assert in_order(topic) == [0, 1]


def test_bad_rows_of_a_csv_file_are_left_out(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "f.csv"
    path.write_bytes(b'n,b\n0,x\n1\n2,"a"b\n3,\xff\n4,y\n5,"two\nlines"\n')
    named = []
    rows = Follower(topic, str(path), lambda name: CsvRows(name, KEYED), on_bad=named.append)
    with rows as follower:
        assert follower.look() == 3
        assert [int(str(e).split(" line ")[1].split()[0]) for e in named] == [3, 4, 5]
        with open(path, "a") as file:
            file.write('6,"not yet')
            file.flush()
            assert follower.look() == 0
            file.write("\nclosed\n")
            file.flush()
            assert follower.look() == 0, "its quote is open: it may be written yet"
            file.write('now"\n7,z\n')
        assert follower.look() == 2
    assert in_order(topic) == [0, 4, 5, 6, 7]
    assert len(named) == 3


def test_a_quote_that_is_never_closed_takes_its_own_line_only(store, tmp_path):
    topic = store.create_topic("t")
    path = tmp_path / "f.csv"
    path.write_text('n,b\n0,"open\n' + "".join(f"{n},x\n" for n in range(1, 200)))
    named = []
    rows = Follower(topic, str(path), lambda name: CsvRows(name, KEYED), on_bad=named.append)
    with rows as follower:
        assert follower.look() == 0
        os.rename(path, tmp_path / "f.csv.1")
        os.utime(tmp_path / "f.csv.1", (1, 1))  # nobody writes to it any more
        assert follower.look() == 199
    assert in_order(topic) == list(range(1, 200))
    assert [str(e).split(" line ")[1].split(" is ")[0] for e in named] == ["2"]


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_follower_killed_again_and_again_stores_each_line_once(tmp_path, partitions):
    with penstock.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=partitions)
    path = tmp_path / "app.log"
    append(path, *range(400))
    kills, length, begin = 0, 2, 400
    while run_until_killed("following", tmp_path / "store", path, length):
        kills += 1
        length *= 2
        if kills == 2:
            os.rename(path, tmp_path / "app.log.1")
        append(path, *range(begin, begin + 50))
        begin += 50
    assert kills >= 3
    with penstock.open(tmp_path / "store") as store:
        with follow(store.topic("t"), path) as follower:
            follower.look()
        assert keys(store.topic("t")) == list(range(begin))
