"""Subject streams (MiniToolStream): one global sequence, messages under subjects, durable consumers."""
