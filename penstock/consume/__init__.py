"""Reading as a consumer: readers, their engines, what becomes of messages.

Each file imports only files before it.

Order: hand_over lag leases read_quota retries < dead_letter_topic membership partition < dead_letters
options queue_partition < assignment < settle transaction_part < engine queue_reader stream_reader <
process_queue < process < reader.
"""
