"""The lake: a topic's messages as a Delta table, in files that keep partitions and offset order.

`layout` says what the table looks like, `storage` where its files lie, `table` what it holds and how more
is committed, `writing` and `reading` are the Parquet files. Nothing here knows a log: who archives hands in
record batches, who reads history gets them back.
"""

from __future__ import annotations
