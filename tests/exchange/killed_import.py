"""Programs that are killed in the middle of an import: `python -m tests.exchange.killed_import WHAT …`."""

import signal
import sys

from tests.kit import fork_server
from tests.kit.lethal_files import Fuse


def run_until_killed(*arguments: object, patience_s: float = 60) -> bool:
    """Run one of the programs below; whether it was killed (else it was done before)."""
    words = ["-W", "error", "-m", "tests.exchange.killed_import", *map(str, arguments)]
    done = fork_server.run(words, timeout=patience_s)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def burning(length: str):
    """Files of which the nth write kills."""
    from penstock import Files

    fuse = Fuse(int(length))

    class Burning(Files):
        def pwrite(self, fd, data, at):
            fuse.burn()
            return super().pwrite(fd, data, at)

        def pwritev(self, fd, parts, at):
            fuse.burn()
            return super().pwritev(fd, parts, at)

    return Burning()


def diskq(store: str, folder: str, length: str) -> None:
    import penstock
    from tests.kit.values import diskq_segment_module as diskq_segment

    diskq_segment._PIECE_MESSAGES = 50
    with penstock.open(store, files=burning(length)) as opened:
        opened.import_diskq(folder, topic="t")


def copy(source: str, store: str, length: str) -> None:
    import penstock
    from tests.kit.values import copy_topic

    with penstock.open(source) as opened, penstock.open(store, files=burning(length)) as other:
        copy_topic(opened.topic("orders"), other, "orders", consumers=True)


def file(store: str, path: str, kind: str, length: str) -> None:
    import penstock
    from tests.kit.values import CsvRows, FieldChoice, JsonLines
    from tests.kit.values import arrow_files_module as arrow_files
    from tests.kit.values import file_import_module as file_import

    file_import._BATCH_RECORDS = arrow_files._BATCH_ROWS = 100
    choice = FieldChoice(key="n", value="v")
    with penstock.open(store, files=burning(length)) as opened:
        topic = opened.topic("t")
        if kind in ("parquet", "arrow"):
            arrow_files.import_table(topic, path, kind, choice)
        else:
            reader = JsonLines(path, choice) if kind == "jsonl" else CsvRows(path, choice)
            file_import.import_lines(topic, path, reader)


def million(kind: str, store: str, path: str, memory: str, length: str) -> None:
    """Import a diskq folder or a Parquet file in pieces as they are, with so much memory and not more."""
    import resource

    import penstock
    from tests.kit.values import FieldChoice, import_diskq
    from tests.kit.values import arrow_files_module as arrow_files

    resource.setrlimit(resource.RLIMIT_DATA, (int(memory), int(memory)))
    with penstock.open(store, files=burning(length)) as opened:
        if kind == "diskq":
            import_diskq(opened, path, "t")
        else:
            arrow_files.import_table(opened.topic("t"), path, kind, FieldChoice(key="n", value="v"))


def following(store: str, path: str, length: str) -> None:
    import penstock
    from tests.kit.values import FieldChoice, Follower, JsonLines
    from tests.kit.values import file_import_module as file_import

    file_import._BATCH_RECORDS = 50
    with penstock.open(store, files=burning(length)) as opened:
        choice = FieldChoice(key="n")
        with Follower(opened.topic("t"), path, lambda name: JsonLines(name, choice)) as follower:
            follower.look()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
