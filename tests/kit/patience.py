"""Wait for a state, not for a time: a test may be slow on a busy machine, never wrong."""

import time
from collections.abc import Callable
from typing import Any

#: How long a state may take to come; far more than any healthy machine needs, less than a test's time limit.
PATIENCE_S = 300.0


def wait_until(
    is_so: Callable[[], Any], what: str | Callable[[], object] = "", *, patience_s: float = PATIENCE_S
) -> None:
    """Return when `is_so()` is true; fail with `what`, or what it returns, when it does not become so."""
    begun = time.monotonic()
    while not is_so():
        waited_s = time.monotonic() - begun
        if waited_s > patience_s:
            raise AssertionError(what() if callable(what) else what or f"{is_so} did not become true")
        # The longer it takes, the less often one looks: looking may take the time of what is waited for.
        time.sleep(min(max(0.005, waited_s / 20), 0.1))
