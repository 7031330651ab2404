"""Reading as a consumer: readers, their engines, what becomes of messages.

A module imports only what stands before it:

    leases retries hand_over lag partition options membership queue_partition dead_letter_topic assignment
    settle transaction_part engine process_queue process stream_reader queue_reader reader dead_letters
"""
