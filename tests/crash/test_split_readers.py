"""Members of a consumer in several processes, while their partitions are split and they are killed (S001-22).

Each message is handled, and for the first time in the order of its key, whoever does it.
"""

import os
import signal
import sys
import time

import pytest

import penstock
from tests.kit.patience import wait_until
from tests.kit.processes import start

KEYS = [f"key-{number}" for number in range(20)]
#: Each handled message is a line of one file, which all append to: the lines are the order of events.
READ = """
import os, sys, penstock
ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
with penstock.open(sys.argv[1]) as store, store.topic("orders").reader(consumer="c") as reader:
    def handle(message):
        line = f"{os.getpid()} {message.partition} {message.key.decode()} {message.value.decode()}\\n"
        os.write(ledger, line.encode())
    if sys.argv[3] == "process":
        reader.process(handle, workers=3, keep_order=True)
    for message in reader:
        handle(message)
        try:
            reader.commit(message)
        except penstock.PartitionLost:
            pass
"""


class Readers:
    """Processes that read for one consumer, and what they have handled."""

    def __init__(self, store, ledger, way):
        self._command = [sys.executable, "-c", READ, store, ledger, way]
        self._ledger = ledger
        self.all = [start(self._command) for _ in range(3)]

    def replace(self, number):
        """Kill one with a message in its hands, perhaps; another begins."""
        self.all[number].kill()
        self.all[number].wait()
        self.all[number] = start(self._command)

    def handled(self):
        """(process, partition, key, value) in the order in which they were handled."""
        if not os.path.exists(self._ledger):
            return []
        with open(self._ledger, encoding="utf-8") as file:
            return [tuple(line.split()) for line in file if line.endswith("\n")]


def first_times(handled):
    """By key: the values in the order in which they were handled for the first time."""
    found = {}
    for _, _, key, value in handled:
        values = found.setdefault(key, [])
        if int(value) not in values:
            values.append(int(value))
    return found


@pytest.mark.parametrize("way", ["commit", "process"])
def test_each_key_keeps_its_order_over_splits_and_kills(scratch, way):
    path, ledger = os.path.join(scratch, "store"), os.path.join(scratch, "ledger")
    written = 0
    with penstock.open(path) as store:
        topic = store.create_topic("orders", sync="os", autopartitioning="paused")
        readers = Readers(path, ledger, way)
        for turn, parent in enumerate((0, 1, 2, 3, 6)):
            for _ in range(15):
                topic.write_many([b"%d" % written] * len(KEYS), keys=KEYS)
                written += 1
            topic.split(parent)
            if turn % 2:
                readers.replace(turn % 3)
            else:
                stopped = readers.all[turn % 3]
                stopped.send_signal(signal.SIGSTOP)
                topic.write_many([b"%d" % written] * len(KEYS), keys=KEYS)
                written += 1
                time.sleep(0.05)
                stopped.send_signal(signal.SIGCONT)
        wanted = {key: list(range(written)) for key in KEYS}
        wait_until(lambda: {k: len(v) for k, v in first_times(readers.handled()).items()}
                   == dict.fromkeys(KEYS, written))  # fmt: skip
        assert first_times(readers.handled()) == wanted
        wait_until(lambda: topic.consumers()[0].lag == 0)
        drained = [each.partition for each in topic.partitions() if each.state == "inactive"]

        def shares():
            return sorted(len(member.partitions) for member in topic.consumers()[0].members)

        wait_until(lambda: shares() == [2, 2, 2], shares)
        held = {number for member in topic.consumers()[0].members for number in member.partitions}
        assert not held & set(drained)
