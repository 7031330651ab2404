"""Files of messages: frames in segments, one log a partition. See docs/FORMAT.md and docs/RECOVERY.md.

Each file imports only files before it.

Order: descriptors frame_columns rate_policy records < arrow_input folder frame_header < lost rate_record
segment single_run sync < meter single_frame < frame < arrow_columns frame_encode < active_segment copy
lineage rows staging < producer_table recovery < producers repair segment_index < append mapped_segment <
repack segments < age_retention fingerprint message_facts timestamp_runs trim < key_retention < cursor <
key_index < key_search verify verify_staging < log < in_flight seqno_search.
"""

from __future__ import annotations
