"""What a measurement yields: samples of ours and of a peer, the target, and whether it is met."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

#: Units of which less is better; of all others (rates) more is.
COSTS = ("s", "ms", "µs", "KB", "MB", "%")
Samples = tuple[float, ...]
Status = Literal["ok", "short", "info", "skipped", "failed"]


class Figure(float):
    """A rate by the wall clock, which also knows the rate by the processor time of this process.

    On a busy machine the second says more: others make a program wait, they do not make it compute.
    """

    __slots__ = ("processor",)
    processor: float

    def __new__(cls, wall: float, processor: float) -> Figure:
        figure = super().__new__(cls, wall)
        figure.processor = processor
        return figure


@dataclass(frozen=True)
class Target:
    """A bound on the ratio to the peer, or on our own value."""

    on: Literal["ratio", "value"]
    sign: Literal["≥", "≤"]
    bound: float

    def met_by(self, number: float) -> bool:
        return number >= self.bound if self.sign == "≥" else number <= self.bound


def ratio_at_least(bound: float) -> Target:
    return Target("ratio", "≥", bound)


def ratio_at_most(bound: float) -> Target:
    return Target("ratio", "≤", bound)


def at_most(bound: float) -> Target:
    return Target("value", "≤", bound)


def at_least(bound: float) -> Target:
    return Target("value", "≥", bound)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table: medians of the samples are compared, the best are shown beside them."""

    name: str
    what: str
    unit: str = "/s"
    ours: Samples = ()
    peer: str = ""
    theirs: Samples = ()
    target: Target | None = None
    #: Processor time compares the two. Not where one computes in another process, or both wait for the disk.
    by_processor: bool = True
    #: Why there are no samples.
    skipped: str = ""
    failed: str = ""

    @property
    def value(self) -> float | None:
        return median(self.ours) if self.ours else None

    @property
    def peer_value(self) -> float | None:
        return median(self.theirs) if self.theirs else None

    @property
    def best(self) -> float | None:
        return self._best(self.ours)

    @property
    def peer_best(self) -> float | None:
        return self._best(self.theirs)

    @property
    def ratio(self) -> float | None:
        """Ours by theirs, of the medians; in the unit as it is (a rate, or a cost)."""
        return _divide(self.value, self.peer_value)

    @property
    def ratio_best(self) -> float | None:
        return _divide(self.best, self.peer_best)

    @property
    def processor_ratio(self) -> float | None:
        """Ours by theirs, of the medians in processor time; none where that compares nothing."""
        if not self.by_processor:
            return None
        ours, theirs = _processor_samples(self.ours), _processor_samples(self.theirs)
        return _divide(median(ours), median(theirs)) if ours and theirs else None

    @property
    def status(self) -> Status:
        if self.failed:
            return "failed"
        if self.skipped:
            return "skipped"
        number = self.ratio if self.target and self.target.on == "ratio" else self.value
        if self.target is None or number is None:
            return "info"
        return "ok" if self.target.met_by(number) else "short"

    def as_dict(self) -> dict[str, Any]:
        """The row as it goes into the JSON file."""
        target = self.target
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "ours": {
                "median": self.value,
                "best": self.best,
                "samples": list(self.ours),
                "processor": _processor_samples(self.ours),
            },
            "peer": {
                "name": self.peer,
                "median": self.peer_value,
                "best": self.peer_best,
                "samples": list(self.theirs),
                "processor": _processor_samples(self.theirs),
            },
            "ratio": self.ratio,
            "ratio_best": self.ratio_best,
            "ratio_processor": self.processor_ratio,
            "target": target and {"on": target.on, "sign": target.sign, "bound": target.bound},
            "by_processor": self.by_processor,
            "status": self.status,
            "reason": self.failed or self.skipped,
        }

    def _best(self, samples: Samples) -> float | None:
        if not samples:
            return None
        return min(samples) if self.unit in COSTS else max(samples)


def row_from(found: dict[str, Any]) -> Row:
    """The row that went into a JSON file."""
    skipped, failed = (found["reason"] if found["status"] == kind else "" for kind in ("skipped", "failed"))
    return Row(
        name=found["name"], what=found["what"], unit=found["unit"], ours=_samples(found["ours"]),
        peer=found["peer"]["name"], theirs=_samples(found["peer"]),
        target=Target(**found["target"]) if found["target"] else None,
        by_processor=found["by_processor"], skipped=skipped, failed=failed,
    )  # fmt: skip


def _samples(side: dict[str, Any]) -> Samples:
    if not side["processor"]:
        return tuple(side["samples"])
    return tuple(map(Figure, side["samples"], side["processor"]))


def _processor_samples(samples: Samples) -> list[float]:
    """The same samples by processor time; none where it was not taken of each."""
    found = [each.processor for each in samples if isinstance(each, Figure)]
    return found if len(found) == len(samples) else []


def _divide(ours: float | None, theirs: float | None) -> float | None:
    return ours / theirs if ours is not None and theirs else None
