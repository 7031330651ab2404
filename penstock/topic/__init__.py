"""What makes logs a topic: partitions, routing, writers, scans, retention.

Each file imports only files before it.

Order: bodies growth identity left_messages offsets value_codec write_batch < body_trim delayed input
routing < partition_table producer < delivery resends < append < open_topic < copy_bodies delayed_hand_over
delayed_publisher scan watch write_buffer write_plan < copy flusher staging < retention writer < housekeeper.
"""

from __future__ import annotations
