"""What every place for bodies does, be it a folder or a bucket."""

import io
import os
import threading
from hashlib import sha256
from pathlib import Path

import pytest

from penstock.errors import BodyMissing, InvalidOption, MessageTooLarge, WrongType
from tests.kit.bodies import PIECE_BYTES, open_bodies

LARGE = os.urandom(1 << 20) * 9 + b"and a little"
ODD_NAMES = [
    "a",
    "a/b",
    "a=",
    "a=/b",
    "images/2026/11/cat.png",
    "../../secret",
    "./.",
    "..",
    ".",
    "/absolute",
    "//",
    "ends/",
    "100 %",
    "%2E",
    "%long/x",
    "%tmp/x",
    "käse/日本/😀",
    "a\\b:c*?\"<>|{}^`[]~#'",
    "line\nfeed\ttab",
    " ",
    "x" * 1000,
    "é" * 1000,
    "/" * 1000,
    "y" * 201 + "/z",
]


@pytest.fixture
def bodies(place):
    return open_bodies(place)


def test_a_body_comes_back_as_it_was(bodies):
    stored = bodies.put("a/b", b"hello")
    assert (stored.name, stored.size, stored.sha256) == ("a/b", 5, sha256(b"hello").digest())
    assert bodies.get("a/b") == b"hello"
    assert bodies.get("a/b", 1, 3) == b"ell"
    assert bodies.get("a/b", 2) == b"llo"


def test_any_name_is_a_body_of_its_own(bodies):
    for number, name in enumerate(ODD_NAMES):
        bodies.put(name, str(number).encode())
    for number, name in enumerate(ODD_NAMES):
        assert bodies.get(name) == str(number).encode(), name
    found = list(bodies.list())
    assert sorted(each.name for each in found) == sorted(ODD_NAMES)
    assert all(each.size in (1, 2) and each.modified_ns > 1.7e18 for each in found)
    assert bodies.delete(ODD_NAMES) == len(ODD_NAMES)
    assert list(bodies.list()) == []


def test_no_name_leads_out_of_the_folder(tmp_path):
    bodies = open_bodies(tmp_path / "inside" / "bodies")
    for name in ODD_NAMES:
        bodies.put(name, b"x")
    outside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(outside) >= len(ODD_NAMES)
    assert all(path.is_relative_to(tmp_path / "inside" / "bodies") for path in outside)


@pytest.mark.parametrize("name", ["", "x" * 1001, "a\0b", "\ud800"])
def test_what_cannot_be_a_name_is_refused(bodies, name):
    with pytest.raises(InvalidOption):
        bodies.put(name, b"x")


def test_an_empty_body_is_a_body(bodies):
    assert bodies.put("empty", b"").size == 0
    assert bodies.get("empty") == b""
    assert bodies.open("empty").read() == b""
    assert [each.size for each in bodies.list()] == [0]


def test_a_missing_body_has_its_own_error(bodies):
    for ask in (bodies.get, lambda name: bodies.get(name, 3, 5), bodies.open):
        with pytest.raises(BodyMissing, match="'a/missing' is not in") as told:
            ask("a/missing")
        assert told.value.name == "a/missing"
    bodies.put("a", b"x")
    with pytest.raises(BodyMissing):
        bodies.get("a/missing")


def test_put_replaces_and_delete_removes(bodies):
    bodies.put("a", b"one")
    bodies.put("a", b"three")
    bodies.put("b", b"two")
    assert bodies.get("a") == b"three"
    bodies.delete(["a", "never there"])
    assert [each.name for each in bodies.list()] == ["b"]


def test_list_takes_the_beginning_of_a_name(bodies):
    for name in ("a/1", "a/2", "ab/1", "a/2/3", "b", "a/2" + "x" * 600):
        bodies.put(name, b"x")
    assert sorted(each.name for each in bodies.list("a/2")) == ["a/2", "a/2/3", "a/2" + "x" * 600]
    assert sorted(each.name for each in bodies.list("ab")) == ["ab/1"]
    assert len(list(bodies.list("a"))) == 5
    assert list(bodies.list("c")) == []


def test_large_bodies_go_up_and_down_in_pieces(bodies, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    pipe = _Dripping(io.BytesIO(LARGE))
    with path.open("rb") as file:
        for name, body in (("path", path), ("file", file), ("pipe", pipe), ("view", memoryview(LARGE))):
            stored = bodies.put(name, body, content_type="application/x-test")
            assert (stored.size, stored.sha256) == (len(LARGE), sha256(LARGE).digest()), name
    for name in ("path", "file", "pipe", "view"):
        with bodies.open(name) as file:
            assert sha256(file.read()).digest() == sha256(LARGE).digest()
    with bodies.open("path", 5, PIECE_BYTES) as file:
        assert file.read(10) == LARGE[5:15]
        assert file.seek(-4, os.SEEK_END) == PIECE_BYTES - 4
        assert file.read() == LARGE[PIECE_BYTES + 1 : PIECE_BYTES + 5]


def test_a_body_that_is_too_large_leaves_nothing(bodies):
    for most in (10, PIECE_BYTES + 10):
        with pytest.raises(MessageTooLarge):
            bodies.put("large", io.BytesIO(LARGE), most=most)
    assert list(bodies.list()) == []


def test_a_body_that_cannot_be_read_leaves_nothing(bodies, tmp_path):
    with pytest.raises(FileNotFoundError):
        bodies.put("x", Path(tmp_path / "nothing there"))
    with pytest.raises(WrongType, match="rb"):
        bodies.put("x", io.StringIO("text"))
    with pytest.raises(WrongType):
        bodies.put("x", 5)
    with pytest.raises(ZeroDivisionError):
        bodies.put("x", _Breaking(io.BytesIO(LARGE)))
    assert list(bodies.list()) == []


def test_many_threads_put_and_delete_in_one_folder(bodies):
    def work(number):
        for turn in range(10):
            name = f"same/folder/{number}-{turn}"
            bodies.put(name, name.encode())
            assert bodies.get(name) == name.encode()
            if turn != 9:
                bodies.delete([name])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(each.name for each in bodies.list()) == [f"same/folder/{n}-9" for n in range(4)]


def test_a_prefix_sees_only_its_own(place):
    one, two, whole = open_bodies(place, "1"), open_bodies(place, "2"), open_bodies(place)
    one.put("a", b"1")
    two.put("a", b"2")
    assert (one.get("a"), two.get("a")) == (b"1", b"2")
    assert [each.name for each in one.list()] == ["a"]
    assert len(list(whole.list())) == 2


@pytest.mark.parametrize(
    "place",
    ["", "gs://bucket", "s3://", "s3://user:secret@bucket/x", "s3://bucket/../x", "s3://bucket/x?a=b"],
)
def test_places_that_are_none(place):
    with pytest.raises(InvalidOption) as told:
        open_bodies(place)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("name", ["aws_secret_access_key", "AWS_ACCESS_KEY_ID", "session_token"])
def test_credentials_are_no_option(name):
    with pytest.raises(InvalidOption, match="environment"):
        open_bodies("s3://bucket", options={name: "hush"})


def test_what_is_printed_holds_no_secret(s3):
    bodies = open_bodies(s3.table())
    bodies.put("a", b"x")
    for shown in (repr(bodies), str(vars(bodies))):
        assert s3.options["AWS_SECRET_ACCESS_KEY"] not in shown


class _Dripping(io.RawIOBase):
    """Gives less than it is asked for, as a pipe does."""

    def __init__(self, file):
        self._file = file

    def read(self, size=-1):
        return self._file.read(min(size, 300_001))


class _Breaking(_Dripping):
    def read(self, size=-1):
        if self._file.tell() > PIECE_BYTES:
            raise ZeroDivisionError
        return super().read(size)


def test_what_was_never_finished_is_removed_when_it_is_old(tmp_path):
    bodies = open_bodies(tmp_path)
    bodies.put("whole", b"x")
    (tmp_path / "%tmp" / "half").write_bytes(b"half")
    assert bodies.remove_leftovers(3600 * 10**9) == 0
    os.utime(tmp_path / "%tmp" / "half", (0, 0))
    assert bodies.remove_leftovers(3600 * 10**9) == 1
    assert [each.name for each in bodies.list()] == ["whole"]
