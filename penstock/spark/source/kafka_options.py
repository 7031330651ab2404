"""Options that Spark's Kafka source has and this one does not: what to say to those who bring them along."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

#: By the name in lower case: what to do, or why there is nothing to do.
_INSTEAD = {
    "pushfilters": "penstock.spark.read(spark, store, topic, where=…) reads only what a condition leaves",
    "assign": 'choose topics by subscribe, and partitions by penstock.spark.read(…, where="partition = 3")',
    "minoffsetspertrigger": "a batch begins as soon as there is something: use trigger(processingTime=…)",
    "maxtriggerdelay": "a batch begins as soon as there is something: use trigger(processingTime=…)",
    "maxrecordsperpartition": "tasks are cut by bytes: minPartitions makes more of them",
    "groupidprefix": "leave it out; consumer names the query in the store",
    "startingoffsetsbytimestampstrategy": "leave it out: a time behind the last message is the end",
    "kafkaconsumer.polltimeoutms": "leave it out: files are read, nobody is polled",
    "fetchoffset.numretries": "leave it out: files are read, nobody is asked twice",
    "fetchoffset.retryintervalms": "leave it out: files are read, nobody is asked twice",
    "kafka.bootstrap.servers": 'leave it out: .load("data") names the folder of the store',
    "kafka.group.id": "consumer names the query in the store",
    "enableidempotence": "leave it out: every write of this sink is committed once",
}
#: Names that begin with a word of the one and with a word of the other mean the opposite of each other.
_LOW = ("min", "start", "begin", "earliest", "first", "from")
_HIGH = ("max", "end", "until", "latest", "last")
#: So does a name that begins with one of these, of any that does not.
_NOT = ("no", "un", "ignore", "skip", "disable", "without", "allow", "exclude", "omit")


def hint_for(name: str, known: Sequence[str]) -> str:
    """What to say about an unknown option; never names one that means the opposite."""
    given = name.lower()
    if given in _INSTEAD:
        return _INSTEAD[given]
    if given.startswith("kafka."):
        return "options of a Kafka client mean nothing here: leave them out"
    by_name = {each.lower(): each for each in known if not _is_opposite(given, each.lower())}
    near = difflib.get_close_matches(given, by_name, 1)
    return f"did you mean {by_name[near[0]]}?" if near else f"options: {', '.join(known)}"


def _is_opposite(one: str, other: str) -> bool:
    sides = ((_LOW, _HIGH), (_HIGH, _LOW))
    return one.startswith(_NOT) or any(one.startswith(a) and other.startswith(b) for a, b in sides)
