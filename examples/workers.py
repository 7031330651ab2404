"""Several processes on one folder: three write, two follow as independent consumers.

python examples/workers.py [FOLDER]
"""

import multiprocessing
import sys

import penstock

MESSAGES = 2_000


def write(folder: str, name: str) -> None:
    with penstock.open(folder) as store, store.topic("events").writer() as writer:
        for number in range(MESSAGES):
            writer.write(f"{name} {number}", key=name)


def follow(folder: str, consumer: str, expected: int) -> None:
    seen: dict[bytes, int] = {}
    with penstock.open(folder) as store, store.topic("events").reader(consumer=consumer) as reader:
        while sum(seen.values()) < expected:
            batch = reader.receive_batch(timeout=10)
            for message in batch:
                assert message.key is not None
                # Messages of one key come in the order they were written.
                assert message.text == f"{message.key.decode()} {seen.get(message.key, 0)}"
                seen[message.key] = seen.get(message.key, 0) + 1
            reader.commit(batch)
    print(f"{consumer}: {sum(seen.values())} messages of {len(seen)} writers, in order")


def main(folder: str) -> None:
    with penstock.open(folder) as store:
        store.create_topic("events", partitions=2)
    spawn = multiprocessing.get_context("spawn")  # a store does not survive fork()
    writers = [spawn.Process(target=write, args=(folder, name)) for name in ("ann", "bob", "eve")]
    readers = [
        spawn.Process(target=follow, args=(folder, name, len(writers) * MESSAGES))
        for name in ("audit", "mail")
    ]
    for process in (*readers, *writers):
        process.start()
    for process in (*writers, *readers):
        process.join(timeout=60)
        if process.exitcode:
            sys.exit(f"{process.name} failed")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
