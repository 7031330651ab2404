"""`import penstock` is quick, brings nothing along, and shows exactly what it promises."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.require import require

#: What a process has loaded anyway, and what an import adds to it, with the milliseconds it took.
PROGRAM = """
import json, sys, time
before = set(sys.modules)
began = time.perf_counter()
import penstock
took = time.perf_counter() - began
print(json.dumps({"ms": took * 1000, "added": sorted(set(sys.modules) - before)}))
"""


def imported(program=PROGRAM):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    return json.loads(done.stdout)


def test_it_takes_less_than_100_ms():
    """The best of several: a busy machine makes it slower, nothing makes it quicker."""
    times = []
    for _ in range(5):
        times.append(imported()["ms"])
        if min(times) < 100:
            return
    pytest.fail(f"import penstock took {times} ms")


def test_it_loads_no_third_party_module_but_msgspec():
    program = PROGRAM.replace("before = ", "import msgspec\nbefore = ")
    added = {name.partition(".")[0] for name in imported(program)["added"]}
    assert added - sys.stdlib_module_names == {"penstock"}


def test_it_loads_no_heavy_part():
    added = set(imported()["added"])
    heavy = {"asyncio", "sqlite3", "pytest", "pyarrow", "penstock.aio", "penstock.store", "penstock.testing"}
    assert not added & heavy


#: pyarrow loads pandas, where that is installed, to make an array of Python's objects.
INTO_ARROW = """
import json, sys, tempfile
import penstock
with tempfile.TemporaryDirectory() as folder, penstock.open(folder + "/data") as store:
    topic = store.create_topic("orders", partitions=2)
    topic.write(b"1", key="a", partition=0)
    topic.write_many([b"2", b"3"], keys=["b", "c"], partition=1)
    rows = sum(batch.num_rows for batch in topic.scan().record_batches())
    with topic.reader(follow=False) as reader:
        while batch := reader.receive_batch():
            rows += batch.to_arrow().num_rows
    batch = next(iter(topic.scan(partition=1).record_batches()))
    topic.write_many(batch.select(["key", "value"]))
    topic.write_many(batch.select(["key", "value"]).slice(1))
    assert (rows, len(topic.read())) == (6, 6)
print(json.dumps({"added": sorted(sys.modules)}))
"""


def test_reading_and_writing_arrow_does_not_load_pandas():
    require("pyarrow")
    added = imported(INTO_ARROW)["added"]
    assert "pyarrow" in added
    assert "pandas" not in added


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_there(name):
    assert getattr(penstock, name) is not None


def test_the_list_of_names_is_sorted_and_exactly_what_is_visible():
    assert penstock.__all__ == sorted(penstock.__all__) == dir(penstock)
    shown = {name for name, thing in vars(penstock).items() if not isinstance(thing, ModuleType)}
    needed_inside = {"Any", "TYPE_CHECKING", "annotations"}
    assert {name for name in shown if not name.startswith("_")} - needed_inside <= set(penstock.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = penstock.nothing


def test_optional_parts_are_loaded_when_asked_for():
    assert penstock.aio.__name__ == "penstock.aio"
    assert penstock.testing.__name__ == "penstock.testing"
