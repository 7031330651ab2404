"""Files of messages: frames in segments, one log a partition. See docs/FORMAT.md and docs/RECOVERY.md.

Each file imports only files before it.

Order: descriptors frame_columns rate_policy records < folder frame_header < header_column lost rate_record
segment single_run sync < arrow_input meter single_frame < frame < arrow_columns frame_encode <
active_segment copy lineage rows staging < producer_table recovery verify_staging < producers repair
segment_index < append block_checks < mapped_segment < repack segments < age_retention fingerprint
message_facts timestamp_runs trim < key_retention < cursor < key_index < key_search verify < log < in_flight
seqno_search.
"""

from __future__ import annotations
