"""A missing part skips a test on a laptop and fails it in CI.

`PENSTOCK_REQUIRE=all` (or a comma list of parts: `java,git`) turns the skip into a failure,
so that a green CI run never means "nothing was tested".
"""

import os

import pytest


def require(part: str, available: bool, reason: str) -> None:
    """Go on when `part` is available; else skip, or fail where `PENSTOCK_REQUIRE` names it."""
    __tracebackhide__ = True
    if available:
        return
    if is_required(part):
        pytest.fail(f"{part} is required by PENSTOCK_REQUIRE, but: {reason}", pytrace=False)
    pytest.skip(f"{part}: {reason}")


def is_required(part: str) -> bool:
    required = {name.strip() for name in os.environ.get("PENSTOCK_REQUIRE", "").split(",")}
    return "all" in required or part in required
