"""What makes logs a topic: partitions, routing, writers, scans, retention."""
