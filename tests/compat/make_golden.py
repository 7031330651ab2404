"""Writes the golden folders. Run by hand, only when the format version changes:

python -m tests.compat.make_golden
"""

from pathlib import Path

from penstock import Clock, Files
from tests.compat import delay_bytes, old_delay_bytes
from tests.kit import frames as encode
from tests.kit.frames import FENCE, ProducerStamp
from tests.kit.logs import Log, log_without_store, seal_segment
from tests.kit.logs import segment_module as segment
from tests.kit.values import TopicOptions

GOLDEN = Path(__file__).parent / "golden" / "partition"
#: The same of a topic with index="key".
KEYED = Path(__file__).parent / "golden" / "keyed"
GOLDEN_DELAY = Path(__file__).parent / "golden" / "delay"
GOLDEN_OLD_DELAY = Path(__file__).parent / "golden" / "delay_v1"


class FixedFiles(Files):
    """A machine that is always the same."""

    def boot(self) -> int:
        return 0xB007


class Ticking(Clock):
    """A second passes with each look at the clock."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000_000_000

    def now_ns(self) -> int:  # type: ignore[override]
        self._now += 1_000_000_000
        return self._now


def open_golden(path: Path, *, read_only: bool = False, index: str | None = None) -> Log:
    return log_without_store(
        str(path), TopicOptions(index=index), topic="golden", topic_id=0x60D, files=FixedFiles(),
        clock=Ticking(), read_only=read_only,
    )  # fmt: skip


def write(log: Log) -> None:
    """Two segments: a sealed one of several frames of every kind, and an active one."""
    log.appender.append([encode.encode([b"first"], [b"k1"], created=1)])
    log.appender.append(
        [encode.encode([None, b"", b"x"], [None, b"", b"k"], created=2, timestamps=[5, -6, 7])]
    )
    log.appender.append([encode.encode([b"h"], created=3, headers=[{"text": "ä", "raw": b"\xff"}])])
    log.appender.append(
        [encode.encode([b"p", b"q"], created=4, producer=(ProducerStamp("shop", "g", 1), [10, 12]))]
    )
    log.appender.append(
        [encode.control(FENCE, b"", created=5, producer=ProducerStamp("shop", "g", 2), seqno=12)]
    )
    log.appender.append([encode.encode([b"%03d" % i for i in range(100)], created=6)])
    seal_segment(log)
    log.appender.append([encode.encode([b"active"], [b"k2"], created=7)])
    log.sync_all()


def main() -> None:
    segment.new_salt = lambda: 0x5A17  # type: ignore[assignment]
    for folder, index in ((GOLDEN, None), (KEYED, "key")):
        folder.mkdir(parents=True, exist_ok=True)
        log = open_golden(folder, index=index)
        write(log)
        log.tidy()
        log.close()
        (folder / "vacuum").unlink(missing_ok=True)
    make_delay(GOLDEN_DELAY, delay_bytes.FILES)
    make_delay(GOLDEN_OLD_DELAY, old_delay_bytes.FILES)


def make_delay(folder: Path, files: dict[str, bytes]) -> None:
    """Waiting messages, by hand."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
