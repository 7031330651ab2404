"""`cp -r` of a store that others write to: the copy opens, or one clear error says why not; never a raw one.

Such a copy is no backup (`penstock backup` makes one): its files are of different moments.
"""

import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress

import pytest

import penstock
from tests.chaos.journey import Journey
from tests.crash.processes import ROOT
from tests.kit.patience import wait_until
from tests.kit.stores import StoreVerifier, plan_repair


def copy_slowly(source, target, chance, between):
    """Copy file by file, in any order, while something happens `between` them; those that vanish are left."""
    paths = [os.path.join(parent, name) for parent, _, names in os.walk(source) for name in names]
    chance.shuffle(paths)
    for path in paths:
        copied = os.path.join(target, os.path.relpath(path, source))
        os.makedirs(os.path.dirname(copied), exist_ok=True)
        try:
            shutil.copyfile(path, copied)
        except FileNotFoundError:
            continue
        if chance.random() < 0.3:
            between()


def read(topic):
    with topic.reader(follow=False, on_gap="skip") as reader:
        return sum(1 for _ in reader)


def use(folder, *, read_only):
    """Open it, read everything, write to every topic. Raises whatever is not an error of ours."""
    try:
        with penstock.open(folder, create=False, read_only=read_only) as store:
            for topic in store.topics():
                attempt(lambda topic=topic: read(topic))
                if not read_only:
                    attempt(lambda topic=topic: topic.write(b"new", key="k"))
            return True
    except penstock.PenstockError:
        return False


def attempt(act):
    with suppress(penstock.PenstockError):
        act()


def look_at(folder):
    """As programs come to it: a check, one that reads, two that write; and what `repair` would do."""
    list(StoreVerifier(folder).findings())
    use(folder, read_only=True)
    opened = use(folder, read_only=False)
    list(StoreVerifier(folder).findings())
    plan_repair(folder)
    return opened and use(folder, read_only=False)


def test_a_split_of_which_only_a_record_tells_did_not_happen(scratch):
    """`tail` of behind a split, and everything else of before it."""
    source, target = os.path.join(scratch, "a"), os.path.join(scratch, "b")
    tail = "topics/orders/parts/000000/tail"
    with penstock.open(source) as store:
        topic = store.create_topic("orders", autopartitioning="paused", max_partitions=4)
        topic.write_many([b"%d" % number for number in range(10)])
    shutil.copytree(source, target)
    with penstock.open(source) as store:
        store.topic("orders").split(0)
    shutil.copyfile(os.path.join(source, tail), os.path.join(target, tail))
    with penstock.open(target) as store:
        assert store.topic("orders").write(b"new", key="k").partition == 0
        values = [message.value for message in store.topic("orders").scan().messages()]
    assert values == [*(b"%d" % number for number in range(10)), b"new"]


@pytest.mark.parametrize("seed", [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 23))])
def test_a_copy_whose_files_are_of_different_moments(scratch, seed):
    chance, source, target = random.Random(seed), os.path.join(scratch, "a"), os.path.join(scratch, "b")
    journey = Journey(source, seed)
    journey.play(30)
    copy_slowly(source, target, chance, lambda: journey.play(2))
    journey.end()
    assert journey.account.problems == []
    look_at(target)


def test_a_copy_of_the_folder_while_another_process_writes(scratch):
    source, told = os.path.join(scratch, "a"), os.path.join(scratch, "told")
    command = [sys.executable, "-m", "tests.chaos.storms", source, told, "1", "0"]
    writer = subprocess.Popen(command, cwd=ROOT)
    try:
        for number in range(4):
            wait_until(lambda n=number: os.path.exists(told) and os.path.getsize(told) > 2000 * n)
            target = os.path.join(scratch, f"copy{number}")
            with suppress(shutil.Error):  # files that went meanwhile
                shutil.copytree(source, target)
            look_at(target)
    finally:
        writer.kill()
        writer.wait()
