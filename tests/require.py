"""A missing part skips a test on a laptop and fails it in CI.

Parts are those of tests/parts.py, which `make test` installs. `PENSTOCK_REQUIRE=all` (or a comma list:
`java,git`) turns the skip into a failure, so that a green CI run never means "nothing was tested".
"""

import os
from importlib import import_module
from types import ModuleType
from typing import NoReturn

import pytest

from tests.parts import PARTS


def require(*names: str) -> None:
    """Go on when every part named is there; else skip, or fail where `PENSTOCK_REQUIRE` names it.

    Works in a test, in a fixture, and at the head of a file for all its tests.
    """
    __tracebackhide__ = True
    for name in names:
        part = PARTS[name]
        if missing := part.missing():
            absent(name, f"{', '.join(missing)} not found: {part.how_to_install()}")


def absent(name: str, reason: str) -> NoReturn:
    """Skip, or fail where `PENSTOCK_REQUIRE` names the part, for a reason that the caller has found."""
    __tracebackhide__ = True
    assert name in PARTS, f"{name!r} has no line in tests/parts.py"
    if is_required(name):
        pytest.fail(f"{name} is required by PENSTOCK_REQUIRE, but: {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}", allow_module_level=True)


def is_required(name: str) -> bool:
    """Whether `PENSTOCK_REQUIRE` names the part."""
    required = {each.strip() for each in os.environ.get("PENSTOCK_REQUIRE", "").split(",")}
    return "all" in required or name in required


def module(name: str, part: str = "") -> ModuleType:
    """Import a module of a part, which is named like the module unless `part` says otherwise."""
    __tracebackhide__ = True
    require(part or name)
    return import_module(name)
