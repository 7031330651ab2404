"""Files of waiting messages: a chain for each delay, and the delivery of what is due. Knows no topic.

Each file imports only files before it.

Order: file_names journal ladder < checksums records < states < file_reader file_repair <
state_table verify window < chain scheduler_lock < copies < scheduler < waiting.
"""

from __future__ import annotations
