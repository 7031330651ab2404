"""Reading as a consumer: readers, their engines, what becomes of messages.

Each file imports only files before it.

Order: hand_over lag leases read_quota readable retries < dead_letter_topic membership partition
waiting_view < dead_letters gates options queue_partition removed_parents < assignment < settle
transaction_part < engine queue_reader stream_reader < process_queue < process < reader.
"""
