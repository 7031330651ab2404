"""Bodies of any size go up and down in constant memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.values import MIB

ROOT = Path(__file__).parents[2]

#: Writes a file as a body and reads it back, and says by how much the memory of the process grew.
PROGRAM = """
import json, sys, pathlib, io
import penstock

class Zeros(io.RawIOBase):
    def __init__(self, size):
        self.left = size
    def read(self, size=-1):
        size = min(self.left, size if size >= 0 else self.left, 1 << 20)
        self.left -= size
        return bytes(size)

def peak():
    # Not getrusage: its figure is that of the parent, if that was larger when it forked.
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

store, place, size, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4])
with penstock.open(store) as opened:
    topic = opened.create_topic("images", payloads=place)
    topic.write(b"x" * 100_000).offset
    topic.get(0).value
    before = peak()
    offsets = [topic.write(Zeros(size)).offset, topic.write(path).offset]
    read = 0
    for offset in offsets:
        with topic.get(offset).open() as file:
            while part := file.read(1 << 20):
                read += len(part)
    print(json.dumps({"grown": peak() - before, "read": read}))
"""


def grown(tmp_path, place, size):
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), place, str(size), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["read"] == 2 * size
    return told["grown"]


def test_a_large_file(tmp_path):
    assert grown(tmp_path, "files", 48 * MIB) < 36 * MIB


@pytest.mark.slow
def test_a_large_object(tmp_path, s3):
    assert grown(tmp_path, s3.table(), 256 * MIB) < 100 * MIB


@pytest.mark.slow
def test_a_file_of_a_gibibyte(tmp_path):
    assert grown(tmp_path, "files", 1024 * MIB) < 40 * MIB
