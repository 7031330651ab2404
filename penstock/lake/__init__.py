"""The lake: a topic's messages as a Delta table, in files that keep partitions and offset order.

`layout` says what the table looks like, `storage` where its files lie, `table` what it holds and how more
is committed; `parquet_files` writes, reads and merges the files. Nothing here knows a log: the pipeline that
archives hands in record batches, and a reader of history gets them back.
"""

from __future__ import annotations
