"""A stream of files into the topic `orders`, begun and begun again from its checkpoint."""

import os
from pathlib import Path

import penstock

ROWS = 40  # in each file, and so in each batch


class Stream:
    """Reads one file a batch; the files hold the numbers from 0 on."""

    def __init__(self, spark, store: penstock.Store, folder: Path) -> None:
        self._spark, self._store, self._folder = spark, store, folder
        self.input = folder / "in"
        self.input.mkdir()
        self.files = 0

    def add(self, files: int) -> None:
        for number in range(self.files, self.files + files):
            lines = "".join(f"{n}\n" for n in range(number * ROWS, (number + 1) * ROWS))
            part = self._folder / f"{number:03d}"
            part.write_text(lines)
            os.utime(part, (number, number))  # files are read in the order of their times
            part.rename(self.input / part.name)
        self.files += files

    def run(self, checkpoint: str = "checkpoint", **options: str) -> None:
        """Everything that is there, to its end; raises what ends it before."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.input))
        query = (
            lines.selectExpr("value", "value AS key").writeStream.format("penstock")
            .options(topic="orders", checkpointLocation=str(self.checkpoint(checkpoint)), **options)
            .trigger(availableNow=True).start(self._store.path)
        )  # fmt: skip
        query.awaitTermination()

    def checkpoint(self, name: str = "checkpoint") -> Path:
        return self._folder / name

    def forget(self, batch: int, checkpoint: str = "checkpoint") -> None:
        """As if Spark had died between the sink's commit of this batch and its own."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint(checkpoint) / "commits" / name).unlink(missing_ok=True)

    def batches(self, checkpoint: str = "checkpoint") -> list[int]:
        commits = self.checkpoint(checkpoint) / "commits"
        return sorted(int(path.name) for path in commits.iterdir() if path.name.isdigit())

    @property
    def all(self) -> list[int]:
        return list(range(self.files * ROWS))


def stored(topic: penstock.Topic) -> list[penstock.Message]:
    return [m for n in range(topic.options.partitions) for batch in topic.scan(partition=n) for m in batch]


def numbers(topic: penstock.Topic) -> list[int]:
    return sorted(int(message.value) for message in stored(topic))


def staged_files(store: penstock.Store) -> list[str]:
    return [name for _, _, names in os.walk(store.path) for name in names if name.endswith(".staged")]


def as_bytes(headers) -> dict[str, bytes]:
    """Headers as they come through Spark, or a table: text is bytes there."""
    return {name: value if isinstance(value, bytes) else value.encode() for name, value in headers.items()}
