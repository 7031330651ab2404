"""The rules of topics whose partitions grow: which modes there are, and what cannot be together with them."""

from __future__ import annotations

from penstock.errors import InvalidOption
from penstock.parse import one_of

#: Partitions are not split.
DISABLED = "disabled"
#: They are split when they are written to too fast; "paused": not for now, or by hand.
UP, PAUSED = "up", "paused"


def growth_mode(given: object) -> str:
    """The mode of autopartitioning; YDB's word for "up" is taken too."""
    if given is None:
        return DISABLED
    if given == "scale_up":
        return UP
    one_of("autopartitioning", given, (DISABLED, UP, PAUSED))
    return str(given)


def refuse_growth(
    mode: str, *, max_bytes: int | None, partitioner: str, partitions: int, max_partitions: int
) -> None:
    """Raise for options that cannot be together with partitions that split themselves."""
    if mode == DISABLED:
        return
    if max_bytes is not None:
        raise InvalidOption(
            f"autopartitioning={mode!r} and max_bytes={max_bytes}: partitions that were split are removed by "
            "age, and would be held to that size besides their children",
            hint="use retention, or leave autopartitioning disabled",
        )
    if partitioner != "range":
        raise InvalidOption(
            f"autopartitioning={mode!r} and partitioner={partitioner!r}: only ranges of hashes are split "
            "without moving other keys",
            hint='use partitioner="range", or leave autopartitioning disabled',
        )
    if max_partitions < partitions:
        raise InvalidOption(
            f"max_partitions={max_partitions} and partitions={partitions}: there are at least that many",
            hint="raise max_partitions",
        )


def refuse_total_order(used_as: str | None, mode: str, partitions: int) -> None:
    """Raise for more than one partition where a stream or events need a total order."""
    if used_as is not None and (partitions > 1 or mode != DISABLED):
        asked = f"partitions={partitions}" if partitions > 1 else f"autopartitioning={mode!r}"
        raise InvalidOption(
            f"{asked}, and the topic holds {used_as}: they are in one order, so it keeps its one partition",
            hint="create another topic for messages that need no total order",
        )


def refuse_disabling(before: str, after: str) -> None:
    """Raise when autopartitioning would be disabled again."""
    if after == DISABLED != before:
        raise InvalidOption(
            f"autopartitioning={after!r} after autopartitioning={before!r}: once enabled it can only be "
            "paused, since partitions that were split stay split",
            hint='alter(autopartitioning="paused")',
        )


def refuse_own_partitioner(topic: str, mode: str) -> None:
    """Raise for a writer's own partitioner on a topic whose partitions are split."""
    if mode != DISABLED:
        raise InvalidOption(
            f"partitioner=… of a writer and autopartitioning={mode!r} of topic {topic!r}: a function that "
            "chooses among so many partitions moves keys when one is split",
            hint="give keys or groups, or name the partition",
        )


def refuse_split(topic: str, mode: str) -> None:
    """Raise when a topic's partitions are not to be split."""
    if mode == DISABLED:
        raise InvalidOption(
            f"partitions of topic {topic!r} are not split: autopartitioning={mode!r}",
            hint='alter(autopartitioning="paused") lets them be split by hand, "up" by themselves',
        )
