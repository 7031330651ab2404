"""Reading as a named consumer: readers, commits, positions, lag."""
