"""Sessions: the clicks of a visitor up to a pause, as one row, by a state machine of your own.

    penstock write clicks /shop --key alice -s data
    penstock topic create sessions -s data
    penstock run examples/pipelines/sessions.py -s data --once --set pause_s=600

A session ends when a click comes after the pause, or when the watermark says that none can come any more.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import penstock

#: Moments are milliseconds since 1970: Python's own have a zone or not, depending on where they come from.
SESSION = "visitor string, began long, ended long, clicks long"


class Sessions(StatefulProcessor):
    """What is known of a visitor's session that may still go on. Spark calls these methods by keyword."""

    def __init__(self, pause_s: int) -> None:
        self._pause_ms = pause_s * 1000

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", "began long, ended long, clicks long")

    def handleInputRows(self, key: tuple, rows: Iterator[Row], timerValues: object) -> Iterator[Row]:
        session = self._open.get()
        for at in sorted(row.at for row in rows):
            if session and at - session[1] > self._pause_ms:
                yield _row(key, session)
                session = None
            began, ended, clicks = session or (at, at, 0)
            session = (began, max(ended, at), clicks + 1)
        self._open.update(session)
        self._handle.registerTimer(session[1] + self._pause_ms)

    def handleExpiredTimer(self, key: tuple, timerValues: object, expiredTimerInfo: object) -> Iterator[Row]:
        session = self._open.get()
        # Every click sets a timer; only that of the last one finds its session over.
        if session and session[1] + self._pause_ms <= expiredTimerInfo.getExpiryTimeInMs():
            self._open.clear()
            yield _row(key, session)

    def close(self) -> None:
        pass


def _row(key: tuple, session: tuple) -> Row:
    began, ended, clicks = session
    return Row(visitor=key[0], began=began, ended=ended, clicks=clicks)


@penstock.pipeline(source="clicks", sink="sessions", key="visitor")
def sessions(clicks: DataFrame, *, pause_s: int = 1800, late: str = "10 seconds") -> DataFrame:
    by_visitor = (
        clicks.selectExpr("string(key) AS visitor", "timestamp", "unix_millis(timestamp) AS at")
        .withWatermark("timestamp", late)
        .groupBy("visitor")
    )
    found = by_visitor.transformWithState(
        Sessions(pause_s), SESSION, outputMode="Append", timeMode="EventTime"
    )
    return found.selectExpr(
        "visitor", "timestamp_millis(began) began", "timestamp_millis(ended) ended", "clicks"
    )
