"""Apache Kafka, one broker on this machine, through confluent-kafka: the same messages, call by call.

The broker runs from jars that whoever wants this row has fetched; `PENSTOCK_KAFKA` names their folder:
org.apache.kafka:kafka_2.13 with all it depends on.
"""

from __future__ import annotations

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.program import HOST, Missing, find_module, find_program, free_port, server
from benchmarks.usual_messages import TextBatch

NAME = "Apache Kafka, confluent-kafka"
_JARS = "PENSTOCK_KAFKA"
_PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller}
log.dirs={folder}/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=0
"""
_PATIENCE_S = 60.0

#: Writes the messages of one batch through `producer.produce`.
Produce = Callable[[Any, str, TextBatch], None]


class Broker:
    """A broker that runs, and its client."""

    def __init__(self, address: str, client: Any, logs: Path) -> None:
        self._address = address
        self._client = client
        self._admin = client.admin.AdminClient({"bootstrap.servers": address})
        self._logs = logs
        self._made = 0

    def topic(self, partitions: int = 1) -> str:
        """A new topic."""
        self._made += 1
        name = f"events-{self._made}"
        asked = self._client.admin.NewTopic(name, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([asked])[name].result()
        return name

    def remove(self, topic: str) -> None:
        """Remove a topic and its files: what they take of the page cache, whoever comes next would lack.

        On a virtual machine memory that was never used costs ten times as much to write to.
        """
        self._admin.delete_topics([topic])[topic].result()
        deadline = time.monotonic() + _PATIENCE_S
        while any(self._logs.glob(f"{topic}-*")) and time.monotonic() < deadline:
            time.sleep(0.05)

    def produce(self, topic: str, batches: Iterator[TextBatch], call: Produce, **options: Any) -> None:
        """Every message of the batches, until the broker has all of them."""
        producer = self._client.Producer(
            {"bootstrap.servers": self._address, "queue.buffering.max.messages": 1_000_000} | options
        )
        for batch in batches:
            call(producer.produce, topic, batch)
            producer.poll(0)
        assert producer.flush(60) == 0

    @contextmanager
    def consumer(self, topic: str) -> Iterator[Any]:
        """A consumer at the beginning of a topic."""
        consumer = self._client.Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": uuid.uuid4().hex,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker whose data lies in `folder`; raises `Missing` where there are no jars or no client."""
    jars = os.environ.get(_JARS)
    if not jars:
        raise Missing(f"set {_JARS} to a folder with the jars of org.apache.kafka:kafka_2.13")
    find_module("confluent_kafka.admin")
    client = find_module("confluent_kafka")
    port = free_port()
    properties = folder / "server.properties"
    properties.write_text(
        _PROPERTIES.format(host=HOST, port=port, controller=free_port(), folder=folder.resolve())
    )
    java = [find_program("java"), "-Xmx1g", "-cp", f"{jars}/*"]
    named = ["-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(properties.resolve())]
    subprocess.run([*java, "kafka.tools.StorageTool", "format", *named], check=True, capture_output=True)
    with server([*java, "kafka.Kafka", str(properties.resolve())], port, folder):
        yield Broker(f"{HOST}:{port}", client, folder / "logs")
