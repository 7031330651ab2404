"""What we ship for users' own tests works in theirs."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import penstock
from penstock.testing import Clock
from tests.kit.patience import PATIENCE_S

PLUGIN = 'pytest_plugins = ["penstock.testing"]\n'
IMPORT = "from penstock.testing import penstock_store\n"
USERS_TEST = """
def test_one(penstock_store):
    topic = penstock_store.create_topic("orders")
    topic.write(b"paid")
    assert [message.value for message in topic.read()] == [b"paid"]

def test_two(penstock_store):
    assert penstock_store.topics() == []
"""


@pytest.mark.parametrize(
    ("conftest", "head"),
    [(PLUGIN, ""), (IMPORT, ""), ("", IMPORT), (PLUGIN, "from penstock.testing import Clock\n")],
)
def test_the_fixture_works_however_it_is_brought_in(tmp_path, conftest, head):
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_mine.py").write_text(head + USERS_TEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_clock_needs_no_pytest():
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from penstock import testing\n"
        "clock = testing.Clock(5); clock.advance('1s')\n"
        "print(clock.now_ns(), testing.__all__, hasattr(testing, 'penstock_store'))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "1000000005 ['Clock'] False\n"


def test_the_module_is_reached_from_the_package():
    assert penstock.testing.Clock is Clock


def test_time_stands_still_until_it_is_moved():
    clock = Clock()
    assert clock.now_ns() == clock.now_ns() == Clock().now_ns()
    assert clock.monotonic() == 0


@pytest.mark.parametrize("step", ["2h", 7200, 7200.0, timedelta(hours=2)])
def test_advancing_moves_both_clocks(step):
    clock = Clock(0)
    clock.advance(step)
    assert (clock.now_ns(), clock.monotonic()) == (7200 * 10**9, 7200.0)


def test_sleeping_takes_no_time():
    clock = Clock(0)
    clock.sleep(3600)
    assert clock.now_ns() == 3600 * 10**9


def test_setting_the_time_moves_only_the_time_of_day():
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    clock.advance("1s")
    clock.set(datetime(1968, 12, 24, tzinfo=UTC))
    assert (clock.now_ns() < 0, clock.monotonic()) == (True, 1.0)
    clock.set(42)
    assert clock.now_ns() == 42
    assert "42" in repr(clock)


@pytest.mark.parametrize("wrong", ["-1h", "later", None])
def test_a_step_that_makes_no_sense_is_refused(wrong):
    with pytest.raises((penstock.InvalidOption, penstock.WrongType)):
        Clock().advance(wrong)


def test_the_example_of_the_documentation(tmp_path):
    clock = Clock()
    with penstock.open(tmp_path, clock=clock) as store:
        orders = store.create_topic("orders", retention="7d")
        orders.write(b"paid")
        clock.advance("8d")
        assert orders.vacuum().messages == 1
