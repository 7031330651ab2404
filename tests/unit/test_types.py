"""What a strict type checker says to users of typed and of plain topics."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.patience import PATIENCE_S
from tests.require import require

PROGRAM = """
import asyncio
from dataclasses import dataclass
from typing import Any, assert_type

import penstock
import penstock.aio

@dataclass
class Order:
    id: int

def plain(message: penstock.Message, batch: penstock.Batch, topic: penstock.Topic) -> bytes | None:
    assert_type(topic.get(0).value, bytes | None)
    topic.write("text")
    return message.value or batch[0].value

with penstock.open("data") as store:
    topic = store.create_topic("orders", type=Order, partitions=2)
    assert_type(topic, penstock.Topic[Order])
    assert_type(store.topic("orders", type=Order), penstock.Topic[Order])
    assert_type(store.topic("orders"), penstock.Topic[bytes])
    assert_type(store.create_topic("plain", partitions=2), penstock.Topic[bytes])
    assert_type(topic.get(0).value, Order | None)
    assert_type(topic.read()[0].value, Order | None)
    assert_type([m.value for m in topic.read()], list[Order | None])
    for batch in topic.scan():
        assert_type(batch, penstock.Batch[Order])
    with topic.reader(consumer="c") as reader:
        for message in reader:
            assert_type(message, penstock.Message[Order])
            reader.commit(message)
        assert_type(reader.receive_batch(), penstock.Batch[Order])
    assert_type(store.topic("rows", type=dict[str, int]), penstock.Topic[dict[str, int]])
    assert_type(store.topic("either", type=int | str), penstock.Topic[Any])
    assert_type(store.create_topic("either", type=int | str), penstock.Topic[Any])
    topic.write(Order(1))
    topic.write(None)
    with topic.writer(codec="zstd") as writer:
        writer.write(Order(2))
        writer.write(3)  # WRONG
    topic.write(b"bytes")  # WRONG
    store.topic("plain").write(Order(1))  # WRONG

async def main() -> None:
    async with penstock.aio.open("data") as store:
        topic = await store.topic("orders", type=Order)
        await topic.write(Order(1))
        assert_type((await topic.get(0)).value, Order | None)
        assert_type((await topic.read())[0].value, Order | None)
        async with topic.reader() as reader:
            async for message in reader:
                assert_type(message.value, Order | None)
        await topic.write(7)  # WRONG

asyncio.run(main())
"""


@pytest.mark.slow
def test_mypy_strict_knows_the_type_of_values(tmp_path):
    require("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        env={"MYPYPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    wrong = {n for n, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# WRONG")}
    said = [line for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert {int(line.split(":")[1]) for line in said if ": error:" in line} == wrong, done.stdout
