"""What runs on executors needs the standard library and pyarrow, and opens segment files only."""

import pickle
import subprocess
import sys
from textwrap import dedent

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.slices import batches_module as batches
from tests.lake import archived_topic
from tests.require import require
from tests.spark.test_slices import ALL, fill, plan

PROGRAM = dedent(
    """
    import sys
    sys.modules["msgspec"] = sys.modules["deltalake"] = None  # whoever imports them fails
    import pickle
    import pyspark_penstock
    with open(sys.argv[1], "rb") as file:
        slices, columns = pickle.load(file)
    from penstock.spark.source import batches
    print(sum(batch.num_rows for each in slices for batch in batches.read(each, columns)))
    above = ("penstock.state", "penstock.topic", "penstock.consume", "penstock.store", "sqlite3")
    print(sorted(name for name in sys.modules if name.startswith(above)))
    """
)

WORKER = dedent(
    """
    import gc, sys, traceback
    from importlib.machinery import ModuleSpec
    __spec__ = ModuleSpec(sys.argv[1], None)
    from penstock.spark.executors import settle_in
    counts, kept = [], []
    for _ in range(6):
        kept.append([[]])  # what a call leaves behind
        settle_in()
        counts.append(gc.get_freeze_count())
    print(counts[0] > 1000, counts[-1] > counts[0], counts[-1] == counts[-2] == counts[-3])
    for error in (BrokenPipeError("closed"), ValueError("wrong")):
        try:
            raise error
        except Exception:
            traceback.print_exc()
    """
)


@pytest.mark.parametrize(
    ("program", "is_frozen", "is_hushed"),
    [("pyspark.daemon", "True True True", True), ("somebody.else", "False False True", False)],
)
def test_a_worker_of_spark_keeps_what_is_loaded_and_is_silent_about_a_closed_pipe(
    program, is_frozen, is_hushed
):
    """Whatever runs in it: a task of the source, of a pipeline, or a plan. Nobody else is touched."""
    require("spark")
    done = subprocess.run(
        [sys.executable, "-c", WORKER, program],
        capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == is_frozen
    assert "ValueError: wrong" in done.stderr
    assert ("BrokenPipeError" not in done.stderr) is is_hushed


def read_elsewhere(slices, folder) -> list[str]:
    """What an executor that has nothing but pyarrow says: how many rows, and what it should not load."""
    (folder / "plan").write_bytes(pickle.dumps((slices, ALL)))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder / "plan")],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_only_the_standard_library_and_pyarrow_are_imported(store, tmp_path):
    """Also for frames of every shape; `msgspec`, the only dependency of the base install, is not needed."""
    require("spark")
    topic = store.create_topic("orders", segment_bytes="16KiB", sync="os", index="key")
    fill(topic, 100)
    topic.write_many([b"x"] * 500, headers=[{"a": "b"}] * 500)
    store.flush_housekeeping()
    assert read_elsewhere(plan(store), tmp_path) == ["600", "[]"]


def test_files_of_an_archive_are_read_with_pyarrow_alone(tmp_path):
    require("spark")
    made = archived_topic.make(tmp_path)
    with archived_topic.opened(made, tmp_path / "copy") as kept:
        kept.trim(7)
        planned = archived_topic.slices(kept.store, history=str(kept.growing))
    assert read_elsewhere(planned, tmp_path) == ["36", "[]"]


def test_executor_that_does_not_see_the_folder_names_its_host_and_the_path(store, tmp_path):
    topic = store.create_topic("orders")
    topic.write(b"x")
    (planned,) = plan(store)
    elsewhere = tmp_path / "elsewhere"
    moved = planned._replace(store=str(elsewhere), folder=planned.folder.replace(store.path, str(elsewhere)))
    with pytest.raises(penstock.NotAStore, match=rf"\S+ does not see the store {elsewhere}.*same path"):
        list(batches.read(moved, ALL))
