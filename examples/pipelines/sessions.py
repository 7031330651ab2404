"""Sessions: the clicks of a visitor up to a pause, as one row, by a state machine of your own.

    penstock write clicks /shop --key alice -s data
    penstock topic create sessions -s data
    penstock run examples/pipelines/sessions.py -s data --once --set pause_s=600

A session ends when a click comes after the pause, or when the watermark says that none can come any more.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock

SESSION = "visitor string, began timestamp, ended timestamp, clicks long"


class Sessions(StatefulProcessor):
    """What is known of a visitor's session that may still go on. Spark calls these methods by keyword."""

    def __init__(self, pause_s: int) -> None:
        self._pause = timedelta(seconds=pause_s)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", "began timestamp, ended timestamp, clicks long")

    def handleInputRows(self, key: tuple, rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        session = self._open.get()
        for at in sorted(row.timestamp for row in rows):
            if session and at - session[1] > self._pause:
                yield _row(key, session)
                session = None
            began, ended, clicks = session or (at, at, 0)
            session = (began, max(ended, at), clicks + 1)
        self._open.update(session)
        self._handle.registerTimer(self._over_ms(session[1]))

    def handleExpiredTimer(self, key: tuple, timerValues: object, expiredTimerInfo: object) -> Iterator[Row]:
        session = self._open.get()
        # Every click sets a timer; only that of the last one finds its session over.
        if session and self._over_ms(session[1]) <= expiredTimerInfo.getExpiryTimeInMs():
            self._open.clear()
            yield _row(key, session)

    def close(self) -> None:
        pass

    def _over_ms(self, ended: datetime) -> int:
        return int((ended + self._pause).timestamp() * 1000)


def _row(key: tuple, session: tuple) -> Row:
    began, ended, clicks = session
    return Row(visitor=key[0], began=began, ended=ended, clicks=clicks)


@penstock.pipeline(source="clicks", sink="sessions", key="visitor")
def sessions(clicks: DataFrame, *, pause_s: int = 1800, late: str = "10 seconds") -> DataFrame:
    by_visitor = (
        clicks.select(col("key").cast("string").alias("visitor"), "timestamp")
        .withWatermark("timestamp", late)
        .groupBy("visitor")
    )
    return by_visitor.transformWithState(
        Sessions(pause_s), SESSION, outputMode="Append", timeMode="EventTime"
    )
