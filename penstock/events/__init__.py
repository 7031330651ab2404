"""Live events over a keyed topic: push under a key, subscribe to keys."""
